"""An Airflow of a test's own: a folder of DAGs, a database, and Airflow's own Python to ask."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tools.distributed import DIST
from tests.tools.faulty_cluster import spark_home
from tests.tools.faulty_processes import ROOT, java

ENVIRONMENT = ".venv-airflow"
DAGS = ROOT / "jobs" / "dags"
SCRIPT = Path(__file__).with_name("in_airflow.py")
PATIENCE = 1500


@dataclass(frozen=True)
class AirflowHome:
    folder: Path
    python: Path

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the shell that runs the tests; Airflow's own Python is not on PATH either."""
        return {
            **java(),
            "PATH": "/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            # A file's first imports take seconds, of a busy machine many; Airflow gives up after 30.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "900",
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def ask(self, *words: str, more: Mapping[str, str] | None = None) -> Any:
        """What in_airflow.py says to these words."""
        return self.says(SCRIPT, *words, more=more)

    def says(self, script: Path, *words: str, more: Mapping[str, str] | None = None) -> Any:
        """The JSON on the last line of a script that Airflow's Python runs."""
        # -P: the folder of the script, and so the tests' tree, is not on Airflow's path.
        done = self._run(self.python, "-P", script, *words, more=more or {})
        return json.loads(done.splitlines()[-1])

    def migrate(self) -> None:
        self._run(self.python, "-P", "-m", "airflow", "db", "migrate", more={})

    def _run(self, *words: str | Path, more: Mapping[str, str]) -> str:
        with open(self.folder / "log", "ab") as log:
            done = subprocess.run(
                list(map(str, words)), cwd=self.folder, env=self.environment | dict(more), stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=log, text=True, check=False, timeout=PATIENCE,
            )  # fmt: skip
            # Airflow's tasks log to either.
            log.write(done.stdout.encode())
        assert done.returncode == 0, done.stdout[-2000:] + (self.folder / "log").read_text(errors="replace")[-4000:]
        return done.stdout


def site() -> dict[str, Any]:
    """What both Airflows are told of this machine."""
    return {
        "dist": str(DIST),
        "spark_submit": str(spark_home() / "bin" / "spark-submit"),
        # Where the wheel is installed nothing is sent to the executors: tests/cluster sends it.
        "python": sys.executable,
        "files": "",
        "py_files": "",
        "retries": 1,
        "retry_delay": 0,
    }


def airflow_home(folder: Path, given: dict[str, Any], environment: str = ENVIRONMENT) -> AirflowHome:
    """With the DAGs as a user copies them, and what ``rocketmq_reindex.json`` says beside them."""
    python = ROOT / environment / "bin" / "python"
    assert python.exists(), f"make test-all makes {ENVIRONMENT}, make slow {environment}"
    dags = folder / "dags"
    dags.mkdir(parents=True)
    for path in DAGS.glob("*.py"):
        (dags / path.name).write_bytes(path.read_bytes())
    (dags / "rocketmq_reindex.json").write_text(json.dumps(given), encoding="utf-8")
    return AirflowHome(folder, python)
