"""A Python of Spark's workers that cannot run the tasks: which it is, on which host, what it lacks, and what to do.

Of a local session that is found out before the JVM starts. On a cluster only the error of a task tells it.
"""

from __future__ import annotations

import contextlib
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.worker.daemon import FOLDER

PACKAGE: Final = "rocketmq_reindex"
THIRD_PARTY: Final = ("numpy", "pyarrow", "pandas", "numba", "mmh3", "xxhash")
"""what the tasks import besides"""
_TO_DO: Final = (
    "install the wheel in it, or set PYSPARK_PYTHON to a Python that has it, which is ./environment/bin/python with "
    "--archives environment.tar.gz#environment of dist/"
)
_TO_DO_HERE: Final = "leave PYSPARK_PYTHON out, or name a Python in which the wheel is installed"
_HOST: Final = re.compile(r"\(TID \d+\) \((\S+) executor (\S+?)\)")
_ABSENT: Final = re.compile(r'Cannot run program "(.*?)": error=\d+, (.*)')
_MINOR: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*?: (\d+\.\d+) than that in driver:? (\d+\.\d+)")
_MODULE: Final = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_LOADED: Final = re.compile(r"^ImportError: (.+)", re.MULTILINE)
_NO_DAEMON: Final = re.compile(
    r"No port number in (?:\S+)'s stdout|Bad data in (?:\S+)'s standard output|EOFException\s.*PythonWorkerFactory.startDaemon",
    re.DOTALL,
)
"""what Spark says of a Python that ends before it listens, or prints other things than a port"""


_OWN: Final = f"{sys.version_info[0]}.{sys.version_info[1]}"
_PROBE: Final = """
import importlib.util, sys
print("%d.%d" % sys.version_info[:2], *[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])
"""
_PATIENCE: Final = 300


def check(python: str, needed: Sequence[str]) -> None:
    """Look at the Python of a local session's workers. Raises InputError where it cannot run them.

    ``needed``: the packages that it must be able to import.
    """
    if python == sys.executable:
        return
    which = f"PYSPARK_PYTHON, on {escape(platform.node())}: {escape(python)}"
    found = shutil.which(python)
    if found is None:
        raise InputError(f"{which} is no program: {_TO_DO_HERE}")
    try:
        words = [found, "-c", _PROBE, *needed]
        done = subprocess.run(
            words, cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{which} does not run ({escape(str(error))}): {_TO_DO_HERE}") from error
    version, *lacking = done.stdout.split() or [""]
    if done.returncode != 0 or not re.fullmatch(r"\d+\.\d+", version):
        said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise InputError(f"{which} does not run ({escape(said, 300)}): {_TO_DO_HERE}")
    if version != _OWN:
        raise InputError(f"{which} {_other_version(version)}")
    if lacking:
        raise InputError(f"{which} lacks {escape(', '.join(lacking))}: {_TO_DO_HERE}")


@contextlib.contextmanager
def named(spark: Any) -> Iterator[None]:
    """Raise InputError for a Python that Spark's workers cannot be started by, or that lacks what their tasks need."""
    try:
        yield
    except ReindexError:
        raise
    except Exception as error:
        # Spark's own trace, which names the host, is no part of the message of an error that it takes for Python's.
        text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
        told = _told(text)
        if told is None:
            raise
        raise InputError(f"{_which(spark, text)} {told}") from error


def _told(text: str) -> str | None:
    """What is wrong with the Python, and what to do; None where the error is of something else."""
    if found := _ABSENT.search(text):
        return f"does not start ({escape(found[2])}): {_TO_DO}"
    if found := _MINOR.search(text):
        return _other_version(found[1])
    if found := _MODULE.search(text):
        package = found[1].partition(".")[0]
        sent = f"give spark-submit --py-files {PACKAGE}.zip, or " if package == PACKAGE else ""
        return f"lacks {package}: {sent}{_TO_DO}"
    if found := _LOADED.search(text):
        return f"cannot load a package ({escape(found[1], 300)}): {_TO_DO}"
    if _NO_DAEMON.search(text):
        return f"ends before it does anything: {_TO_DO}"
    return None


def _other_version(version: str) -> str:
    return (
        f"is Python {version}, and the driver's {escape(sys.executable)} is {_OWN}: name Pythons of the same minor version in "
        "PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON"
    )


def _which(spark: Any, text: str) -> str:
    """Name the Python of the workers, and the host where it failed."""
    python = ""
    with contextlib.suppress(Exception):
        # A session without a SparkContext does not say.
        python = str(spark.sparkContext.pythonExec)
    hosts = _HOST.findall(text)
    host = platform.node() if not hosts or hosts[-1][1] == "driver" else hosts[-1][0]
    return f"PYSPARK_PYTHON, on {escape(host)}: {escape(python) or 'the Python of the workers'}"
