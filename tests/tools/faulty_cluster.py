"""A standalone Spark master with two workers on addresses of their own, on this machine: as near to a cluster as it can be.

Speculation needs it: a copy of a task is started on another host only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.spark.jars import class_archive, delta_jars
from tests.tools.faulty_processes import ROOT, SITE, Running, command, java, running, wait_until

HOSTS = ("127.0.0.2", "127.0.0.3")
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""For a JVM that runs for seconds: what its second compiler costs does not come back."""
PACKAGES = ("storage_format", "files", "udfs", "jobs")
_URL = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:\d+)\n")


def spark_home() -> Path:
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def archived() -> tuple[str, str]:
    """The options and the class path with which a JVM of Spark's takes its classes from set-up's archive: a third of a start.

    The archive asks for a class path that begins as that of our own sessions, with Delta's jars.
    """
    archive = class_archive()
    if archive is None or not archive.exists():
        return QUICK_JAVA, ""
    return f"{QUICK_JAVA} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off", ":".join(delta_jars())


def quick(process: str) -> dict[str, str]:
    """The settings of a ``driver`` or an ``executor`` whose JVM starts so."""
    options, path = archived()
    return {f"spark.{process}.extraJavaOptions": options} | ({f"spark.{process}.extraClassPath": path} if path else {})


def _environment(folder: Path) -> dict[str, str]:
    options, path = archived()
    return {
        **java(),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_LOG_DIR": str(folder / "logs"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_DAEMON_CLASSPATH": path,
        # Not what a shell may have set. It is on the class path, and there is none: the archive knows no other.
        "SPARK_CONF_DIR": str(spark_home() / "conf"),
        "PYSPARK_PYTHON": sys.executable,
    }


@dataclass(frozen=True)
class Cluster:
    url: str
    folder: Path

    def submit(
        self, store: Path, out: Path, folder: Path, words: tuple[str, ...], settings: dict[str, str],
        faults: list[dict[str, Any]] | None = None,
    ) -> contextlib.AbstractContextManager[Running]:  # fmt: skip
        """``spark-submit jobs/build.py`` as the guide has it; the executors find the packages in the zip and nowhere else.

        The record loops run as Python: compiled code of a package in a zip is not kept from one process to the next.
        """
        archive = self.folder / "reindex.zip"
        if not archive.exists():
            with zipfile.ZipFile(archive, "w") as package:
                paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
                for path in sorted([*paths, *(ROOT / "rocketmq_reindex").glob("*.py")]):
                    package.write(path, Path("rocketmq_reindex", str(path.relative_to(ROOT)).removeprefix("rocketmq_reindex/")))
        settings = settings | _executors(folder, faults or [])
        settings |= {"spark.executorEnv.REINDEX_HIDDEN": str(ROOT), "spark.executorEnv.NUMBA_DISABLE_JIT": "1"}
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", self.url]
        submit += ["--properties-file", str(ROOT / "conf" / "spark-defaults.conf"), "--py-files", str(archive)]
        submit += [word for name, value in (quick("driver") | settings).items() for word in ("--conf", f"{name}={value}")]
        build = [str(ROOT / "jobs" / "build.py"), str(store), "--out", str(out), "--json", *words]
        environment = _environment(self.folder) | _DRIVER | {"NUMBA_DISABLE_JIT": "1"}
        return running([*submit, *build], folder, faults, environment)

    def command(
        self, store: Path, out: Path, folder: Path, words: tuple[str, ...], settings: dict[str, str],
        faults: list[dict[str, Any]] | None = None,
    ) -> contextlib.AbstractContextManager[Running]:  # fmt: skip
        """``rmq-reindex build --master spark://...``; the executors find the packages where they are installed."""
        return self.run(command(store, out, *words), folder, settings, faults)

    def run(
        self, words: list[str], folder: Path, settings: dict[str, str], faults: list[dict[str, Any]] | None = None
    ) -> contextlib.AbstractContextManager[Running]:
        """The command ``words`` with ``--master spark://...``; the executors find the packages where they are installed."""
        settings = settings | _executors(folder, faults or [])
        return running([*words, "--master", self.url], folder, faults, self.client(self.folder, settings))

    def client(self, folder: Path, settings: dict[str, str]) -> dict[str, str]:
        """The environment of a driver with these settings, which are kept in ``folder``."""
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} {value}\n".replace("\\", "\\\\") for name, value in settings.items()]
        (conf / "spark-defaults.conf").write_text("".join(lines))
        return _environment(self.folder) | _DRIVER | {"SPARK_CONF_DIR": str(conf)}


_DRIVER = {"SPARK_LOCAL_IP": "127.0.0.1"}
"""Where executors find the driver, whatever the host's name leads to."""


def _executors(folder: Path, faults: list[dict[str, Any]]) -> dict[str, str]:
    """Settings that bring faults to the executors: they have the environment of Spark's workers, not the driver's."""
    for number, fault in enumerate(faults):
        fault.setdefault("marker", str(folder / f"fault-{number}"))
    return {
        "spark.executorEnv.PYTHONPATH": str(SITE),
        "spark.executorEnv.REINDEX_FAULTS": json.dumps(faults),
        **quick("executor"),
    }


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Two cores and 2 GiB a worker, so that two stragglers leave room for copies; nothing of it is left in the end.

    It dies with the caller, too, however that ends.
    """
    environment = _environment(folder)
    folder.mkdir(parents=True)
    spark = str(spark_home() / "bin" / "spark-class")
    # A port that was free a moment ago may be another's by the time the master asks for it.
    master = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as stack:
        words = [spark, "org.apache.spark.deploy.master.Master", *master]
        found = stack.enter_context(running(words, folder / "master", None, environment, True))
        wait_until(lambda: _URL.search(found.err))
        url = _URL.findall(found.err)[0]
        for host in HOSTS:
            words = [spark, "org.apache.spark.deploy.worker.Worker", "--host", host, "--webui-port", "0", "--cores", "2"]
            words += ["--memory", "2g", "--work-dir", str(folder / f"work-{host}"), url]
            stack.enter_context(running(words, folder / f"worker-{host}", None, environment, True))
        wait_until(lambda: found.err.count("Registering worker") == len(HOSTS))
        yield Cluster(url, folder)


def events_of(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The events of one kind in the event logs of a folder."""
    lines = [json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()]
    return [event for event in lines if event["Event"] == kind]


def speculated(events: Path) -> dict[str, int]:
    """What an event log says: copies of tasks that were started, tasks that were killed for another attempt, executors lost."""
    counts = {"speculative": 0, "killed": 0, "won": 0, "lost executors": 0}
    for event in events_of(events, "SparkListenerTaskEnd"):
        speculative = event["Task Info"]["Speculative"]
        reason = event["Task End Reason"]["Reason"]
        counts["speculative"] += speculative
        counts["won"] += speculative and reason == "Success"
        counts["killed"] += reason == "TaskKilled"
    counts["lost executors"] = len(events_of(events, "SparkListenerExecutorRemoved"))
    return counts


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    # A stage of one task has nothing to compare it with.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "4",
}


def event_log(folder: Path) -> dict[str, str]:
    folder.mkdir(parents=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
