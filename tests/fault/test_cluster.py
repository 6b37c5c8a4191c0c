"""A standalone master with workers on two addresses: packages from the zip, stragglers copied, an executor killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.disk import Scene, tiny_store
from tests.fault.processes import check_ended, fault
from tests.tools.faulty_cluster import SPECULATION, Cluster, cluster, event_log, speculated
from tests.tools.faulty_processes import fired
from tests.tools.faulty_runs import SIZES


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "spark") as found:
        yield found


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
