"""A small log that asks for much: damaged places without end would fill the driver's memory, far queues the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import decisions
from rocketmq_reindex.storage_format.queue.order import BREAKS_MAX
from rocketmq_reindex.storage_format.scan import range_notes
from rocketmq_reindex.storage_format.scan.range_notes import HOLES_MAX
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


@pytest.mark.parametrize(("limit", "exits"), [(20, [3, 5, 3]), (19, [5, 5, 3])])
def test_more_damaged_places_than_any_disk_makes(
    limit: int, exits: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogWriter(tmp_path / "store" / "commitlog") as writer:
        for number in range(41):
            writer.append(Message(body=b"x", queue_offset=number // 2, body_crc=5 if number % 2 else None))
    assert HOLES_MAX == 100_000
    monkeypatch.setattr(range_notes, "HOLES_MAX", limit)
    monkeypatch.setattr(decisions, "HOLES_MAX", limit)
    for policy, status in zip(("salvage", "fail", "stop"), exits, strict=True):
        summary = local_build(tmp_path / "store", tmp_path / policy, None, on_damage=policy, hash_slots=50, index_items=60)
        assert summary.exit == status, summary.error
        if status == 5:
            assert summary.error is not None
            assert "damage at offset 98: body CRC does not match" in summary.error
            assert ("more than 19" in summary.error) == (limit == 19)
            assert len(summary.damage) == (1 if limit == 19 else 20)
        else:
            assert len(summary.damage) == (20 if policy == "salvage" else 1)


@pytest.mark.parametrize("policy", ["logical", "broker", "fail"])
def test_more_breaks_in_a_queue_than_damage_explains(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogWriter(tmp_path / "store" / "commitlog") as writer:
        for number in range(21):
            writer.append(Message(queue_offset=number * 7))
    assert BREAKS_MAX >= 2 * HOLES_MAX
    for limit in (20, 19):
        monkeypatch.setattr("rocketmq_reindex.udfs.queue_order.BREAKS_MAX", limit)
        summary = local_build(
            tmp_path / "store", tmp_path / f"out-{limit}", None, queue_order=policy, on_damage="salvage", hash_slots=50,
            index_items=60,
        )  # fmt: skip
        assert ("its offsets break 20 times" in str(summary.error)) == (limit == 19)
        assert summary.exit == (5 if limit == 19 else {"logical": 0, "broker": 0, "fail": 5}[policy])


def test_pre_blank_that_the_disk_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue's first unit at the end of its first file costs the whole file: 95 bytes of log, 6 MB of disk."""
    with LogWriter(tmp_path / "store" / "commitlog") as writer:
        for number in range(30):
            writer.append(Message(topic=f"T{number}", queue_offset=299_999))
    monkeypatch.setattr(files, "free_bytes", lambda _: 170_000_000)
    summary = local_build(tmp_path / "store", tmp_path / "out", None, hash_slots=50, index_items=60)
    assert (summary.exit, (tmp_path / "out").exists()) == (1, False)
    assert "needs about 180," in str(summary.error)
    monkeypatch.setattr(files, "free_bytes", lambda _: 190_000_000)
    summary = local_build(tmp_path / "store", tmp_path / "out", None, hash_slots=50, index_items=60)
    assert (summary.exit, summary.units) == (0, 30)
