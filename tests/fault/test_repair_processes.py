"""kill -9 in real repairs: of the driver, and of the workers that keep damaged bytes and write segments. By both engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.processes import LOCAL, RETRYING, check_ended, check_killed_driver, fault, run
from tests.fault.repairs import RepairScene, damaged_store


@pytest.fixture
def scene(tmp_path: Path) -> RepairScene:
    return RepairScene(damaged_store(tmp_path / "store"), tmp_path / "place" / "out", True)


def test_workers_of_spark(scene: RepairScene, tmp_path: Path) -> None:
    """Spark tries their tasks again: the same run ends well, with the bytes of one that nobody killed."""
    points = [("os.rename", "/tree/quarantine/"), ("os.rename", "/tree/commitlog/"), ("open", "/tree/commitlog/")]
    with run(scene, tmp_path / "run", [fault("worker", point) for point in points], RETRYING) as found:
        assert check_ended(scene, found, False)["exit"] == scene.exit
    assert len(list((tmp_path / "run").glob("fault-*"))) == 3


def test_driver_while_it_publishes(scene: RepairScene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "run", [fault("driver", ("os.rename", "/sealed$"))]) as found:
        check_killed_driver(scene, found)


def test_a_worker_of_the_local_engine(scene: RepairScene, tmp_path: Path) -> None:
    """It has no second try: nothing is published, and the next run ends well."""
    scene.words = (*scene.words, "--engine", "local")
    with run(scene, tmp_path / "run", [fault("worker", ("os.rename", "/tree/commitlog/"))], LOCAL) as found:
        summary = check_ended(scene, found, True)
    assert summary["exit"] in (1, scene.exit)
