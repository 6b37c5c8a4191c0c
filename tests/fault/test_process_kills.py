"""kill -9 in real Spark runs: of the driver while it publishes, of the JVM, of Python workers in every stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.disk import Scene, tiny_store
from tests.fault.processes import LOCAL, RETRYING, check_ended, check_killed_driver, fault, run


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tiny_store(tmp_path / "store"), tmp_path / "place" / "out", True)


def test_driver_while_it_publishes(scene: Scene, tmp_path: Path) -> None:
    with run(scene, tmp_path / "run", [fault("driver", ("os.rename", "/sealed$"))]) as found:
        check_killed_driver(scene, found)


def test_jvm_while_files_are_written(scene: Scene, tmp_path: Path) -> None:
    """In local mode it is the driver's and the executors': the run ends, and says of what."""
    point = ("os.rename", "/tree/consumequeue/")
    with run(scene, tmp_path / "run", [fault("worker", point, "kill-jvm")], LOCAL) as found:
        summary = check_ended(scene, found, True)
    assert summary["error"] == "Spark's JVM is gone (killed, or out of memory): nothing was published"


def test_python_workers_in_every_stage(scene: Scene, tmp_path: Path) -> None:
    """Spark tries their tasks again: the same run ends well."""
    points = [("open", "/commitlog/"), ("os.rename", "/parts/"), ("os.rename", "/made/")]
    with run(scene, tmp_path / "run", [fault("worker", point) for point in points], RETRYING) as found:
        assert check_ended(scene, found, False)["exit"] == 0
    assert len(list((tmp_path / "run").glob("fault-*"))) == 3
