"""The processes of a Spark session: the folder they work in, and the error of a Python that cannot run their tasks."""

import contextlib
import logging
import os
import platform
import re
import shlex
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final

import pyspark
from py4j.protocol import Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from rocketmq_reindex.jobs.spark.jars import not_fetched
from rocketmq_reindex.jobs.spark.java import fits
from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.worker.daemon import FOLDER
from rocketmq_reindex.udfs.worker.link import elsewhere

# ---------------------------------------------------------------------------------------------------------------- worker_python
# A Python of Spark's workers that cannot run the tasks: which it is, on which host, what it lacks, and what to do.
#
# Of a local session that is found out before the JVM starts. On a cluster only the error of a task tells it.

PACKAGE: Final = "rocketmq_reindex"
THIRD_PARTY: Final = ("numpy", "pyarrow", "pandas", "numba", "mmh3", "xxhash")
"""what the tasks import besides"""
_TO_DO: Final = (
    "install the wheel in it, or set PYSPARK_PYTHON to a Python that has it, which is ./rmq_python with "
    "--files rmq_python,environment.tar.gz of dist/"
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
_SAID: Final = re.compile(r"Error from python worker:\s(.*?)\sPYTHONPATH was:", re.DOTALL)
"""what such a Python has printed on stderr"""


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
    whose = f"PYSPARK_PYTHON, on {escape(platform.node())}: {escape(python)}"
    place = shutil.which(python)
    if place is None:
        raise InputError(f"{whose} is no program: {_TO_DO_HERE}")
    try:
        words = [place, "-c", _PROBE, *needed]
        done = subprocess.run(
            words, cwd=FOLDER, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            timeout=_PATIENCE,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise InputError(f"{whose} does not run ({escape(str(error))}): {_TO_DO_HERE}") from error
    version, *lacking = done.stdout.split() or [""]
    if done.returncode != 0 or not re.fullmatch(r"\d+\.\d+", version):
        last_line = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise InputError(f"{whose} does not run ({escape(last_line, 300)}): {_TO_DO_HERE}")
    if version != _OWN:
        raise InputError(f"{whose} {_other_version(version)}")
    if lacking:
        raise InputError(f"{whose} lacks {escape(', '.join(lacking))}: {_TO_DO_HERE}")


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
    """Return what is wrong with the Python, and what to do; None where the error is of something else."""
    if match := _ABSENT.search(text):
        return f"does not start ({escape(match[2])}): {_TO_DO}"
    if match := _MINOR.search(text):
        return _other_version(match[1])
    if match := _MODULE.search(text):
        package = match[1].partition(".")[0]
        sent = f"give spark-submit --py-files {PACKAGE}.zip, or " if package == PACKAGE else ""
        return f"lacks {package}: {sent}{_TO_DO}"
    if match := _LOADED.search(text):
        return f"cannot load a package ({escape(match[1], 300)}): {_TO_DO}"
    if _NO_DAEMON.search(text):
        match = _SAID.search(text)
        said = [line.strip() for line in match[1].splitlines() if line.strip()] if match else []
        reason = f" ({escape(said[-1].removeprefix('error: '), 300)})" if said else ""
        return f"ends before it does anything{reason}: {_TO_DO}"
    return None


def _other_version(version: str) -> str:
    return (
        f"is Python {version}, and the driver's {escape(sys.executable)} is {_OWN}: name Pythons of the same minor version in "
        "PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON"
    )


def _which(spark: Any, text: str) -> str:
    """Return the Python of the workers, and the host where it failed, as far as Spark tells it.

    Spark 4.1 tells the host of no error that it raises as the worker's own (``DAGScheduler.runJob``).
    """
    python = master = ""
    with contextlib.suppress(Exception):
        # A session without a SparkContext does not say.
        python, master = str(spark.sparkContext.pythonExec), str(spark.sparkContext.master)
    hosts = _HOST.findall(text)
    if master.startswith("local") or (hosts and hosts[-1][1] == "driver"):
        host = escape(platform.node())
    else:
        host = escape(hosts[-1][0]) if hosts else "an executor"
    return f"PYSPARK_PYTHON, on {host}: {escape(python) or 'the Python of the workers'}"


# ---------------------------------------------------------------------------------------------------------------------- gateway
# Where the processes of a session work: in the root folder, never in the folder where the command was started.
#
# ``python -m`` puts its working folder first on ``sys.path``, before it imports anything, and Spark starts its Python workers
# so (``PythonWorkerFactory``); the JVM's own libraries look for files of settings there too. The names of files in the folder
# where a command is started may be an attacker's. Only root can put a file into ``/``.

_USUAL_LINE: Final = b"WARNING: Using incubator modules: jdk.incubator.vector"
"""Spark's launcher asks for the module, so each JVM of Spark's says it first of all (``ModuleBootstrap``)."""
_UNCAUGHT: Final = re.compile(r'Exception in thread "main" [\w.$]+: ')
_UNNAMED: Final = {
    "Driver memory must be": "spark.driver.memory",
    "Executor memory must be": "spark.executor.memory",
    "Executor cores must be": "spark.executor.cores",
    "Total executor cores must be": "spark.cores.max",
}
"""What Spark says of a wrong setting without its name (``SparkSubmitArguments.validateSubmitArguments``)."""
_LACKING: Final = re.compile(r"\[(?:unresolved dependency|download failed): ([^#\s]+)#([^;\s]+);([^:!,\]\s]+)")
_PACKAGES_FROM, _PACKAGES_TO, _EXCEPTION = b":: loading settings ::", b" already retrieved (", b"Exception in thread "
"""Between these Spark tells how it finds the packages that it was asked for (Ivy): nobody asked for that."""
_CORE: Final = re.compile(r"spark-core_[0-9.]+-(.+)\.jar")

_log: Final = logging.getLogger("rmq-reindex.jvm")
"""has a handler while the run's messages are JSON"""


class JvmErrors(threading.Thread):
    """Passes on what a JVM writes to stderr once it is up, without one line that every JVM of Spark writes.

    Of one that does not come up the first line says why; what follows it is a trace.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        super().__init__(name="stderr-of-jvm", daemon=True)
        self._pipe, self._lock = pipe, threading.Lock()
        self._held: list[bytes] | None = []
        self.first = ""
        """the first line, which says why a JVM did not start"""
        self.lacking = ""
        """a package that could not be fetched, as Maven names it"""

    def run(self) -> None:
        fetching = False
        for line in self._pipe:
            if line.startswith((_PACKAGES_FROM, _EXCEPTION)):
                fetching = line.startswith(_PACKAGES_FROM)
                match = _LACKING.search(line.decode(errors="replace"))
                self.lacking = ":".join(match.groups()) if match else ""
            if fetching:
                fetching = _PACKAGES_TO not in line
                continue
            if line.strip() == _USUAL_LINE:
                continue
            self.first = self.first or line.decode(errors="replace").strip()
            with self._lock:
                if self._held is None:
                    _pass_on(line)
                else:
                    self._held.append(line)

    def show(self) -> None:
        """The JVM is up: pass on what it has said, and what it will say."""
        with self._lock:
            for line in self._held or ():
                _pass_on(line)
            self._held = None


def _pass_on(line: bytes) -> None:
    if _log.handlers:
        _log.warning("%s", line.decode(errors="replace").strip())
        return
    # Where nobody reads, the JVM must not wait for that.
    with contextlib.suppress(OSError):
        os.write(2, line)


_started: list[JvmErrors] = []
"""at most one: of the JVM of this process"""


def _spark_home() -> str:
    """Return the Spark that pyspark came with, or "". pyspark itself looks at the parent of the working folder first."""
    package = os.path.dirname(os.path.abspath(pyspark.__file__))
    homes = [os.path.join(package, "spark-distribution"), package, os.path.dirname(os.path.dirname(package))]
    return next((home for home in homes if os.path.isfile(os.path.join(home, "bin", "spark-submit"))), "")


def _check_spark(home: str) -> None:
    """Raise InputError where SPARK_HOME is no Spark, or not the one that this pyspark talks to."""
    named = f"SPARK_HOME={escape(home)}"
    own = ".".join(pyspark.__version__.split(".")[:2])
    to_do = f"unset it (pyspark {pyspark.__version__} brings a Spark), or name the folder of a Spark {own}"
    if not os.access(os.path.join(home, "bin", "spark-submit"), os.X_OK):
        raise InputError(f"Spark does not start: {named} is no Spark, it has no bin/spark-submit: {to_do}")
    jars = os.path.join(home, "jars")
    cores = (_CORE.fullmatch(name) for name in (os.listdir(jars) if os.path.isdir(jars) else ()))
    version = next((core[1] for core in cores if core), "")
    if version and not version.startswith(f"{own}."):
        raise InputError(
            f"Spark does not start: {named} is Spark {escape(version)}, and pyspark is {pyspark.__version__}: {to_do}"
        )


def absolute_paths() -> None:
    """Make the paths of the environment absolute, for processes that work elsewhere.

    An empty entry of PYTHONPATH would be the working folder: it is left out. Raises InputError where there is no Spark.
    """
    environment = os.environ
    if not environment.get("SPARK_HOME"):
        environment["SPARK_HOME"] = _spark_home()
        if not environment["SPARK_HOME"]:
            del environment["SPARK_HOME"]
            raise InputError("Spark does not start: beside pyspark there is no bin/spark-submit: set SPARK_HOME")
    environment.update(_elsewhere(environment))
    _check_spark(environment["SPARK_HOME"])


def _elsewhere(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold paths, as a process in another folder must have them."""
    environment_there = elsewhere(environment)
    python = environment.get("PYSPARK_PYTHON", "")
    if os.sep in python:
        # Links are kept: a virtual environment's python is one.
        environment_there["PYSPARK_PYTHON"] = os.path.abspath(python)
    return environment_there


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM of a session of our own, in FOLDER, unless this process has one. Raises InputError when none comes up."""
    if SparkContext._gateway is not None:
        return
    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)
    reading, writing = os.pipe()
    stderr = JvmErrors(os.fdopen(reading, "rb"))
    stderr.start()
    _started[:] = [stderr]
    try:
        gateway: Any = launch_gateway(conf, {"cwd": FOLDER, "stderr": writing})  # type: ignore[no-untyped-call]
    except Exception as error:
        os.close(writing)
        stderr.join(1)
        raise does_not_start(error) from error
    os.close(writing)
    stderr.show()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def does_not_start(error: Exception) -> InputError:
    """Return the error of a session that does not come up, with what its JVM said first where that has ended."""
    reason = str(error) or type(error).__name__
    if _started and _started[0].lacking:
        return InputError(not_fetched(_started[0].lacking))
    if _started and _started[0].first and isinstance(error, OSError | Py4JNetworkError | PySparkRuntimeError):
        reason = _UNCAUGHT.sub("", _started[0].first)
        reason = next((f"{name}: {reason}" for words, name in _UNNAMED.items() if reason.startswith(words)), reason)
    lines = [line.strip(": ") for line in reason.splitlines() if line.strip(": ")]
    # The message begins with py4j's own text; Java's follows.
    first = next((line for line in lines if not line.startswith("An error occurred while calling")), "no reason given")
    jdk = "" if fits() else ": is there a JDK 17 or 21 (JAVA_HOME)? make setup finds one"
    return InputError(f"Spark does not start: {escape(first, 600)}{jdk}")


def wrap_python(context: Any) -> None:
    """Have the workers of a local session that spark-submit started work in FOLDER: its JVM stays where it was started.

    ``SparkContext.pythonExec`` is what a function's worker is started by. The file lies among Spark's own temporary files,
    which the JVM removes, however the driver ends.
    """
    if not str(context.master).startswith("local"):
        return
    driver, python = os.environ.get("PYSPARK_DRIVER_PYTHON", ""), str(context.pythonExec)
    if os.sep in python and not os.path.isabs(python):
        # Meant for executors, who unpack it where they work. Here the driver's Python has the same packages.
        python = driver if os.path.isabs(driver) else os.path.abspath(python)
    if python != driver:
        # The package itself comes with --py-files, once a task runs.
        check(python, THIRD_PARTY)
    path = os.path.join(context._temp_dir, "python-in-root")
    with open(path, "x") as file:
        file.write(f'#!/bin/sh\ncd {FOLDER} && exec {shlex.quote(python)} "$@"\n')
    os.chmod(path, stat.S_IRWXU)
    if not os.access(path, os.X_OK):
        folder = os.path.dirname(context._temp_dir)
        raise InputError(f"{escape(folder)}: Spark's folder is mounted noexec: name another one, spark.local.dir")
    context.pythonExec = path
    # The folder of compiled code, too, that the driver may have made for this run.
    for name, value in _elsewhere(os.environ).items():
        context.environment.setdefault(name, value)
