"""A wrong Python for Spark's workers: one line says which it is, on which host, what it lacks and what to do."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.spark import gateway
from rocketmq_reindex.storage_format.errors import InputError

HERE = platform.node()
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"
BARE = f'exec {sys._base_executable} -I "$@"'  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            BARE,
            "lacks rocketmq_reindex, numpy, pyarrow, pandas, numba, mmh3, xxhash: leave PYSPARK_PYTHON out, or name a Python",
        ),
        ("echo 3.9", f"is Python 3.9, and the driver's {sys.executable} is {OWN}: name Pythons of the same minor version"),
        ("echo torn >&2; exit 3", "does not run (torn): leave PYSPARK_PYTHON out, or name a Python"),
        ("echo words", "does not run (exit status 0): leave PYSPARK_PYTHON out, or name a Python"),
        ("", "is no program: leave PYSPARK_PYTHON out, or name a Python"),
    ],
)
def test_of_a_local_session(script: str, told: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    if script:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    with pytest.raises(InputError) as raised:
        gateway.check(str(python), (gateway.PACKAGE, *gateway.THIRD_PARTY))
    assert str(raised.value).startswith(f"PYSPARK_PYTHON, on {HERE}: {python} {told}")


def test_one_that_has_all(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for path in (str(python), sys.executable):
        gateway.check(path, gateway.THIRD_PARTY)


LOST = "Job aborted due to stage failure: most recent failure: Lost task 0.3 in stage 0.0 (TID 5) "
WORKER = "\n  An exception was thrown from the Python worker.\nTraceback (most recent call last):\n"
MINOR = "x.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 "


class Worker(Exception):
    """As pyspark raises it: the host is in Java's trace alone."""

    _stackTrace = f"org.apache.spark.SparkException: {LOST}(10.1.2.3 executor 7): org.apache.spark.api.python.PythonException"


class Here(Worker):
    _stackTrace = Worker._stackTrace.replace("10.1.2.3 executor 7", "localhost executor driver")


class NoHost(Worker):
    _stackTrace = "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown"


class Session:
    class sparkContext:
        pythonExec, master = "./rmq_python", "spark://10.1.2.1:7077"


class LocalSession:
    class sparkContext:
        pythonExec, master = "./rmq_python", "local[2]"


@pytest.mark.parametrize(
    ("error", "host", "told"),
    [
        (Worker(f"{WORKER}ModuleNotFoundError: No module named 'numba.core'\n"), "10.1.2.3", "lacks numba: install the wheel"),
        (Worker(f"{WORKER}ModuleNotFoundError: No module named 'rocketmq_reindex'\n"), "10.1.2.3",
         "lacks rocketmq_reindex: give spark-submit --py-files rocketmq_reindex.zip, or install the wheel in it"),
        (Here(f"{WORKER}ModuleNotFoundError: No module named 'mmh3'\n"), HERE, "lacks mmh3: install the wheel in it"),
        (NoHost(f"{WORKER}ModuleNotFoundError: No module named 'mmh3'\n"), "an executor", "lacks mmh3: install the wheel"),
        (Worker(f"{WORKER}ImportError: libarrow.so: no\x1b such file\n"), "10.1.2.3",
         r"cannot load a package (libarrow.so: no\x1b such file): install"),
        (Worker(f"{MINOR}than that in driver: 3.11, PySpark cannot run with different minor versions."), "10.1.2.3",
         f"is Python 3.12, and the driver's {sys.executable} is {OWN}: name Pythons of the same minor version"),
        (RuntimeError(f': x: {LOST}(10.1.2.4 executor 0): java.io.IOException: Cannot run program "./rmq_python": '
                      "error=2, No such file or directory\n\tat java"), "10.1.2.4",
         "does not start (No such file or directory): install the wheel in it"),
        (RuntimeError(f"{LOST}(10.1.2.4 executor 0): x.SparkException: \nNo port number in pyspark.daemon's stdout"),
         "10.1.2.4", "ends before it does anything: install the wheel in it"),
        (RuntimeError(f"{LOST}(10.1.2.4 executor 0): x.SparkException: \nError from python worker:\n  a line\n  error: why\x1b"
                      "\n  \nPYTHONPATH was:\n  /a\nx.SparkException: \nEOFException occurred while reading the port number "
                      "from pyspark.daemon's stdout\n\tat o.a.s.api.python.PythonWorkerFactory.startDaemon"),
         "10.1.2.4", r"ends before it does anything (why\x1b): install the wheel in it"),
    ],
)  # fmt: skip
def test_of_an_executor(error: Exception, host: str, told: str) -> None:
    with pytest.raises(InputError) as raised, gateway.named(Session()):
        raise error
    assert str(raised.value).startswith(f"PYSPARK_PYTHON, on {host}: ./rmq_python {told}")
    assert "\n" not in str(raised.value)


def test_of_a_local_sessions_task() -> None:
    with (
        pytest.raises(InputError, match=f"^PYSPARK_PYTHON, on {HERE}: ./rmq_python lacks mmh3: "),
        gateway.named(LocalSession()),
    ):
        raise NoHost(f"{WORKER}ModuleNotFoundError: No module named 'mmh3'\n")


@pytest.mark.parametrize(
    "error", [InputError("ImportError: of a file's name"), ValueError(f"{WORKER}OSError: disk"), KeyError()]
)
def test_another_error_passes(error: Any) -> None:
    with pytest.raises(type(error)) as raised, gateway.named(None):
        raise error
    assert raised.value is error


def test_a_session_that_does_not_say_which() -> None:
    with pytest.raises(InputError, match="the Python of the workers lacks numba"), gateway.named(None):
        raise Worker(f"{WORKER}ModuleNotFoundError: No module named 'numba'\n")
