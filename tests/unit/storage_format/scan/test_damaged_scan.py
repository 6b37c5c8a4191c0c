"""Damaged logs, scanned in ranges cut anywhere: what is kept and what is lost is what reading byte by byte finds."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.command.option import parse_delay_levels
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.times import DELAY_LEVELS
from tests.reference.log import MISSING, merged
from tests.tools import spoil
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, encode, random_log
from tests.tools.scans import MemoryLog, damage_spans, expected_items, expected_units, reference_walk, scan_log
from tests.tools.seeds import cases

SEGMENT = 1 << 15
DELAYS = parse_delay_levels(DELAY_LEVELS)


def spoil_some(store: Path, rng: random.Random) -> None:
    """One to four places of the log, and in some logs a whole segment or the end of the last one."""
    where = spoil.record_offsets(store)
    for _ in range(rng.randrange(1, 5)):
        offset, size = rng.choice((rng.choice(where), where[-1]))
        path = spoil.segment_paths(store)[offset // SEGMENT - where[0][0] // SEGMENT]
        data, at = bytearray(path.read_bytes()), offset % SEGMENT
        kind = rng.choice(("flip", "flip", "head", "size", "zeros", "garbage", "torn"))
        if kind in ("flip", "head"):
            data[at + rng.randrange(size if kind == "flip" else 8)] ^= 1 << rng.randrange(8)
        elif kind == "size":
            value = rng.choice((0, size - 4, size + 4, -size, 0x7FFFFFFF, rng.randrange(1 << 15), SEGMENT - at))
            data[at : at + 4] = struct.pack(">i", value)
        elif kind in ("zeros", "garbage"):
            low, length = rng.randrange(size), rng.choice((1, size, 3 * size))
            data[at + low : at + low + length] = bytes(length) if kind == "zeros" else rng.randbytes(length)
        else:
            data[at + rng.randrange(size) :] = b""
        path.write_bytes(bytes(data[:SEGMENT]).ljust(SEGMENT, b"\0"))
    whole = len(spoil.segment_paths(store))
    if whole > 2 and rng.random() < 0.3:
        spoil.remove_segment(store, rng.randrange(1, whole - 1))
    if rng.random() < 0.2:
        spoil.add_zero_segment(store)
    elif rng.random() < 0.3:
        path = spoil.segment_paths(store)[-1]
        path.write_bytes(path.read_bytes()[: rng.randrange(1, SEGMENT)])


def places(rng: random.Random, log: MemoryLog) -> list[int]:
    first, last = log.segments[0].start, log.segments[-1].data_end
    around = [base + len(data) - near for base, data in log.data.items() for near in (1, 5, 8, 90)]
    return rng.sample(around, k=len(around) // 2) + [rng.randrange(first, last) for _ in range(rng.choice((0, 2, 12, 60)))]


@pytest.mark.parametrize("part", range(4))
def test_salvage(tmp_path: Path, seed: int, part: int) -> None:
    rng = random.Random(seed + part)
    for n in range(cases(12, 3)):
        store = tmp_path / str(n)
        features = rng.choice((FEATURES, FEATURES - {"evil"}, frozenset({"evil"})))
        random_log(store / "commitlog", rng.randrange(2**31), records=120, segment_size=SEGMENT, features=features)
        spoil_some(store, rng)
        truth = reference_walk(store / "commitlog", SEGMENT)
        log = MemoryLog(store / "commitlog", SEGMENT)
        print(f"log {n}: {[(s.name, s.data_end) for s in log.segments]}, damage {truth.damage}")
        whole = scan_log(log, [], ScanSettings(delays=DELAYS, chunk=4096))
        assert whole.units == expected_units(truth.records)
        assert whole.items == expected_items(truth.records)
        tail, torn = truth.torn_tail, whole.chain.torn
        last_good = max((record.offset for record in truth.records), default=-1)
        if not any(d.reason == MISSING and d.offset > last_good for d in truth.damage):
            # Behind a missing segment with no good record after it, the reference takes a torn tail for damage, too.
            assert damage_spans(whole) == merged(truth.damage)
            assert (torn and torn.offset) == (tail and tail.offset)
        for cuts in (places(rng, log), places(rng, log)):
            scan = scan_log(log, cuts, ScanSettings(delays=DELAYS, chunk=4096))
            assert (scan.units, scan.items) == (whole.units, whole.items), f"cut at {sorted(cuts)}"
            assert (scan.chain.holes, scan.chain.torn) == (whole.chain.holes, torn), f"cut at {sorted(cuts)}"


def test_stop(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for n in range(cases(12, 3)):
        store = tmp_path / str(n)
        random_log(store / "commitlog", rng.randrange(2**31), records=120, segment_size=SEGMENT, features=FEATURES)
        spoil_some(store, rng)
        truth = reference_walk(store / "commitlog", SEGMENT)
        log = MemoryLog(store / "commitlog", SEGMENT)
        first = truth.damage[0].offset if truth.damage else 1 << 62
        before = [r for r in truth.records if r.offset < first]
        print(f"log {n}: {[(s.name, s.data_end) for s in log.segments]}, damage {truth.damage}")
        settings = ScanSettings(delays=DELAYS, chunk=4096, stop_at_damage=True)
        hole = scan_log(log, [], settings).chain.holes[:1]
        assert [h.offset for h in hole] == [d.offset for d in truth.damage[:1]]
        for cuts in ([], places(rng, log)):
            scan = scan_log(log, cuts, settings)
            assert scan.chain.holes[:1] == hole, f"cut at {sorted(cuts)}"
            assert [u for u in scan.units if u[3] < first] == expected_units(before)
            assert [i for i in scan.items if i[1] < first] == expected_items(before)


def test_a_framed_bad_record_is_not_looked_into(tmp_path: Path) -> None:
    """Its body holds a record that says it lies there; a range that begins inside the body must not bring it back."""
    with LogWriter(tmp_path) as writer:
        writer.append(Message())
        start = writer.end
        inner = encode(Message(topic="Evil"), start + 88)
        bad = writer.append(Message(body=inner + b"x" * 50, body_crc=1))
        writer.append(Message())
    log, truth = MemoryLog(tmp_path, 1 << 16), reference_walk(tmp_path, 1 << 16)
    for stop in (False, True):
        for cuts in ([], [start + 3], [start + 88], [start + 88 + len(inner)]):
            scan = scan_log(log, cuts, ScanSettings(stop_at_damage=stop))
            assert stop or scan.units == expected_units(truth.records)
            holes = [(h.offset, h.length) for h in scan.chain.holes]
            assert holes == [(bad.offset, bad.size)], f"cut at {cuts}, stop {stop}"


@pytest.mark.parametrize("left", range(1, 16))
def test_a_tail_of_few_bytes(tmp_path: Path, left: int) -> None:
    """The file ends within the first bytes of a record: a torn tail, whether a range begins there or not."""
    with LogWriter(tmp_path) as writer:
        writer.append(Message())
        end = writer.end
        writer.append(Message())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[: end + left])
    log, truth = MemoryLog(tmp_path, 1 << 16), reference_walk(tmp_path, 1 << 16)
    for cuts in ([], [end], [end + left - 1], [end - 1, end]):
        for chunk in (4096, end):
            scan = scan_log(log, cuts, ScanSettings(chunk=chunk))
            torn = scan.chain.torn
            assert scan.units == expected_units(truth.records)
            assert scan.chain.holes == []
            tail = truth.torn_tail
            assert (torn and (torn.offset, torn.length)) == (tail and (tail.offset, tail.length)), f"{cuts}, chunk {chunk}"


@pytest.mark.parametrize("first", [b"\x01", b"\xff", b"\x7f\xff"])
def test_a_tail_of_few_bytes_before_zeros(tmp_path: Path, first: bytes) -> None:
    """It is torn up to its last byte that is not zero."""
    with LogWriter(tmp_path) as writer:
        writer.append(Message())
        end = writer.end
    (path,) = tmp_path.iterdir()
    path.write_bytes((path.read_bytes()[:end] + first).ljust(1 << 16, b"\0"))
    log, truth = MemoryLog(tmp_path, 1 << 16), reference_walk(tmp_path, 1 << 16)
    assert truth.torn_tail is not None
    assert (truth.torn_tail.offset, truth.torn_tail.length) == (end, len(first))
    for cuts in ([], [end], [end + 1], [end + 4000]):
        scan = scan_log(log, cuts, ScanSettings(chunk=4096))
        torn = scan.chain.torn
        assert (torn and (torn.offset, torn.length), scan.chain.holes) == ((end, len(first)), []), cuts


def test_a_filler_whose_first_bytes_end_a_range(tmp_path: Path) -> None:
    """They are zeros, and nothing else of the range before is looked at: that is no zero tail."""
    with LogWriter(tmp_path, 1 << 12) as writer:
        writer.append(Message(body=b"x" * 2000))
        filler = writer.end
        writer.roll()
        writer.append(Message())
    log, truth = MemoryLog(tmp_path, 1 << 12), reference_walk(tmp_path, 1 << 12)
    for end in range(filler, filler + 10):
        scan = scan_log(log, [1000, end], ScanSettings())
        assert (scan.chain.holes, scan.chain.torn) == ([], None), f"cut at {end}"
        assert scan.units == expected_units(truth.records)
