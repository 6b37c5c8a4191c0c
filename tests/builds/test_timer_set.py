"""fetch and the timer files of a store: timercheck, timerlog and timerwheel are one set, from one side."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.storage_format.delay.timer_layout import WHEEL_SIZE, TimerCheckpoint
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

SET = ("config/timercheck", "timerlog", "timerwheel")
LOG = "timerlog/00000000000000000000"
TAKEN = TimerCheckpoint(EPOCH, 52, 3, 3)
"""A broker took three messages, and its timerlog had a unit on the disk."""


class Scene:
    """A store with three timer messages and nothing but its log, and a build of it."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = folder / "store", folder / "out"
        with LogWriter(self.store / "commitlog", 1 << 12) as writer:
            for number in range(3):
                properties = {"UNIQ_KEY": f"W{number}", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(EPOCH + 60_000)}
                writer.append(Message("rmq_sys_wheel_timer", 0, properties=properties, store_timestamp=EPOCH + 20_000))
        (self.store / "config").mkdir()
        self.build(write_delay=True)

    def build(self, **settings: Any) -> None:
        shutil.rmtree(self.out, ignore_errors=True)
        assert local_build(self.store, self.out, **SMALL, **settings).exit == 0

    def own(self, check: TimerCheckpoint | None, log: bool = True, wheel: int = WHEEL_SIZE) -> None:
        """Give the store timer files of its own; none of a wheel without bytes."""
        if check:
            (self.store / SET[0]).write_bytes(check.to_bytes())
        if log:
            (self.store / "timerlog").mkdir()
            (self.store / LOG).write_bytes(bytes(104))
        if wheel:
            with (self.store / SET[2]).open("wb") as out:
                out.truncate(wheel)

    def fetch(self, *words: str) -> int:
        return fetch([str(self.out), "--to", str(self.store), *words])

    def takes_the_builds(self) -> bool:
        return all((self.store / path).read_bytes() == (self.out / path).read_bytes() for path in (SET[0], LOG, SET[2]))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_store_without_any(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    assert scene.fetch() == 0
    assert scene.takes_the_builds()
    assert "timercheck" not in capsys.readouterr().err
    # The same build once more: it is there already.
    assert scene.fetch() == 0
    assert "already there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"log": False, "wheel": 0}, "without timerlog and timerwheel"),
        ({"wheel": 0}, "without timerwheel"),
        ({"log": False}, "without timerlog"),
        ({"check": None}, "without config/timercheck"),
        ({"wheel": 4096}, "timerwheel has 4,096 bytes"),
        ({"check": TimerCheckpoint(EPOCH, 105, 3, 3)}, "timerlog ends at 104, before 105"),
        ({"check": TimerCheckpoint(EPOCH)}, "no message was taken"),
    ],
)
def test_a_set_that_is_not_whole(scene: Scene, parts: dict[str, Any], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"check": TAKEN} | parts
    scene.own(**given)
    own = {path: (scene.store / path).read_bytes() for path in (SET[0], LOG, SET[2]) if (scene.store / path).exists()}
    assert scene.fetch() == 0
    said = capsys.readouterr().err
    assert why in said
    assert "the build's whole set takes its place" in said
    assert scene.takes_the_builds()
    for path, data in own.items():
        kept = path.replace("timerlog", "timerlog.previous") if path == LOG else f"{path}.previous"
        assert (scene.store / kept).read_bytes() == data


@pytest.mark.parametrize("parts", [{}, {"check": TimerCheckpoint(EPOCH, 0, 3, 3), "log": False}])
def test_a_set_that_is_whole(scene: Scene, parts: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Also without timerlog, where all messages were overdue when the broker took them."""
    given = {"check": TAKEN} | parts
    scene.own(**given)
    assert scene.fetch() == 0
    assert "the store's own stays, the build's is left out" in capsys.readouterr().err
    assert TimerCheckpoint.from_bytes((scene.store / SET[0]).read_bytes()) == given["check"]
    assert not (scene.store / "timerwheel.previous").exists()


def test_a_build_without_timers_over_a_set_that_loses(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    scene.build()
    scene.own(TAKEN, log=False, wheel=0)
    assert scene.fetch() == 1
    said = capsys.readouterr().err
    assert "passes over the timer messages that wait among 3: build with --write-delay" in said
    assert not (scene.store / "consumequeue").exists()
    # What it advises leads to the end.
    scene.build(write_delay=True)
    assert scene.fetch() == 0
    assert scene.takes_the_builds()


def test_a_build_without_timers_over_a_set_that_loses_nothing(scene: Scene) -> None:
    scene.build()
    scene.own(None)
    assert scene.fetch() == 0


def test_an_index_alone(scene: Scene) -> None:
    scene.build(only=("index",))
    scene.own(TAKEN, log=False, wheel=0)
    assert scene.fetch("--partial") == 0


def test_a_snapshot_of_another_wheel(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    (scene.store / "timerwheel.12").write_bytes(b"")
    assert scene.fetch() == 1
    assert "timerwheel.12: with timerWheelSnapshotFlush" in capsys.readouterr().err
    (scene.store / "timerwheel.12").unlink()
    assert scene.fetch() == 0
    assert scene.takes_the_builds()
