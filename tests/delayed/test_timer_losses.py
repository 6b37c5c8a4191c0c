"""preflight counts the timer messages that a start loses, or delivers again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from rocketmq_reindex.storage_format.delay.timer_layout import LOG_UNIT, TimerCheckpoint
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, Put
from tests.tools.timer_files import put_files

READ = EPOCH + 30_000
SETTINGS = TimerSettings(log_file_size=52 * 3 + 16)
"""Three units in a file"""
CONF = f"mappedFileSizeTimerLog={SETTINGS.log_file_size}\n"
FILES: dict[str, Any] = {name: SMALL[name] for name in ("cq_file_size", "hash_slots", "index_items")}


def timed(number: int, due: int, **more: str) -> Message:
    """A message that waits until ``due`` milliseconds behind READ."""
    properties = {"UNIQ_KEY": f"W{number}", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(READ + due), **more}
    return Message("rmq_sys_wheel_timer", 0, properties=properties, store_timestamp=EPOCH + 20_000 + number)


def fired(of: Message) -> Message:
    """Its copy."""
    assert isinstance(of.properties, dict)
    kept = {name: value for name, value in of.properties.items() if not name.startswith("REAL")} | {"TIMER_DEQUEUE_MS": "1"}
    return replace(of, topic="T", queue_id=0, properties=kept, store_timestamp=int(of.properties["TIMER_OUT_MS"]))


class Scene:
    """A store with queues, and timer files by which those ``waiting`` are in the wheel, read up to READ."""

    def __init__(self, folder: Path, records: Sequence[Message], waiting: Sequence[Message], read: int = READ) -> None:
        self.folder, self.store = folder, folder / "store"
        with LogWriter(self.store / "commitlog", 1 << 12) as writer:
            for record in records:
                writer.append(record)
            self.puts = [put for put in writer.puts if put.message.topic == "rmq_sys_wheel_timer"]
        assert local_build(self.store, folder / "out", **SMALL).exit == 0
        assert fetch([str(folder / "out"), "--to", str(self.store)]) == 0
        (self.store / "config").mkdir(exist_ok=True)
        (folder / "conf").write_text(CONF)
        rows = np.array([_row(put) for put in self.puts if put.message in waiting], PENDING)
        last = self.puts[-1]
        put_files(self.store, timer_files(rows, TimerQueueEnd(len(self.puts), last.offset, last.size), read, SETTINGS).files)

    def remove(self, *names: str) -> None:
        for name in names:
            path = self.store / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def counts(self, **options: Any) -> tuple[int, int]:
        """Lost, and again."""
        found = rr.preflight(self.store, broker_version="5.5", broker_conf=self.folder / "conf", **FILES, **options)
        assert found.timers is not None
        kinds = {loss["kind"] for loss in (*found.losses, *found.warnings)}
        assert ("timer-lost" in kinds) == (found.timers["lost"] != 0)
        assert ("timer-again" in kinds) == (found.timers["again"] != 0)
        return found.timers["lost"], found.timers["again"]


def _row(put: Put) -> tuple[int, int, int, int, int, int, bool]:
    message = put.message
    assert isinstance(message.properties, dict)
    due, delete = int(message.properties["TIMER_OUT_MS"]), "TIMER_DEL_UNIQKEY" in message.properties
    return put.queue_offset, put.offset, put.size, message.store_timestamp, due, ord("T"), delete


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Four messages were delivered, eight wait."""
    messages = [timed(number, 1000 * (number - 4)) for number in range(12)]
    return Scene(tmp_path, [*messages, *map(fired, messages[:4])], messages[4:])


@pytest.mark.parametrize(
    ("gone", "lost", "again"),
    [
        ((), 0, 0),
        (("timerwheel",), 0, 0),
        (("timerlog", "timerwheel"), 8, 0),
        (("timerlog",), 8, 0),
        (("config/timercheck", "timerlog", "timerwheel"), 0, 4),
        # All eight are in the wheel, and all twelve are taken into it.
        (("config/timercheck",), 0, 12),
        (("timerlog/00000000000000000172",), 3, 0),
    ],
)
def test_files_that_are_gone(scene: Scene, gone: tuple[str, ...], lost: int, again: int) -> None:
    if gone == ("timerlog", "timerwheel"):
        # As a broker's own: its timerlog was written to.
        check = replace(TimerCheckpoint.from_bytes((scene.store / "config/timercheck").read_bytes()), log_flushed=52)
        (scene.store / "config/timercheck").write_bytes(check.to_bytes())
    scene.remove(*gone)
    assert scene.counts() == (lost, again)


def test_a_log_that_is_too_long_to_count(scene: Scene) -> None:
    scene.remove("timerlog")
    assert scene.counts(count_limit=100) == (-1, -1)


def test_slots_that_are_read_again(tmp_path: Path) -> None:
    """A broker was killed when it had read further than timercheck says."""
    messages = [timed(number, 1000 * number) for number in range(6)]
    scene = Scene(tmp_path, [*messages, *map(fired, messages[:3])], messages)
    assert scene.counts() == (0, 3)


def test_a_queue_that_is_filled_by_the_start(scene: Scene) -> None:
    scene.remove("consumequeue/rmq_sys_wheel_timer")
    assert scene.counts() == (0, 0)


def test_messages_that_rolled_on(tmp_path: Path) -> None:
    """A record for each roll, with one due time: only the last one has to be read."""
    first = [timed(number, 5000) for number in range(3)]
    later = [timed(number, 5000, TIMER_ROLL_TIMES="1") for number in range(3)]
    scene = Scene(tmp_path, [*first, *later], later)
    assert scene.counts() == (0, 0)
    scene.remove("timerlog")
    assert scene.counts() == (3, 0)


def test_a_roll_that_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker was killed right after it had put a message into the timer topic once more: both records come."""
    monkeypatch.setitem(globals(), "SETTINGS", replace(SETTINGS, roll_window_slots=40))
    first = timed(1, 100_000)
    later = replace(timed(1, 100_000, TIMER_ROLL_TIMES="1"), store_timestamp=READ + 30_000)
    scene = Scene(tmp_path, [first, later], [first, later])
    assert scene.counts() == (0, 1)


@pytest.mark.parametrize("named", ["W1", "T+W1"])
def test_cancelled_messages_are_not_missed(tmp_path: Path, named: str) -> None:
    messages = [timed(number, 5000) for number in range(3)]
    scene = Scene(tmp_path, [*messages, mark := timed(9, 5000, TIMER_DEL_UNIQKEY=named)], [*messages, mark])
    assert scene.counts() == (0, 0)
    scene.remove("timerlog")
    assert scene.counts() == (2, 0)


def test_units_of_another_log(scene: Scene, tmp_path: Path) -> None:
    """timerlog and timerwheel of one side, timercheck of the other: what they do not know is lost."""
    other = Scene(tmp_path / "other", [put.message for put in scene.puts[:6]], [put.message for put in scene.puts[4:6]])
    scene.remove("timerlog", "timerwheel")
    for name in ("timerlog", "timerwheel"):
        shutil.move(other.store / name, scene.store / name)
    # The last unit of timerlog says that six were taken: the others are taken again, and none is lost.
    assert scene.counts() == (0, 0)
    check = TimerCheckpoint(READ, 0, 12, 12)
    (scene.store / "config/timercheck").write_bytes(check.to_bytes())
    assert scene.counts() == (0, 0)


def test_messages_that_wait_ahead_are_not_read(tmp_path: Path) -> None:
    """All stand once in the wheel, in slots that no start reads at once: none can be lost, however long the log is."""
    messages = [timed(number, 1000 * (number + 1)) for number in range(12)]
    assert Scene(tmp_path, messages, messages).counts(count_limit=100) == (0, 0)


def test_units_whose_messages_are_not_looked_at(tmp_path: Path) -> None:
    """The number of bytes that a note names is enough."""
    messages = [timed(number, 1000 * (number + 1)) for number in range(12)]
    scene = Scene(tmp_path, messages, messages)

    def said(limit: int) -> rr.PreflightResult:
        conf = scene.folder / "conf"
        return rr.preflight(scene.store, broker_version="5.5", broker_conf=conf, count_limit=limit, **FILES)

    few = said(100)
    assert few.timers is not None
    assert {few.timers[name] for name in ("stuck", "other", "passed_over")} == {-1}
    (note,) = [note for note in few.notes if note.startswith("timerlog: ")]
    enough = said(int(note.split("--count-limit ")[1].split(" ")[0]))
    assert enough.timers is not None
    assert {enough.timers[name] for name in ("stuck", "other", "passed_over")} == {0}
    assert (few.exit_status, enough.exit_status) == (0, 0)
    assert [note for note in enough.notes if note.startswith("timerlog: ")] == []


def test_a_unit_of_any_size(tmp_path: Path) -> None:
    """It does not use up what --count-limit gives: as much is read as the log has."""
    messages = [timed(number, 1000 * (number + 1)) for number in range(12)]
    scene = Scene(tmp_path, messages, messages)
    spoil(scene.store, record_size=0x7FFFFFFF)
    found = rr.preflight(scene.store, broker_version="5.5", broker_conf=scene.folder / "conf", **FILES)
    assert found.timers is not None
    assert (found.timers["passed_over"], found.timers["other"], found.timers["stuck"]) == (12, 0, 0)


def test_units_whose_message_has_expired(tmp_path: Path) -> None:
    """The log does not grow over their places, and no build brings these back."""
    messages = [timed(number, 1000 * (number + 1)) for number in range(40)]
    scene = Scene(tmp_path, messages, messages)
    scene.remove(f"commitlog/{0:020d}")
    found = rr.preflight(scene.store, broker_version="5.5", broker_conf=scene.folder / "conf", **FILES)
    assert found.timers is not None
    assert (found.timers["passed_over"], found.timers["other"], found.timers["stuck"]) == (0, 0, 0)


def spoil(store: Path, **fields: int) -> None:
    """All units of the timer log get these."""
    for path in (store / "timerlog").iterdir():
        data = bytearray(path.read_bytes())
        units = np.frombuffer(data, LOG_UNIT, len(data) // LOG_UNIT.itemsize)
        for name, value in fields.items():
            units[name][units["size"] == LOG_UNIT.itemsize] = value
        path.write_bytes(data)
