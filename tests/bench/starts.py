"""What a start costs: a tiny build by each engine, with and without bytecode, and an application on a standalone cluster.

The cluster has two executors of one core on this machine. It is given what ``make dist`` made, as docs/how-to/cluster.md says:
first where nothing is there, then again and again. Beside it, in turn, the same submit with ``--master local[2]``, one whose
environment Spark unpacks in each executor, one whose hosts had it unpacked by hand, and one without bytecode.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from rocketmq_reindex.udfs.worker.environment import ARCHIVE, PROGRAM, VARIABLE
from scripts.demo import unpack
from tests.bench.logs import BENCH
from tests.bench.sides import SAME_BYTES, run_command
from tests.tools.distributed import DIST
from tests.tools.faulty_cluster import cluster, event_log, events_of, spark_home
from tests.tools.faulty_processes import java

LOCAL_START, SECOND_SUBMIT, FIRST_TASK = 1.2, 12.0, 8.0
"""Seconds, at most: a tiny build with ``--engine local``; what the cluster costs more; from executor to first task."""
FIRST, AGAIN, ARCHIVES, UNPACKED, NO_BYTECODE, LOCAL = (
    "cluster, its first application",
    "cluster, again",
    "cluster, by --archives",
    "cluster, the environment unpacked on its hosts",
    "cluster, without bytecode",
    "`--master local[2]`",
)


class Start(NamedTuple):
    """Seconds of one submit as a whole, and those after an executor was there: until its first task ran, and until it ended."""

    whole: float
    ran: float
    ended: float


def no_bytecode(folder: Path) -> dict[str, str]:
    """The environment of a Python that finds no bytecode beside its sources, and keeps none."""
    return {"PYTHONPYCACHEPREFIX": str(folder / "no-bytecode"), "PYTHONDONTWRITEBYTECODE": "1"}


def race_starts(rounds: int, master: str) -> dict[str, Any]:
    """Seconds of a whole build of the demo's store by engine, with set-up's bytecode and without any."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="starts-", dir=BENCH) as name:
        place = Path(name)
        store = unpack(place)
        ways = {"with bytecode": {"PYTHONDONTWRITEBYTECODE": "1"}, "without": no_bytecode(place)}
        for number in range(-1, rounds):
            for engine in ("local", "spark"):
                for way, environment in ways.items():
                    run = run_command(store, place / "out", master, engine, environment)
                    if number >= 0:
                        seconds.setdefault(f"{engine}, {way}", []).append(run.process)
    print("a tiny build, the whole command" + " " * 3 + "      min   median      max")
    for kind, values in seconds.items():
        print(f"  {kind:<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s", flush=True)
    return {"seconds": seconds, "target": LOCAL_START}


class Submitter:
    """A folder with what a user copies there, submitted with an environment that has nothing of this one's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._count = 0
        (folder / "home").mkdir(parents=True)
        with tarfile.open(DIST / ARCHIVE) as archive:
            archive.extractall(folder / "environment", filter="data")
        # A Python of this minor version, and nothing that was installed for this one.
        venv.create(folder / "python", symlinks=True)
        # The same zip without bytecode.
        self._plain = folder / "plain" / "rocketmq_reindex.zip"
        self._plain.parent.mkdir()
        with zipfile.ZipFile(DIST / self._plain.name) as source, zipfile.ZipFile(self._plain, "w") as target:
            for member in source.infolist():
                if not member.filename.endswith(".pyc"):
                    target.writestr(member, source.read(member), zipfile.ZIP_DEFLATED)

    def submit(self, way: str, url: str, store: Path, out: Path) -> Start:
        """One submit from nothing to the published build. Ends the program where it fails."""
        shutil.rmtree(out, ignore_errors=True)
        self._count += 1
        events = self.folder / f"events-{self._count}"
        python = str(self.folder / "environment" / "bin" / "python")
        by_hand, sent = way in (LOCAL, UNPACKED), str(DIST / PROGRAM)
        bare = no_bytecode(self.folder) if way == NO_BYTECODE else {}
        settings = {"spark.cores.max": "2", "spark.executor.cores": "1", **event_log(events)}
        # The executors' hosts are not that of the driver.
        settings |= {f"spark.executorEnv.{name}": value for name, value in (bare | {VARIABLE: f"{self.folder}/kept"}).items()}
        # Both executors work: a start that only one of them has seen would be half of one.
        settings |= {"spark.scheduler.minRegisteredResourcesRatio": "1.0"}
        words = [str(spark_home() / "bin" / "spark-submit"), "--master", "local[2]" if way == LOCAL else url]
        words += ["--properties-file", str(DIST / "spark-defaults.conf")]
        words += ["--driver-java-options", f"-Dlog4j2.configurationFile={(DIST / 'log4j2.properties').as_uri()}"]
        words += ["--py-files", str(self._plain if bare else DIST / self._plain.name)]
        if way == ARCHIVES:
            words += ["--files", sent, "--archives", f"{DIST / ARCHIVE}#environment"]
        elif not by_hand:
            # The hosts have kept what the first one sent.
            words += ["--files", sent if way == AGAIN else f"{sent},{DIST / ARCHIVE}"]
        words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        words += [str(DIST / "rmq_reindex.py"), "build", str(store), "--out", str(out), "--json", *SAME_BYTES]
        environment = {
            **java(),
            "PATH": f"{self.folder / 'python' / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "PYSPARK_PYTHON": python if by_hand else f"./{PROGRAM}",
            "PYSPARK_DRIVER_PYTHON": python if by_hand else sent,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **bare,
        }
        begin = time.monotonic()
        done = subprocess.run(
            words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        whole = time.monotonic() - begin
        if done.returncode:
            raise SystemExit(f"{way}: ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        return Start(whole, *first_task(events))


def first_task(events: Path) -> tuple[float, float]:
    """Seconds from when an executor was there until its first task ran, and until it had ended; the worse of all executors.

    A task runs once its executor has fetched and unpacked what was submitted: Spark counts that as the task's deserialization.
    """
    there = {event["Executor ID"]: event["Timestamp"] for event in events_of(events, "SparkListenerExecutorAdded")}
    ran: dict[str, float] = {}
    ended: dict[str, float] = {}
    for event in events_of(events, "SparkListenerTaskEnd"):
        info, metrics = event["Task Info"], event.get("Task Metrics") or {}
        executor = info["Executor ID"]
        begun = info["Launch Time"] + metrics.get("Executor Deserialize Time", 0)
        ran[executor] = min(begun, ran.get(executor, begun))
        ended[executor] = min(info["Finish Time"], ended.get(executor, info["Finish Time"]))
    after = [((ran[name] - there[name]) / 1e3, (ended[name] - there[name]) / 1e3) for name in ran if name in there]
    return max(one for one, _ in after), max(one for _, one in after)


def race_submits(store: Path, out: Path, rounds: int) -> dict[str, Any]:
    """Seconds of submits, all ways in turn, and what the cluster costs more than this machine by itself."""
    if not (DIST / PROGRAM).exists():
        raise SystemExit("dist/ is missing: make dist")
    ways: Mapping[str, list[Start]] = {way: [] for way in (FIRST, AGAIN, ARCHIVES, UNPACKED, NO_BYTECODE, LOCAL)}
    with tempfile.TemporaryDirectory(prefix="submits-", dir=BENCH) as name:
        place = Path(name)
        submitter = Submitter(place / "user")
        with cluster(place / "spark") as found:
            ways[FIRST].append(submitter.submit(FIRST, found.url, store, out))
            # Not counted: all that the host's page cache lacks of this way.
            submitter.submit(LOCAL, found.url, store, out)
            for _ in range(rounds):
                for way in (AGAIN, ARCHIVES, UNPACKED, NO_BYTECODE, LOCAL):
                    ways[way].append(submitter.submit(way, found.url, store, out))
                # Each application has left what it unpacked.
                for work in (place / "spark").glob("work-*/app-*"):
                    shutil.rmtree(work, ignore_errors=True)
    print("spark-submit, the whole command: min, median, max; first task ran, ended after its executor was there (medians)")
    for way, starts in ways.items():
        whole = [start.whole for start in starts]
        told = f"{min(whole):8.2f} {median(whole):8.2f} {max(whole):8.2f} s"
        print(f"  {way:<48} {told} {median(s.ran for s in starts):8.2f} {median(s.ended for s in starts):8.2f} s", flush=True)
    more = median(s.whole for s in ways[AGAIN]) - median(s.whole for s in ways[LOCAL])
    ran = median(start.ran for start in ways[AGAIN])
    print(f"  a later submit costs {more:.1f} s more than local[2], at most {SECOND_SUBMIT:g}", flush=True)
    print(f"  its first task ran {ran:.1f} s after its executor was there, at most {FIRST_TASK:g}", flush=True)
    return {
        "bytes": sum(path.stat().st_size for path in (store / "commitlog").iterdir()),
        "starts": {way: [start._asdict() for start in starts] for way, starts in ways.items()},
        "more": more, "more_target": SECOND_SUBMIT, "ran": ran, "ran_target": FIRST_TASK,
    }  # fmt: skip
