"""Runs in .venv-airflow, not in the tests' own environment: what Airflow makes of a folder of DAGs, as JSON on the last line.

    python in_airflow.py load              the DAGs, and what could not be imported
    python in_airflow.py words DAG PARAMS  what its tasks say to spark-submit
    python in_airflow.py needed DAG PATHS  the files that its build needs; what it says where each of PATHS is needed
    python in_airflow.py submit DAG PARAMS its build, up to the end of spark-submit
    python in_airflow.py run DAG RUNS      dag.test() for each of RUNS, a list of {"conf": ..., "done": pattern of task ids}
    python in_airflow.py all QUESTIONS     the answers to some of these in turn, each a list: to import Airflow takes seconds

AIRFLOW_HOME and the folder of DAGs are those of the environment.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

try:
    from airflow.dag_processing.dagbag import DagBag

    pattern: Any = re.compile
except ModuleNotFoundError:
    # Airflow 2, which takes the text of a pattern.
    from airflow.models.dagbag import DagBag

    pattern = str


def load() -> dict[str, Any]:
    bag = DagBag()
    loaded = {name for name in sys.modules if name.partition(".")[0] in ("pyspark", "jobs", "storage_format", "files", "udfs")}
    dags = {}
    for name, dag in bag.dags.items():
        dags[name] = {
            "tasks": {task.task_id: sorted(task.downstream_task_ids) for task in dag.tasks},
            "max_active_runs": dag.max_active_runs,
            "schedule": str(dag.schedule if hasattr(dag, "schedule") else dag.schedule_interval),
            "params": dag.params.dump(),
            "retries": [task.retries for task in dag.tasks],
        }
    return {"dags": dags, "errors": bag.import_errors, "modules": sorted(loaded)}


def words(name: str, params: dict[str, Any]) -> dict[str, list[str]]:
    return {task.task_id: task.words(params) for task in DagBag().dags[name].tasks}


def needed(name: str, paths: list[str]) -> dict[str, list[str]]:
    task = DagBag().dags[name].get_task("build")
    return {"needed": [str(path) for path in task.needed], "said": [said(task, Path(path)) for path in paths]}


def said(task: Any, path: Path) -> str:
    try:
        task.words.__globals__["look_at"]([path])
    except Exception as error:  # noqa: BLE001  what Airflow would log
        return str(error)
    return ""


def submit(name: str, params: dict[str, Any]) -> None:
    DagBag().dags[name].get_task("build").execute({"params": params, "run_id": "manual__1"})


def run(name: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    told = []
    for wanted in runs:
        # Loaded anew: dag.test() leaves a run's parameters in its DAG.
        dag = DagBag().dags[name]
        done = pattern(wanted["done"]) if wanted.get("done") else None
        ended = dag.test(run_conf=wanted["conf"], mark_success_pattern=done)
        tasks = {found.task_id: [str(found.state), found.try_number] for found in ended.get_task_instances()}
        told.append({"state": str(ended.state), "tasks": tasks})
    return told


if __name__ == "__main__":
    if sys.argv[1] == "all":
        questions = json.loads(sys.argv[2])
    else:
        questions = [[*sys.argv[1:3], *map(json.loads, sys.argv[3:])]]
    told: list[Any] = [globals()[name](*given) for name, *given in questions]
    print(json.dumps(told if sys.argv[1] == "all" else told[0]))
