"""Runs in .venv-airflow: jobs of a bundle through Databricks' own classes; what they make of each, as JSON."""

import json
import sys

from databricks.bundles.jobs import Job

print(json.dumps([Job.from_dict(job).as_dict() for job in json.loads(sys.argv[1])]))
