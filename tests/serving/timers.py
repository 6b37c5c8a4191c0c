"""Timer messages of a real broker: sent through it, looked up in its log, and handed to another by the timer files."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rocketmq_reindex.storage_format.delay.settings import TimerSettings
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.topics import TIMER_TOPIC
from tests.delayed.life import UNREAD
from tests.reference.java import hash_code, java_text
from tests.serving.programs import PATIENCE, Program
from tests.serving.stores import options
from tests.tools.timer_files import put_files

SEGMENT = 1 << 20
SIZES: dict[str, int] = {"segment_size": SEGMENT, "cq_file_size": 20_000, "hash_slots": 1000, "index_items": 5000}
TOPIC = "timed"
QUEUES = 4

Rows = np.ndarray[tuple[int], np.dtype[np.void]]


@dataclass(frozen=True)
class Sent:
    """A message that a client sends: its key, when it is due, and what names the message that it deletes."""

    key: str
    due: int
    deletes: str = ""


def new_store(store: Path) -> None:
    """A store with the configuration of TOPIC and nothing else."""
    config = {"topicName": TOPIC, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
              "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False}  # fmt: skip
    (store / "config").mkdir(parents=True)
    (store / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: config}}))


def words(settings: TimerSettings, *, is_read: bool = True) -> list[str]:
    """The settings as words of the step ``boot``; ``is_read`` as in ``boot``."""
    named: dict[str, str | int] = {
        "timerPrecisionMs": settings.precision_ms,
        "timerRollWindowSlot": settings.roll_window_slots,
        "mappedFileSizeTimerLog": settings.log_file_size,
    }
    if not is_read:
        named |= UNREAD
    return ["--timer-wheel", "--set", ",".join(f"{name}={value}" for name, value in named.items())]


def boot(program: Program, store: Path, settings: TimerSettings, *, is_read: bool = True) -> None:
    """A broker that delivers timer messages. Its timer files are written once a second where somebody reads them later."""
    program.step("boot", "timers", store, *options(**SIZES), *words(settings, is_read=is_read))


def send_timed(program: Program, messages: Sequence[Sent], scratch: Path) -> None:
    """Send them to the queues of TOPIC in turn; the key is UNIQ_KEY of each."""
    lines = []
    for number, message in enumerate(messages):
        line = ["0", TOPIC, str(number % QUEUES), "tag", f"UNIQ_KEY={message.key}", f"TIMER_DELIVER_MS={message.due}"]
        lines.append("\t".join([*line, *[f"TIMER_DEL_UNIQKEY={message.deletes}"][: len(message.deletes)]]))
    (scratch / "lines").write_text("\n".join(lines) + "\n")
    program.step("send", scratch / "lines")
    program.step("sent")


def delete_key(version: str, key: str) -> str:
    """What names a message in TIMER_DEL_UNIQKEY (``TimerMessageStore.buildDeleteKey``)."""
    return f"{TOPIC}+{key}" if version.startswith("5.3") else key


def records(store: Path) -> Iterator[Message]:
    """Each record of the commitlog."""
    for segment in sorted((store / "commitlog").iterdir()):
        data, at = segment.read_bytes(), 0
        while isinstance(found := _record(data, at, int(segment.name)), Message):
            yield found
            at += found.size


def _record(data: bytes, at: int, start: int) -> Message | int:
    return read_message(lambda low, count: data[at + low : at + low + count], start + at, len(data) - at)


def pending_of(store: Path) -> tuple[Rows, TimerQueueEnd]:
    """The timer messages of which no copy follows, delivered or rolled, by the log alone; and the queue's end."""
    waiting = dict[tuple[str | None, int], Message]()
    end = TimerQueueEnd(0, 0, 0)
    for record in records(store):
        rolls = int(record.properties.get("TIMER_ROLL_TIMES", "0"))
        if record.topic == TIMER_TOPIC:
            waiting.pop((record.unique_key, rolls - 1), None)
            waiting[record.unique_key, rolls] = record
            end = TimerQueueEnd(record.queue_offset + 1, record.phy_offset, record.size)
        elif "TIMER_DEQUEUE_MS" in record.properties:
            waiting.pop((record.unique_key, rolls), None)
    rows = sorted(
        (one.queue_offset, one.phy_offset, one.size, one.store_time, int(one.properties["TIMER_OUT_MS"]),
         hash_code(java_text(one.properties["REAL_TOPIC"])), "TIMER_DEL_UNIQKEY" in one.properties)
        for one in waiting.values()
    )  # fmt: skip
    return np.array(rows, PENDING), end


def forget(store: Path) -> None:
    """Take away all that says which timer messages were delivered."""
    for part in ("config/timercheck", "config/timermetrics", "config/timermetrics.bak", "timerwheel"):
        (store / part).unlink(missing_ok=True)
    for snapshot in store.glob("timerwheel.*"):
        snapshot.unlink()
    shutil.rmtree(store / "timerlog", ignore_errors=True)


def write_timers(store: Path, settings: TimerSettings, read_time: int | None = None, pending: Rows | None = None) -> None:
    """Write the timer files for what is pending by the log, or for what is named."""
    by_log, end = pending_of(store)
    rows = by_log if pending is None else pending
    put_files(store, timer_files(rows, end, read_time or int(time.time() * 1000), settings).files)


def wait(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"not so after {PATIENCE} s"
        time.sleep(0.2)


def delivered(store: Path) -> dict[str, list[Message]]:
    """The copies of timer messages that lie in their real queue, by key."""
    found = dict[str, list[Message]]()
    for record in records(store):
        if record.topic == TOPIC:
            found.setdefault(record.unique_key or "", []).append(record)
    return found
