"""A standalone master with workers on two addresses: packages from the zip, stragglers copied, executors killed and late."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.fault.disk import Scene, tiny_store, tree
from tests.fault.processes import check_ended, fault
from tests.tools.encode import Message, blank, encode
from tests.tools.faulty_cluster import SPECULATION, Cluster, cluster, event_log, events_of, speculated
from tests.tools.faulty_processes import fired
from tests.tools.faulty_runs import SIZES

GIB = 1 << 30
SEGMENTS = 24
EXECUTORS = 3
DYNAMIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.maxExecutors": str(EXECUTORS),
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
}


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "spark") as found:
        yield found


@pytest.mark.slow
def test_stragglers_are_copied(standalone: Cluster, tmp_path: Path) -> None:
    """A worker stops for good while it scans, others sleep while they write: copies of their tasks end the run."""
    scene = Scene(tiny_store(tmp_path / "store"), tmp_path / "place" / "out", True)
    faults = [
        fault("worker", ("open", "/commitlog/"), "stop"),
        fault("worker", ("os.rename", "/tree/consumequeue/"), "sleep 1500"),
        fault("worker", ("os.rename", "/made/"), "sleep 1500"),
    ]
    settings = SPECULATION | event_log(tmp_path / "events")
    words = (*SIZES, *scene.words)
    with standalone.submit(scene.store, scene.out, tmp_path / "run", words, settings, faults) as found:
        assert check_ended(scene, found, False)["exit"] == 0
    assert fired(tmp_path / "run") == len(faults)
    counts = speculated(tmp_path / "events")
    assert counts["won"] >= len(faults), counts


def test_an_executor_is_killed(standalone: Cluster, tmp_path: Path) -> None:
    """With what it held of the shuffle: its tasks are run again by another. By the command, the packages being installed."""
    scene = Scene(tiny_store(tmp_path / "store"), tmp_path / "place" / "out", False)
    faults = [fault("worker", ("os.rename", "/tree/consumequeue/"), "kill-jvm")]
    events = event_log(tmp_path / "events")
    with standalone.command(scene.store, scene.out, tmp_path / "run", SIZES, events, faults) as found:
        assert check_ended(scene, found, False)["exit"] == 0
    assert fired(tmp_path / "run") == len(faults)
    assert speculated(tmp_path / "events")["lost executors"] >= 1


def test_an_export_whose_executors_are_killed(standalone: Cluster, tmp_path: Path) -> None:
    """One amid a segment, and one as the files of a segment have their names, and it is to be marked: all is as in one run."""
    store, place = tiny_store(tmp_path / "store"), tmp_path / "place"
    rr.export(store, to=tmp_path / "whole", format="parquet", resumable=True)
    place.mkdir()
    words = [sys.executable, "-m", "rocketmq_reindex", "export", str(store), "--to", str(place / "out")]
    faults = [fault("worker", ("os.rename", "/tree/topic="), "kill-jvm"), fault("worker", ("os.rename", "/marks/"), "kill-jvm")]
    with standalone.run([*words, "--format", "parquet", "--json"], tmp_path / "run", {}, faults) as found:
        summary = found.summary()
    assert fired(tmp_path / "run") == len(faults)
    assert (summary["exit"], summary["messages"], summary["warnings"]) == (0, 30, [])
    assert tree(place / "out") == tree(tmp_path / "whole")
    assert [path.name for path in place.iterdir()] == ["out"]


def huge_log(folder: Path) -> None:
    """Segments of 1 GiB, each of a record and a filler: sparse files, of which a verify of the log reads little."""
    folder.mkdir(parents=True)
    for number in range(SEGMENTS):
        start = number * GIB
        record = encode(Message(body=b"body"), start, number)
        with (folder / f"{start:020d}").open("wb") as segment:
            segment.write(record + blank(GIB - len(record)))
            segment.truncate(GIB)


@pytest.mark.slow
def test_executors_that_come_later_get_work(standalone: Cluster, tmp_path: Path) -> None:
    """Dynamic allocation: the session begins without any executor. The scan goes on when all of them are at work."""
    huge_log(tmp_path / "store" / "commitlog")
    (tmp_path / "work").mkdir()
    words = [sys.executable, "-m", "rocketmq_reindex", "verify", str(tmp_path / "store"), "--only", "log", "--json"]
    words += ["--work", str(tmp_path / "work")]
    faults = [fault("worker", ("open", "/commitlog/"), "meet", EXECUTORS)]
    with standalone.run(words, tmp_path / "run", DYNAMIC | event_log(tmp_path / "events"), faults) as found:
        summary = found.summary()
    assert (summary["exit"], summary["error"], summary["records"]) == (0, None, SEGMENTS)

    stages = [event["Stage Info"] for event in events_of(tmp_path / "events", "SparkListenerStageCompleted")]
    added = events_of(tmp_path / "events", "SparkListenerExecutorAdded")
    scan = max(stages, key=lambda stage: int(stage["Number of Tasks"]))
    assert min(event["Timestamp"] for event in added) > scan["Submission Time"], "an executor was there at the start"
    tasks = events_of(tmp_path / "events", "SparkListenerTaskEnd")
    ran = Counter(event["Task Info"]["Executor ID"] for event in tasks if event["Stage ID"] == scan["Stage ID"])
    print(f"tasks by executor: {dict(ran)}")
    # As many as the log has GiB; eight, where the cores that are seen at the start decide.
    assert ran.total() == scan["Number of Tasks"] == SEGMENTS
    assert len(added) == len(ran) == EXECUTORS
