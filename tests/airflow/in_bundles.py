"""Runs in .venv-airflow: a job of a bundle through Databricks' own classes; what they make of it, as JSON."""

import json
import sys

from databricks.bundles.jobs import Job

print(json.dumps(Job.from_dict(json.loads(sys.argv[1])).as_dict()))
