"""What stands for lost bytes in a repaired log: a scan names its stretches, wherever ranges are cut, and derives nothing."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.repair import Demands, lost_pieces
from rocketmq_reindex.storage_format.scan import range_notes
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.encode import COMMIT, PREPARED, ROLLBACK
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.scans import LogScan, MemoryLog, scan_log, scan_range

SEGMENT = 1 << 14
LEAST = 112
"""bytes of the smallest filler with ``__CRC32#``"""


def filled(folder: Path, lost: list[tuple[int, int]]) -> MemoryLog:
    """The log of a folder, with what a repair puts in the place of these stretches of bytes, [low, high)."""
    log = MemoryLog(folder, SEGMENT)
    for low, high in lost:
        start = low // SEGMENT * SEGMENT
        segment = bytearray(log.data[start])
        pieces = lost_pieces(low, high, (start, start + SEGMENT), 1, Demands(property_crc=low % 2 == 0))
        assert pieces
        for piece in pieces:
            segment[piece.low - start : piece.high - start] = b"".join(piece.made()).ljust(piece.size, b"\0")
        log.data[start] = bytes(segment)
    return log


def stretches(scan: LogScan) -> list[tuple[int, int]]:
    """[low, high) of what stands for lost bytes, joined over the borders of ranges and segments."""
    joined: list[tuple[int, int]] = []
    for summary in scan.chain.accepted:
        assert all(sum(one) < two[0] for one, two in zip(summary.lost, summary.lost[1:], strict=False))
        for low, length in summary.lost:
            if joined and joined[-1][1] == low:
                joined[-1] = (joined[-1][0], low + length)
            else:
                joined.append((low, low + length))
    return joined


def some_lost(rng: random.Random, puts: list[Put]) -> list[tuple[int, int]]:
    """Stretches of whole records, some up to their segment's end, and one whole segment."""
    lost: list[tuple[int, int]] = []
    at = 0
    while at < len(puts) - 8:
        at += rng.randrange(1, 20)
        some = puts[at : at + rng.choice((1, 1, 2, 5))]
        at += len(some) + 1
        if not some or some[-1].offset // SEGMENT != some[0].offset // SEGMENT:
            continue
        end = some[-1].offset + some[-1].size
        if end - some[0].offset < LEAST:
            continue
        segment_end = (end // SEGMENT + 1) * SEGMENT
        ends = all(put.offset >= segment_end for put in puts[at - 1 : at])
        lost.append((some[0].offset, segment_end if ends and rng.random() < 0.7 else end))
    whole = (puts[-1].offset // SEGMENT - 1) * SEGMENT
    return [(low, high) for low, high in lost if not whole <= low < whole + SEGMENT] + [(whole, whole + SEGMENT)]


@pytest.mark.parametrize("chunk", [4096, 1 << 20])
def test_stretches(tmp_path: Path, seed: int, chunk: int) -> None:
    rng = random.Random(seed)
    puts = random_log(tmp_path, seed, records=300, segment_size=SEGMENT, features=FEATURES)
    lost = some_lost(rng, puts)
    kept = {put.offset for put in puts if not any(low <= put.offset < high for low, high in lost)}
    log, settings = filled(tmp_path, lost), ScanSettings(lmq=True, chunk=chunk, block_rows=1500)
    expected: list[tuple[int, int]] = []
    for low, high in sorted(lost):
        if expected and expected[-1][1] == low:
            expected[-1] = (expected[-1][0], high)
        else:
            expected.append((low, high))
    whole = scan_log(MemoryLog(tmp_path, SEGMENT), [], settings)
    assert stretches(whole) == []
    for ranges in (0, 3, 40):
        cuts = [rng.randrange(log.segments[-1].data_end) for _ in range(ranges)]
        for changed in (settings, dataclasses.replace(settings, include=("TopicA",))):
            scan = scan_log(log, cuts, changed)
            assert (scan.chain.holes, stretches(scan)) == ([], expected)
            assert list(scan.chain.gaps([])) == [high for _, high in expected]
        scan = scan_log(log, cuts, settings)
        assert scan.units == [unit for unit in whole.units if unit[3] in kept]
        assert scan.items == [item for item in whole.items if item[1] in kept]


def test_no_topic_and_no_message(tmp_path: Path) -> None:
    """Fillers have a topic of their own, which is none of the store: no queue has it."""
    with LogWriter(tmp_path, SEGMENT) as writer:
        puts = [writer.append(Message(body=bytes(100))) for _ in range(10)]
    log = filled(tmp_path, [(put.offset, put.offset + put.size) for put in puts[2:5]])
    scanner = RangeScanner(ScanSettings(want_topics=True))
    spec = log.cut([])[0][0]
    found = scan_range(scanner, spec, log)
    assert (found.summary.queues, found.summary.records, found.summary.unit_records) == (1, 10, 7)
    low, high = puts[2].offset, puts[4].offset + puts[4].size
    assert found.summary.lost == [[low, high - low]]
    assert {unit[0] for unit in found.units} == {"TopicA"}


def test_rolled_back_by_an_application(tmp_path: Path) -> None:
    """Neither a rollback with another FLAG nor a plain record with ours is a filler."""
    with LogWriter(tmp_path, SEGMENT) as writer:
        writer.append(Message(sysflag=ROLLBACK, flag=1))
        writer.append(Message(flag=0x4C4F5354))
        writer.append(Message(sysflag=PREPARED, flag=0x4C4F5354))
        writer.append(Message(sysflag=COMMIT, flag=0x4C4F5354))
    scan = scan_log(MemoryLog(tmp_path, SEGMENT), [], ScanSettings())
    assert [summary.lost for summary in scan.chain.accepted] == [[]]


def test_no_more_stretches_than_a_log_may_have_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_notes, "HOLES_MAX", 3)
    with LogWriter(tmp_path, SEGMENT) as writer:
        puts = [writer.append(Message(body=bytes(30))) for _ in range(20)]
    log = filled(tmp_path, [(put.offset, put.offset + put.size) for put in puts[::2]])
    (summary,) = scan_log(log, [], ScanSettings()).chain.accepted
    assert summary.lost == [[put.offset, put.size] for put in puts[:8:2]]


def test_a_summary_of_an_earlier_version() -> None:
    summary = RangeSummary(1, 0, 10, True, lost=[[3, 4]])
    assert RangeSummary.from_json(summary.to_json()) == summary
    fields = {name: value for name, value in vars(summary).items() if name != "lost"}
    assert RangeSummary.from_json(json.dumps(fields)).lost == []
