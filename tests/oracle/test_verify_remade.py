"""verify of files that RocketMQ wrote while topics were deleted and made anew, whose queue offsets then jumped: no differences.

The real store dispatches the first part of a log; the topic's queues are deleted, as a broker does; it dispatches the rest.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from itertools import count
from pathlib import Path

import pytest

from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, ROLLBACK, Message
from tests.tools.local_engine import InlineEngine
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.spoil_queues import Queue

ROOT = Path(__file__).resolve().parents[2]
BEFORE = list(range(10))
SINCE = {
    "jumps": [*range(6), *range(12, 20)],
    "jumps-twice": [*range(6), *range(40, 45), *range(50, 53)],
    "from-three": [*range(3, 9), *range(12, 20)],
    "beyond-a-file": [*range(15), *range(30, 55)],
    "single": [0, 1, 7],
    "as-it-should-be": list(range(8)),
}
"""Queue offsets of each topic since it was made anew."""


def write_log(folder: Path) -> tuple[bytes, int]:
    """A segment, and where its second part begins. Other topics go on as they did."""
    number = count()

    def message(topic: str, offset: int | None = None) -> Message:
        k = next(number)
        plain = Message(topic, 0, store_timestamp=EPOCH + 1000 * k, properties={"KEYS": f"k{k}"})
        return dataclasses.replace(plain, queue_offset=offset)

    with LogWriter(folder, 1 << 17) as writer:
        for offset in BEFORE:
            for topic in SINCE:
                writer.append(message(topic, offset))
            writer.append(message("other"))
        cut = writer.end
        # 5.3.3 passes over what lies exactly at the end of what it dispatched: this has no unit and no key.
        writer.append(Message("other", 0, store_timestamp=EPOCH + 10**6, sysflag=ROLLBACK))
        for row in range(max(map(len, SINCE.values()))):
            for topic, offsets in SINCE.items():
                if row < len(offsets):
                    writer.append(message(topic, offsets[row]))
            writer.append(message("other"))
    return (folder / f"{0:020d}").read_bytes(), cut


def dispatch(version: str, store: Path) -> None:
    sizes = [word for name, size in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    subprocess.run(
        [ROOT / "tests/oracle/run", version, "Rebuild", store, "--in-place", *sizes],
        check=True,
        capture_output=True,
        timeout=600,
    )


@pytest.mark.parametrize("version", ["5.3.3", pytest.param("4.9.8", marks=pytest.mark.slow)])
def test_topics_made_anew_whose_offsets_jump(version: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    whole, cut = write_log(store / "commitlog")
    segment = store / "commitlog" / f"{0:020d}"
    segment.write_bytes(whole[:cut].ljust(len(whole), b"\0"))
    dispatch(version, store)
    for topic in SINCE:
        shutil.rmtree(store / "consumequeue" / topic)
    segment.write_bytes(whole)
    dispatch(version, store)
    for engine, size in ((InlineEngine(), 0), (InlineEngine(5, 3), 1500)):
        summary = local_verify(store, engine, broker_version=version[:3], range_size=size, **SMALL)
        assert (summary.error, kinds(summary)) == (None, {})
        orders = {entry["topic"]: entry["order"] for entry in summary.queue_list}
        assert orders.pop("other") == "in order"
        assert orders.pop("as-it-should-be") == "logical"
        assert set(orders.values()) == {"made anew"}
        assert {entry["topic"]: entry["units"] for entry in summary.queue_list}.items() >= {
            (topic, len(offsets)) for topic, offsets in SINCE.items()
        }
        assert any("made anew" in note for note in summary.notes)
    # What is wrong in such a queue is found as in any other.
    queue = Queue(store / "consumequeue" / "jumps" / "0")
    units = list(queue.units)
    place, size, tags = units[0]
    for slot, unit, kind in (
        (4, (0, 0, 0), "queue-unit-missing"),
        (9, (0, 0, 0), "queue-unit-missing"),
        (0, (place + 1, size, tags), "queue-unit-no-record"),
        (14, units[13], "queue-unit-extra"),
    ):
        queue.units = [*units[:slot], unit, *units[slot + 1 :]]
        queue.write()
        assert kinds(local_verify(store, broker_version=version[:3], **SMALL)) == {kind: 1}
