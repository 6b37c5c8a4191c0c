"""``verify`` calls damage what ``build`` calls damage. ``tests/fault/test_agreement.py`` compares them on random logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.queue import order
from tests.fault.agreement import LOGS, check, disagreements
from tests.tools import spoil
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


@pytest.mark.slow
@pytest.mark.parametrize("kind", LOGS)
def test_they_agree(kind: str, seed: int, tmp_path: Path) -> None:
    """tests/fault has these logs, and more of each kind."""
    check(kind, seed, range(12 if kind == "odd queues" else 3), tmp_path)


def written(store: Path, offsets: list[int], topic: str = "T") -> Path:
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for number, offset in enumerate(offsets):
            writer.append(Message(topic=topic, queue_offset=offset, properties={"KEYS": f"k{number}"}))
    return store


@pytest.mark.parametrize("only", [("log",), ("consumequeue",), ("consumequeue", "index", "checkpoint", "log")])
def test_a_wrong_queue_offset(only: tuple[str, ...], tmp_path: Path) -> None:
    """One byte that no checksum covers: a broker appends the unit all the same, and consumers get the wrong number."""
    store = written(tmp_path / "store", list(range(300)))
    place, size = spoil.record_offsets(store)[257]
    path = max(path for path in spoil.segment_paths(store) if int(path.name) <= place)
    data = bytearray(path.read_bytes())
    data[place - int(path.name) + 22] ^= 8
    path.write_bytes(data)
    # As a broker leaves the store.
    out = tmp_path / "out"
    assert local_build(store, out, queue_order="broker", **SMALL).exit == 0
    assert local_build(store, tmp_path / "refused", **SMALL).exit == 5
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), only=only, **SMALL)
    assert (found.exit, kinds(found)) == (4, {"log-out-of-line": 1})
    assert found.damage == [
        {"segment": path.name, "offset": place, "length": size, "reason": "queue offset out of line (queue T/0)"}
    ]
    assert disagreements(store, tmp_path / "again") == []


def test_a_wrong_queue_offset_at_a_queues_end(tmp_path: Path) -> None:
    """It has no unit, which a build says by its exit status; both tell it in the same words, and call it no damage."""
    store = written(tmp_path / "store", [*range(20), 1 << 40])
    out = tmp_path / "out"
    built = local_build(store, out, **SMALL)
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), **SMALL)
    (told,) = built.warnings
    assert (built.exit, found.exit) == (3, 0)
    assert "queue T/0" in told
    assert told in found.notes


def test_a_queue_whose_beginning_is_lost_in_a_later_file(tmp_path: Path) -> None:
    """Both fill from the beginning of the file that has the queue's first record, and no other."""
    with LogWriter(tmp_path / "store/commitlog", 1 << 12) as writer:
        for topic, first in (("A", 0), ("B", 25)):
            for number in range(8):
                writer.append(Message(topic=topic, queue_offset=first + number, properties={"KEYS": f"k{number}"}))
    spoil.garbage(tmp_path / "store", 0)
    assert disagreements(tmp_path / "store", tmp_path / "out") == []


def test_more_missing_offsets_than_a_build_fills(tmp_path: Path) -> None:
    """verify names them, and the build that it advises fills them."""
    store = written(tmp_path / "store", [*range(3), *range(50, 53), *range(90, 93)])
    assert local_build(store, tmp_path / "out", max_fill=20, **SMALL).exit == 5
    found = local_verify(store, max_fill=20, **SMALL)
    assert kinds(found)["log-queue-gaps"] == 84
    assert "--max-fill 84" in (found.mend or "")
    assert disagreements(store, tmp_path / "again", max_fill=20) == []


def test_a_queue_that_breaks_more_often_than_damage_explains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketmq_reindex.udfs.queue_order.BREAKS_MAX", 3)
    assert order.BREAKS_MAX > 3
    store = written(tmp_path / "store", [0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    assert local_build(store, tmp_path / "out", **SMALL).exit == 5
    found = local_verify(store, only=("log",), **SMALL)
    assert (found.exit, kinds(found)) == (4, {"log-out-of-line": 1})
