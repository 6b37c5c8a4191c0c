"""What a Databricks cluster does with wheel tasks: it calls an entry point of a distribution in a session that is there.

``python wheel_tasks.py PLAN`` reads {"conf": settings of Spark, "package": ..., "entry_point": ..., "runs": [{task: words}]}
and prints for each run {task: [exit status or null, stdout, stderr]}, up to the first task that fails. Nothing of this
project is imported but by the entry point.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession


def called(package: str, name: str, words: list[str]) -> tuple[Any, str, str]:
    """(what it exits with, None if it returns; what it prints)."""
    (entry,) = [entry for entry in metadata.distribution(package).entry_points if entry.name == name]
    status: Any = None
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        sys.argv = [name, *words]
        try:
            entry.load()()
        except SystemExit as ended:
            status = ended.code
    return status, out.getvalue(), err.getvalue()


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.master("local[2]").appName("cluster")
    for name, value in plan["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    told: list[dict[str, tuple[Any, str, str]]] = []
    for run in plan["runs"]:
        told.append({})
        for task, words in run.items():
            told[-1][task] = called(plan["package"], plan["entry_point"], words)
            if told[-1][task][0] is not None:
                break
    # A task that stops the session ends the others of its cluster.
    assert spark.range(3).count() == 3
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
