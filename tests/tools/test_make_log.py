"""Tools and reference agree: random logs parse back, each kind of damage is found where it is."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.stores import GoldenStore
from tests.reference import log
from tests.reference.build import ReferenceBuild, reference_build
from tests.reference.java import decode_utf8
from tests.reference.settings import Settings
from tests.tools import spoil
from tests.tools.encode import COMMIT, PREPARED, encode
from tests.tools.make_log import FEATURES, LogWriter, Message, Put, random_log

SMALL = {"cq_file_size": 400, "hash_slots": 50, "index_items": 120}


def _build(store: Path, **settings: Any) -> ReferenceBuild:
    return reference_build(store, **(SMALL | settings))


def _walk(store: Path, **settings: Any) -> log.Log:
    rules = Settings(**settings)
    segments, size = log.read_segments([store / "commitlog"], rules.segment_size)
    return log.walk(segments, size, rules)


def _as_put(puts: list[Put]) -> list[tuple[int, int, int, str]]:
    return [(p.offset, p.size, p.queue_offset, _topic(p.message.topic)) for p in puts]


def _topic(topic: str | bytes) -> str:
    return decode_utf8(topic.encode() if isinstance(topic, str) else topic)


@pytest.mark.parametrize("features", [FEATURES, frozenset(), FEATURES - {"v2", "lmq"}])
def test_random_logs_parse_back(tmp_path: Path, seed: int, features: frozenset[str]) -> None:
    puts = random_log(tmp_path / "commitlog", seed, features=features)
    for crc in ("body", "all", "none"):
        found = _walk(tmp_path, crc=crc, lmq=True)
        assert not found.damage
        assert found.torn_tail is None
        assert not found.short_last_segment
        assert [(r.offset, r.size, r.queue_offset, r.topic) for r in found.records] == _as_put(puts)
    assert spoil.record_offsets(tmp_path) == [(p.offset, p.size) for p in puts]


def test_one_seed_is_one_log(tmp_path: Path, seed: int) -> None:
    for name in ("one", "two"):
        random_log(tmp_path / name / "commitlog", seed, records=100, first_offset=1 << 20)
    one, two = (spoil.segment_paths(tmp_path / name) for name in ("one", "two"))
    assert [p.read_bytes() for p in one] == [p.read_bytes() for p in two]
    assert one[0].name == f"{1 << 20:020d}"


def test_orderly_logs_build_alike_in_every_order(tmp_path: Path, seed: int) -> None:
    random_log(tmp_path / "commitlog", seed)
    built = [_build(tmp_path, queue_order=order, lmq=True) for order in ("logical", "broker", "fail")]
    assert built[0].files == built[1].files == built[2].files
    assert [(b.summary.exit, b.summary.decisions) for b in built] == [(0, [])] * 3


@pytest.mark.parametrize("kind", spoil.RECORD_KINDS)
def test_damage_costs_the_record_it_hits(tmp_path: Path, seed: int, kind: str) -> None:
    puts = random_log(tmp_path / "commitlog", seed, features=FEATURES - {"gaps", "evil"})
    whole = _walk(tmp_path, crc="all").records
    rng = random.Random(seed)
    # A long record may be all properties: only a body can have a bit of it flipped.
    bodies = {put.offset: put.message.body for put in puts}
    candidates = [n for n, r in enumerate(whole[:-1]) if n and r.size > 300 and (kind != "flip-body" or bodies[r.offset])]
    number = rng.choice(candidates)
    hit = spoil.RECORD_KINDS[kind](tmp_path, number, seed)
    record = whole[number]
    assert record.offset <= hit.offset
    assert hit.offset + hit.length <= record.offset + record.size
    found = _walk(tmp_path, crc="all")
    assert [r.offset for r in found.records] == [r.offset for r in whole if r.offset != record.offset]
    spans = log.merged(found.damage)
    assert len(spans) == 1
    assert spans[0][0] == record.offset
    assert found.torn_tail is None
    following = whole[number + 1].offset
    if following // (1 << 15) == record.offset // (1 << 15):
        assert spans[0][1] == record.offset + record.size == following


@pytest.mark.parametrize("kind", spoil.RECORD_KINDS)
def test_damaged_last_record_is_a_torn_tail(tmp_path: Path, seed: int, kind: str) -> None:
    puts = random_log(tmp_path / "commitlog", seed, records=60, features=FEATURES - {"gaps", "evil"})
    with LogWriter(tmp_path / "more", 1 << 15) as writer:
        last = writer.append(Message(body=b"last" * 50, properties={"KEYS": "k"}))
    raw = (tmp_path / "more" / f"{0:020d}").read_bytes()[: last.size]
    path = spoil.segment_paths(tmp_path)[-1]
    ends = [0, *(p.offset + p.size - int(path.name) for p in puts if p.offset >= int(path.name))]
    at = max(end for end in ends if end + last.size + 8 <= 1 << 15)
    data = bytearray(path.read_bytes())
    data[at:] = raw.ljust((1 << 15) - at, b"\0")
    offset = int(path.name) + at
    data[at + 28 : at + 36] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    spoil.RECORD_KINDS[kind](tmp_path, -1, seed)
    found = _walk(tmp_path)
    if kind == "flip-header" and found.damage:
        # Frame and CRC are right all the same: its place or its queue is not, and no crash leaves that.
        assert [(d.offset, d.length, d.sound) for d in found.damage] == [(offset, last.size, True)]
        return
    if kind == "zeros":
        assert found.torn_tail is None
    else:
        assert found.torn_tail is not None
        assert found.torn_tail.offset == offset
    assert not found.damage
    assert all(r.offset < offset for r in found.records)
    assert _build(tmp_path, on_damage="fail").summary.exit == 0


def test_policies_on_a_golden_store(tmp_path: Path, seed: int, golden_store: Callable[[str], GoldenStore]) -> None:
    golden = golden_store("basic-5.3")
    store = spoil.copy_store(golden.path, tmp_path / "store")
    offsets = spoil.record_offsets(store)
    spoil.bad_magic(store, 450, seed)
    failed = _build(store, on_damage="fail")
    assert failed.summary.exit == 5
    assert not failed.files
    assert failed.summary.damage[0].offset == offsets[450][0]
    stopped = _build(store, on_damage="stop")
    assert (stopped.summary.exit, stopped.summary.records) == (3, 450)
    salvaged = _build(store, on_damage="salvage")
    assert (salvaged.summary.exit, salvaged.summary.records) == (3, len(offsets) - 1)
    # The lost record left one hole in its queue: the next record of that queue fills it.
    assert [(d["kind"], d["count"]) for d in salvaged.summary.decisions] == [("fill", 1)]


def test_segments_lost_short_and_added(tmp_path: Path, seed: int, golden_store: Callable[[str], GoldenStore]) -> None:
    golden = golden_store("basic-5.3").path
    whole = spoil.record_offsets(golden)
    missing = spoil.copy_store(golden, tmp_path / "missing")
    hit = spoil.remove_segment(missing, 2)
    found = _walk(missing)
    assert log.merged(found.damage) == [(hit.offset, hit.offset + hit.length)]
    assert [(r.offset, r.size) for r in found.records] == [w for w in whole if not 2 << 20 <= w[0] < 3 << 20]

    torn = spoil.copy_store(golden, tmp_path / "torn")
    spoil.torn_record(torn, -1, seed)
    short = spoil.copy_store(golden, tmp_path / "short")
    spoil.shorten_last(short, -1, seed)
    for store in (torn, short):
        found = _walk(store)
        assert len(found.records) == len(whole) - 1
        assert not found.damage
        assert found.torn_tail is not None
        assert found.torn_tail.offset == whole[-1][0]
        assert found.short_last_segment == (store is short)

    more = spoil.copy_store(golden, tmp_path / "more")
    spoil.add_zero_segment(more)
    found = _walk(more)
    assert len(found.records) == len(whole)
    assert not found.damage
    assert found.torn_tail is None


def test_an_evil_body_is_not_looked_into(tmp_path: Path, seed: int) -> None:
    """A record with a bad CRC keeps its frame: a record image in its body is not a record."""
    with LogWriter(tmp_path / "commitlog") as writer:
        writer.append(Message())
    start = writer.end
    inner = encode(Message(topic="Evil"), start + 88)
    with LogWriter(tmp_path / "commitlog") as writer:
        writer.append(Message())
        evil = writer.append(Message(body=inner + b"flip me" * 40, properties={"KEYS": "e"}))
        writer.append(Message())
    path = spoil.segment_paths(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[start + 88 + len(inner) + seed % 280] ^= 1
    path.write_bytes(data)
    found = _walk(tmp_path)
    assert [r.topic for r in found.records] == ["TopicA", "TopicA"]
    assert log.merged(found.damage) == [(start, start + evil.size)]


@pytest.mark.parametrize(
    "message",
    [
        *(Message(topic=name) for name in ("../etc", "/", ".", "..", "", "a\\b", "nul\0", "bell\x07", "c1\x85")),
        Message(topic="é" * 128, version=2),
        Message(queue_id=-1),
        Message(queue_offset=-1),
        Message(queue_offset=2**63 - 1),
        Message(physical_offset=7),
        Message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "soon"}),
        Message(properties={"INNER_NUM": "1", "INNER_BASE": "x"}),
    ],
)
def test_hostile_records_give_nothing(tmp_path: Path, message: Message) -> None:
    with LogWriter(tmp_path / "commitlog") as writer:
        writer.append(Message(topic="Other"))
        bad = writer.append(message)
        writer.append(Message(topic="Other"))
    built = _build(tmp_path, on_damage="salvage", lmq=True)
    assert log.merged(built.summary.damage) == [(bad.offset, bad.offset + bad.size)]
    assert (built.summary.exit, built.summary.units) == (3, 2)
    assert sorted(built.files) == ["checkpoint", f"consumequeue/Other/0/{0:020d}", f"index/{0:017d}"]


@pytest.mark.parametrize(("lmq", "queues"), [(("..",), []), (("ok", "a\x01b"), ["ok"])])
def test_hostile_light_queues_cost_themselves(tmp_path: Path, lmq: tuple[str, ...], queues: list[str]) -> None:
    with LogWriter(tmp_path / "commitlog") as writer:
        writer.append(Message(lmq=lmq))
    built = _build(tmp_path, lmq=True)
    assert (built.summary.exit, built.summary.units, len(built.summary.warnings)) == (0, 1 + len(queues), 1)
    assert {name.split("/")[1] for name in built.files if name.startswith("consumequeue/")} == {"TopicA", *queues}


def test_prepared_records_may_carry_any_queue(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "commitlog") as writer:
        writer.append(Message(queue_id=-1, queue_offset=-1, sysflag=PREPARED, properties={"KEYS": "k"}))
        writer.append(Message(sysflag=COMMIT))
    built = _build(tmp_path)
    assert (built.summary.exit, built.summary.units, built.summary.items) == (0, 1, 1)
