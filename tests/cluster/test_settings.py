"""Spark itself takes conf/spark-defaults.conf: each setting arrives, and is one that it knows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.tools.faulty_cluster import quick, spark_home
from tests.tools.faulty_processes import ROOT, java
from tests.unit.jobs.spark.test_spark_defaults import settings


def test_spark_takes_them(tmp_path: Path) -> None:
    script = Path(__file__).with_name("print_settings.py")
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[1]"]
    submit += [word for name, value in quick("driver").items() for word in ("--conf", f"{name}={value}")]
    submit += ["--properties-file", str(ROOT / "conf" / "spark-defaults.conf"), str(script)]
    environment = os.environ | java() | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    given = settings()
    assert {name: found["arrived"].get(name) for name in given} == given
    # Behind executorEnv stands any name.
    assert {name for name in given if not name.startswith("spark.executorEnv.")} <= set(found["known"])
    assert 0.9 * 2**30 <= found["heap"] <= 2**30
