"""Spoilt logs: each policy gives what the design says, with its exit status and its place in the summary."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import BuildResult
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore, read_files
from tests.reference.build import reference_build
from tests.tools import spoil
from tests.tools.compare import SMALL, compare, project_settings, tells_of_old_records
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.seeds import cases

Stores = Callable[[str], GoldenStore]
POLICIES = ("fail", "stop", "salvage")
EXIT = {"fail": 5, "stop": 3, "salvage": 3}
TAILS: dict[str, Callable[[Path, int, int], spoil.Spoilt]] = {
    "torn-record": spoil.torn_record,
    "shorten-last": spoil.shorten_last,
    "add-zero-segment": spoil.add_zero_segment,
}
REASONS = {
    "bad-magic": {"bad magic code"},
    "flip-body": {"body CRC does not match"},
    "size-too-small": {"record size differs from the sum of its parts"},
    "size-negative": {"impossible record size"},
    "size-huge": {"impossible record size"},
    "size-zero": {"zeros where a record should start"},
    "zeros": {"zeros where a record should start"},
}
CALM = FEATURES - {"gaps", "evil"}
"""No images of records in bodies, which a search behind damage may take for records."""


def build_and_compare(store: Path, out: Path, size: int = 0, **settings: Any) -> BuildResult:
    """One build, equal to the reference's, that leaves its input alone. ``settings`` by the reference's names."""
    shutil.rmtree(out, ignore_errors=True)
    with guarded(store, out):
        summary = local_build(store, out, InlineEngine(3, 2), range_size=size, **project_settings(settings))
    # The reference gives old records behind damage the offsets of newer ones. tests/builds/test_stale_tail.py tests them.
    if not tells_of_old_records(summary):
        assert compare(summary, out, reference_build(store, **settings)) == [], (settings, size)
    assert out.exists() == (summary.exit in (0, 3))
    assert bool(summary.error) == (summary.exit == 5)
    assert len(summary.warnings) >= len(summary.damage) + len(summary.decisions)
    assert "".join(summary.warnings).isascii()
    assert "".join(summary.warnings).isprintable()
    return summary


def _followed(puts: list[Put]) -> list[int]:
    """Records with another right behind them. Behind the others lies a filler: no search looks for one, it is lost as well."""
    return [n for n in range(len(puts) - 1) if puts[n].offset + puts[n].size == puts[n + 1].offset]


def spoil_one(store: Path, kind: str, record: int, seed: int) -> tuple[spoil.Spoilt, int, int]:
    """Spoil one record; returns what was hit, and the record's (offset, size)."""
    offset, size = spoil.record_offsets(store)[record]
    return spoil.RECORD_KINDS[kind](store, record, seed), offset, size


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", spoil.RECORD_KINDS)
def test_one_spoilt_record(kind: str, policy: str, seed: int, tmp_path: Path) -> None:
    """Everything before and behind it is whole: salvage brings back all records but this one."""
    check_one(kind, policy, seed, tmp_path)


def test_a_position_in_the_last_segment(tmp_path: Path) -> None:
    """No broker checks it: the log is not cut there (``CommitLog.checkMessageAndReturnSize``)."""
    check_one("flip-header", "salvage", 7290931, tmp_path)


def check_one(kind: str, policy: str, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    whole = tmp_path / "whole"
    puts = random_log(whole / "commitlog", seed, records=120, segment_size=1 << 14, features=CALM)
    for crc, ranges in (("body", 0), ("all", 1500)):
        store = spoil.copy_store(whole, tmp_path / crc)
        record = rng.choice([n for n in _followed(puts) if n >= 10 and puts[n].message.body])
        hit, offset, size = spoil_one(store, kind, record, seed)
        summary = build_and_compare(store, tmp_path / "out", ranges, on_damage=policy, crc=crc, lmq=True, **SMALL)
        assert summary.exit == EXIT[policy]
        (damage,) = (entry for entry in summary.damage if "out of line" not in entry["reason"])
        assert (damage["segment"], damage["offset"]) == (hit.segment, offset)
        assert damage["length"] == size
        assert damage["reason"] in REASONS.get(kind, {damage["reason"]})
        last_segment = max(int(path.name) for path in (store / "commitlog").iterdir())
        told = any("a broker that starts cuts its log" in warning for warning in summary.warnings)
        position, length = spoil.SEEN_FIELDS["PHYSICALOFFSET"]
        is_seen = kind != "flip-header" or not position <= hit.offset - offset < position + length
        assert told == (policy == "salvage" and offset >= last_segment and is_seen)
        if policy != "fail":
            assert summary.records == (record if policy == "stop" else 119)
        else:
            assert f"offset {offset}" in (summary.error or "")


@pytest.mark.parametrize("kind", spoil.RECORD_KINDS)
def test_a_spoilt_golden_store(kind: str, seed: int, golden_store: Stores, tmp_path: Path) -> None:
    source = golden_store("v2-ipv6-batch")
    store = spoil.copy_store(source.path, tmp_path / "store")
    rng = random.Random(seed)
    record = rng.randrange(100, 1700)
    while kind == "flip-body" and not spoil.has_body(store, record):
        record = rng.randrange(100, 1700)
    hit, offset, _ = spoil_one(store, kind, record, seed)
    for policy in rng.sample(POLICIES, cases(3, 1)):
        for crc in ("body", "all"):
            settings = source.broker_settings() | {"on_damage": policy, "crc": crc, "queue_order": "logical"}
            summary = build_and_compare(store, tmp_path / "out", 1 << 18 if crc == "all" else 0, **settings)
            assert summary.exit == EXIT[policy]
            assert (summary.damage[0]["segment"], summary.damage[0]["offset"]) == (hit.segment, offset)
            if policy != "fail":
                assert summary.records == (record if policy == "stop" else 1884)


@pytest.mark.parametrize("name", ["wide-keys", "basic-4.9"])
def test_evil_bodies_around_damage(name: str, seed: int, golden_store: Stores, tmp_path: Path) -> None:
    """A damaged record whose own length cannot be trusted may hold images of records: then as the reference finds them."""
    source = golden_store(name)
    rng = random.Random(seed)
    store = spoil.copy_store(source.path, tmp_path / "store")
    count = len(spoil.record_offsets(store))
    for number in sorted(rng.sample(range(count), k=4), reverse=True):
        # From the end, since a walk ends at the first that is spoilt.
        spoil.spoil_any(store, number, rng)
    for policy in rng.sample(POLICIES, cases(3, 1)):
        settings = source.broker_settings() | {"on_damage": policy, "queue_order": "logical"}
        build_and_compare(store, tmp_path / "out", 1 << 18, **settings)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", TAILS)
def test_what_a_crash_leaves_is_cut(kind: str, policy: str, seed: int, golden_store: Stores, tmp_path: Path) -> None:
    """A torn tail, a short last file, a segment allocated ahead: normal, whatever the policy."""
    for number, source in enumerate(random.Random(seed).sample((None, golden_store("trimmed-head")), cases(2, 1))):
        store = tmp_path / f"{number}"
        if source is None:
            records = len(random_log(store / "commitlog", seed, records=150, features=CALM))
        else:
            spoil.copy_store(source.path, store)
            records = len(spoil.record_offsets(store))
        offset, size = spoil.record_offsets(store)[-1]
        hit = TAILS[kind](store, -1, seed)
        sizes = SMALL if source is None else source.sizes()
        for crc, ranges in (("body", 3000 if source is None else 1 << 17), ("all", 0)):
            summary = build_and_compare(store, tmp_path / "out", ranges, on_damage=policy, crc=crc, **sizes)
            assert summary.exit == 0
            assert summary.records == records - (kind != "add-zero-segment")
            if kind == "add-zero-segment":
                assert summary.damage == []
            else:
                (torn,) = summary.damage
                assert (torn["offset"], torn["segment"]) == (offset, hit.segment)
                assert torn["reason"].startswith("torn tail: ")
                assert torn["length"] <= size
            short = any("taken as torn" in warning for warning in summary.warnings)
            assert short == (kind == "shorten-last")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_bad_last_record_is_cut_whole(policy: str, tmp_path: Path) -> None:
    """Its length holds, so the zeros at its end (no properties) are its own, not the log's empty rest."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 13) as writer:
        for number in range(10):
            put = writer.append(Message(body_crc=7 if number == 9 else None))
    for size in (0, 500, 100, 33):
        summary = build_and_compare(tmp_path / "store", tmp_path / "out", size, on_damage=policy, **SMALL)
        assert [(d["offset"], d["length"]) for d in summary.damage] == [(put.offset, put.size)]
        assert (summary.exit, summary.records) == (0, 9)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_missing_segment(policy: str, seed: int, golden_store: Stores, tmp_path: Path) -> None:
    source = golden_store("basic-5.3")
    # The golden store is the same for every seed.
    for number, (name, middle) in enumerate((("", 2), ("basic-5.3", 2))[: cases(2, 1)]):
        store = tmp_path / f"{number}"
        if name:
            spoil.copy_store(source.path, store)
        else:
            random_log(store / "commitlog", seed, records=250, features=FEATURES)
        sizes = source.sizes() if name else SMALL
        before = spoil.record_offsets(store)
        hit = spoil.remove_segment(store, middle)
        for crc in random.Random(seed).sample(("body", "all"), cases(2, 1)):
            settings = {"on_damage": policy, "crc": crc, "queue_order": "broker", **sizes}
            summary = build_and_compare(store, tmp_path / "out", 1 << 17 if name else 5000, **settings)
            assert summary.exit == EXIT[policy]
            assert summary.damage[0] == {
                "segment": f"{hit.offset:020d}", "offset": hit.offset, "length": hit.length, "reason": "segment missing",
            }  # fmt: skip
            below = sum(offset < hit.offset for offset, _ in before)
            behind = sum(offset >= hit.offset + hit.length for offset, _ in before)
            assert policy == "fail" or summary.records == below + (behind if policy == "salvage" else 0)


@pytest.mark.parametrize("part", range(4))
def test_random_damage(part: int, seed: int, tmp_path: Path) -> None:
    """Several places at once, in logs with every oddity, against the reference."""
    rng = random.Random(seed + part)
    for number in range(cases(12, 2)):
        store = tmp_path / f"{number}"
        features = FEATURES if rng.random() < 0.6 else FEATURES - {"gaps"}
        random_log(store / "commitlog", rng.randrange(2**31), records=rng.choice((30, 120)), features=features)
        offsets = spoil.record_offsets(store)
        for record in sorted(rng.sample(range(len(offsets)), k=rng.randrange(1, 5)), reverse=True):
            spoil.spoil_any(store, record, rng)
        if rng.random() < 0.3:
            spoil.add_zero_segment(store)
        settings = SMALL | {
            "on_damage": rng.choice((*POLICIES, "salvage")), "crc": rng.choice(("body", "all", "none")),
            "queue_order": rng.choice(("logical", "logical", "broker", "fail")), "lmq": rng.random() < 0.6,
            "checkpoint": rng.choice(("safe", "broker")),
        }  # fmt: skip
        build_and_compare(store, tmp_path / "out", rng.choice((0, 1 << 14, 3333, 911)), **settings)


def test_every_undamaged_record_comes_back(seed: int, tmp_path: Path) -> None:
    """Many spoilt records in one log, some of them neighbours."""
    rng = random.Random(seed)
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", seed, records=300, features=CALM)
    followed = _followed(puts)
    some = rng.randrange(len(followed) - 3)
    spoilt = sorted({*rng.sample(followed, k=40), *followed[some : some + 3]}, reverse=True)
    for record in spoilt:
        spoil.spoil_any(store, record, rng)
    summary = build_and_compare(store, tmp_path / "out", 5000, on_damage="salvage", queue_order="broker", **SMALL)
    assert (summary.exit, summary.records) == (3, 300 - len(spoilt))
    lost = {offset for entry in summary.damage for offset in range(entry["offset"], entry["offset"] + entry["length"])}
    assert lost == {at for n in spoilt for at in range(puts[n].offset, puts[n].offset + puts[n].size)}


def _nine_hundred(store: Path) -> list[int]:
    """900 records in 5 segments, 228 of them in the third; record 450 lies in the second. Returns their offsets."""
    offsets = []
    with LogWriter(store / "commitlog", 1 << 16) as writer:
        for number in range(900):
            if number in (300, 500, 728, 828):
                writer.roll()
            message = Message(queue_id=number % 4, properties={"KEYS": f"k{number}", "TAGS": "t"}, body=b"body")
            offsets.append(writer.append(message).offset)
    assert len(spoil.segment_paths(store)) == 5
    return offsets


STOPS: dict[str, tuple[Callable[[Path], Any] | None, int, int]] = {
    "torn last record": (lambda store: spoil.torn_record(store), 899, 0),
    "flipped byte in a body": (lambda store: spoil.flip_body(store, 450), 450, 3),
    "bad magic": (lambda store: spoil.bad_magic(store, 450), 450, 3),
    "garbage": (lambda store: spoil.garbage(store, 450), 450, 3),
    "negative size": (lambda store: spoil.size_negative(store, 450), 450, 3),
    "zeros": (lambda store: spoil.zeros(store, 450), 450, 3),
    "size 4 too small": (lambda store: spoil.size_too_small(store, 450), 450, 3),
    "size 0x7FFFFFFF": (lambda store: spoil.size_huge(store, 450), 450, 3),
    # The broker gives 672, the hole ignored: here the log ends at the hole.
    "a middle segment missing": (lambda store: spoil.remove_segment(store, 2), 500, 3),
    "one more segment, all zeros": (lambda store: spoil.add_zero_segment(store), 900, 0),
}
"""FORMAT's table, the column of 5.3: (damage, records, exit)."""


@pytest.mark.parametrize("what", STOPS)
@pytest.mark.parametrize("size", [0, 4000])
def test_stop_is_the_brokers_recovery(what: str, size: int, tmp_path: Path) -> None:
    change, records, status = STOPS[what]
    store = tmp_path / "store"
    offsets = _nine_hundred(store)
    assert change is not None
    change(store)
    summary = build_and_compare(store, tmp_path / "out", size, on_damage="stop", **SMALL)
    assert (summary.exit, summary.records, summary.units) == (status, records, records)
    assert (summary.items, summary.tag_items) == (2 * records, records)
    if status:
        (damage,) = summary.damage
        assert damage["offset"] == (offsets[450] if records == 450 else 2 << 16)


@pytest.mark.parametrize(("crc", "status", "records"), [("body", 0, 900), ("none", 0, 900), ("all", 3, 450)])
def test_a_flipped_bit_in_the_properties(crc: str, status: int, records: int, tmp_path: Path) -> None:
    """Nothing sums the properties up but ``__CRC32#``, where a record has it."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 16) as writer:
        for number in range(900):
            put = writer.append(Message(body=b"body", properties={"KEYS": f"k{number}"}, crc_property=True))
            if number == 450:
                flipped = put.offset + put.size - 22  # the last digit of the key
    path = max(p for p in spoil.segment_paths(store) if int(p.name) <= flipped)
    data = bytearray(path.read_bytes())
    assert data[flipped - int(path.name)] in b"0123456789"
    data[flipped - int(path.name)] ^= 1
    path.write_bytes(data)
    for size in (0, 3000):
        summary = build_and_compare(store, tmp_path / "out", size, on_damage="stop", crc=crc, **SMALL)
        assert (summary.exit, summary.records) == (status, records)
    if status:
        assert "__CRC32#" in summary.damage[0]["reason"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("segments", [0, 1, 3])
def test_stores_without_a_record(segments: int, policy: str, tmp_path: Path) -> None:
    """No segment at all, or nothing but zeros: empty folders and a checkpoint of zeros."""
    store, out = tmp_path / "store", tmp_path / "out"
    (store / "commitlog").mkdir(parents=True)
    for number in range(segments):
        (store / "commitlog" / f"{number << 14:020d}").write_bytes(bytes(1 << 14))
    for size in (0, 1000):
        summary = build_and_compare(store, out, size, on_damage=policy, **SMALL)
        assert (summary.exit, summary.records, summary.damage) == (0, 0, [])
        assert read_files(out) == {"checkpoint": bytes(4096)}
        assert sorted(path.name for path in out.iterdir()) == ["checkpoint", "consumequeue", "index", "reindex.json"]
        assert not any((out / "consumequeue").iterdir())
        assert not any((out / "index").iterdir())


def test_a_hole_in_the_middle_of_zeros(tmp_path: Path) -> None:
    """Zeros in one segment and records in the next are damage, not the log's end."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(100):
            writer.append(Message(body=bytes(200), queue_offset=number))
    second = spoil.segment_paths(store)[1]
    count = sum(offset // (1 << 13) == 1 for offset, _ in spoil.record_offsets(store))
    second.write_bytes(bytes(1 << 13))
    for policy in POLICIES:
        for size in (0, 700):
            summary = build_and_compare(store, tmp_path / "out", size, on_damage=policy, queue_order="broker", **SMALL)
            assert summary.exit == EXIT[policy]
            assert (summary.damage[0]["offset"], summary.damage[0]["length"]) == (1 << 13, 1 << 13)
            assert policy != "salvage" or summary.records == 100 - count
