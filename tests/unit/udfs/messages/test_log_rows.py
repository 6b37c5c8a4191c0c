"""Blocks of records that go on behind damage: the rows and the damage are those of blocks that end with it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.record.layout import AT_STORE_TIMESTAMP
from rocketmq_reindex.storage_format.scan import range_notes
from rocketmq_reindex.storage_format.scan.ranges import Hole, RangeSummary
from rocketmq_reindex.udfs.messages import batches, log_rows
from tests.tools.dledger_log import HEAD, as_dledger
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import random_log
from tests.tools.stale_log import stale_log, write_at

SCHEMA = batches.fields(body=True, damage=False)
Read = tuple[list[dict[str, Any]], list[Hole], list[int]]


def read(folder: Path, chunk: int, *, apart: bool = False) -> Read:
    """The rows of a log, its damage, and where the records of each segment end. ``apart``: blocks end with damage."""
    reader = log_rows.LogRowReader(SCHEMA, (str(folder),), range_size=1 << 28, chunk=chunk)
    rows, holes, ends = list[dict[str, Any]](), list[Hole](), list[int]()
    for log_range in reader.plan():
        low = log_range.spec.low
        way = log_rows.ScanWay(RangeSummary(-1, low, low, True, end=low)) if apart else None
        for block in reader.blocks(log_range, holes, ends, way):
            rows += [row for batch in reader.batches.of_block(block) for row in batch.to_pylist()]
    return rows, holes, ends


def spoil(path: Path, places: list[int], rng: random.Random) -> None:
    """Damage of every kind around these bytes of a file: lengths, magics, offsets, bodies; bytes of the record before it."""
    with path.open("r+b") as file:
        for place in places:
            file.seek(max(0, place + rng.choice((0, 4, 8, 20, 28, 91, 95, -3, rng.randrange(200)))))
            file.write(rng.choice((b"\0", b"\xda\xa3\x20\xa7", rng.randbytes(rng.randrange(1, 60)))))


def logs(folder: Path, rng: random.Random) -> list[tuple[Path, int]]:
    """A log with all that a record can have, one with old records behind its end, and one of DLedger with old entries.

    Each has the offset up to which it is to be spoilt: of old records more is told where damage among them is known at once.
    """
    seed = rng.randrange(1 << 30)
    any_log = folder / "any" / "commitlog"
    random_log(any_log, seed, records=120)
    stale = stale_log(folder / "stale", seed)
    with LogWriter(folder / "plain" / "commitlog", 1 << 15) as writer:
        for k in range(60):
            writer.append(Message("T", body=rng.randbytes(rng.randrange(300)), store_timestamp=EPOCH + k))
    entries = as_dledger(folder / "plain" / "commitlog", folder / "node", 1 << 15)
    data = folder / "node" / "dledger-n0" / "data"
    path = data / f"{0:020d}"
    whole = bytearray(path.read_bytes())
    for index in rng.sample(range(10, 50), 6):
        at, _ = entries[index]
        # An entry of an older index, as those that a node leaves where it truncates its log; others follow on it here.
        whole[at + 8 : at + 16] = (index - 9).to_bytes(8, "big")
        time_at = at + HEAD + AT_STORE_TIMESTAMP
        whole[time_at : time_at + 8] = (EPOCH - 1).to_bytes(8, "big")
    path.write_bytes(whole)
    return [(any_log, 1 << 30), (folder / "stale" / "commitlog", stale.end), (data, 1 << 30)]


def test_damage_within_blocks(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(8):
        for log, reach in logs(tmp_path / str(number), rng):
            for path in sorted(log.iterdir()):
                size = path.stat().st_size
                spoil(path, [rng.randrange(min(size // 2, reach)) for _ in range(rng.choice((0, 1, 3, 12)))], rng)
            # An entry that is older says more with what follows on it.
            found = read(log, 1 << 20, apart=log.name != "data")
            assert read(log, 1 << 20) == read(log, 700) == found


def test_a_block_before_a_torn_end(tmp_path: Path) -> None:
    """What the file has behind the bytes in memory is too short for a record: the block before it goes out, and is sound."""
    with LogWriter(tmp_path / "commitlog", 1 << 12) as writer:
        for k in range(4):
            writer.append(Message("T", body=b"%04d" % k))
    (path,) = (tmp_path / "commitlog").iterdir()
    whole, last = path.read_bytes(), writer.puts[-1].offset
    for rest in (6, 80, 94):
        path.write_bytes(whole[: last + rest])
        write_at(tmp_path, last + 4, b"\0\0")
        found = read(path.parent, 1 << 20)
        assert [row["commitLogOffset"] for row in found[0]] == [put.offset for put in writer.puts[:-1]]
        # A chunk ends at each byte of it.
        assert all(read(path.parent, chunk) == found for chunk in range(last, last + rest))


def test_a_block_goes_on_behind_damage(tmp_path: Path) -> None:
    """Each block is made into rows by itself: one for each damage would take a millisecond."""
    with LogWriter(tmp_path / "commitlog", 1 << 20) as writer:
        for k in range(1000):
            writer.append(Message("T", body=b"%04d" % k))
    for put in writer.puts[1::2]:
        write_at(tmp_path, put.offset + 4, b"\0\0\0\0")
    reader, holes = log_rows.LogRowReader(SCHEMA, (str(tmp_path / "commitlog"),)), list[Hole]()
    (log_range,) = reader.plan()
    sizes = [len(block.messages.phy_offset) for block in reader.blocks(log_range, holes)]
    assert (sum(sizes), len(holes), len(sizes) < 5) == (500, 500, True)


def test_more_damage_than_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last damage that is told says so, in each reader of the log; all records are read."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for k in range(60):
            writer.append(Message("T", body=b"%04d" % k))
    for put in writer.puts[1:41:2]:
        write_at(tmp_path / "store", put.offset + 4, b"\0\0\0\0")
    for limit, listed in ((20, 20), (4, 5)):
        monkeypatch.setattr(range_notes, "HOLES_MAX", limit)
        rows, holes, _ = read(tmp_path / "store" / "commitlog", 1 << 20)
        says = f"more than {limit} damaged places: no more of them are told"
        assert (len(rows), len(holes), holes[-1].reason.endswith(says)) == (40, listed, limit == 4)
        damage = [row["damage"] for batch in rr.messages(tmp_path / "store") for row in batch.to_pylist() if row["damage"]]
        assert damage == [hole.reason for hole in holes]
        assert main(["export", str(tmp_path / "store"), "--format", "jsonl", "--to", str(tmp_path / f"{limit}.jsonl")]) == 3
        assert (says in capsys.readouterr().err) == (limit == 4)
