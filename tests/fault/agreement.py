"""Does ``verify`` take the decisions of ``build``? Of one log: refused or not, the same places, and what was built is clean."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from tests.fault import flips, salvage, sizes, truncations
from tests.fault.case import Case, write_segments
from tests.preflight.settings import Sizes
from tests.repair.ways import damage
from tests.tools import spoil
from tests.tools.compare import SMALL
from tests.tools.damaged_log import WAYS, copy_of
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.stale_log import stale_log

SEGMENT = 1 << 14
OF_THE_FILE = "log-segment-short"
"""A difference of the last file, not of the records: a build takes such a log, and a broker does not load it."""
Log = tuple[str, dict[str, Any]]
"""How a log was spoilt, and settings that build and verify share."""
MakeLog = Callable[[Path, int, int], Log]


def disagreements(store: Path, out: Path, size: int = 0, **settings: Any) -> list[str]:
    """All in which a verify of the log in ``store`` says otherwise than a build, in words."""
    shutil.rmtree(out, ignore_errors=True)
    log = str(store / "commitlog")
    built = local_build(store, out, InlineEngine(3, 2), range_size=size, **SMALL, **settings)
    told = local_verify(store, InlineEngine(3, 2), only=("log",), range_size=size, **SMALL, **settings)
    if 1 in (built.exit, told.exit):
        return [] if built.exit == told.exit else [f"build {built.exit} {built.error}, verify {told.exit} {told.error}"]
    found = [kind for kind in kinds(told) if kind != OF_THE_FILE]
    if (built.exit == 5) != bool(found) or built.exit not in (0, 3, 5):
        return [f"build {built.exit} {built.error}, verify {found}"]
    saved = local_build(store, out, InlineEngine(3, 2), range_size=size, on_damage="salvage", **SMALL, **settings)
    if saved.exit == 5:
        return [] if "log-queue-gaps" in found else [f"salvage {saved.error}, verify {found}"]
    wrong = [f"{text}: {a} of build, {b} of verify" for text, a, b in _places(saved.damage, told) if a != b]
    again = local_verify(out, InlineEngine(3, 2), commitlogs=(log,), range_size=size, **SMALL, **settings)
    if again.exit == 1:
        return [*wrong, f"verify of the build: {again.error}"]
    if set(kinds(again)) - {OF_THE_FILE} != set(found):
        wrong.append(f"of its own build verify says {kinds(again)}, of the log {kinds(told)}")
    if again.exit != (4 if kinds(again) else 0):
        wrong.append(f"exit {again.exit}")
    return wrong


def _places(damage: list[dict[str, Any]], told: VerifyResult) -> Iterator[tuple[str, object, object]]:
    """What both say of damaged places. A build lists the tail, too."""
    lost = [entry for entry in damage if "torn tail" not in entry["reason"] and "stale tail" not in entry["reason"]]
    mine, theirs = (sorted((e["offset"], e["length"], e["reason"]) for e in entries) for entries in (lost, told.damage))
    yield "damage", mine, theirs


# -- all damaged logs that the tests have -----------------------------------------------------------------------------------


def _case(case: Case, store: Path) -> Log:
    write_segments(case.segments, store)
    shared = ("crc", "lmq", "broker_version")
    size = {"segment_size": case.settings["segment_size"]} if "segment_size" in case.settings else {}
    return str(case), {name: case.settings[name] for name in shared} | size


def a_flip(store: Path, seed: int, number: int) -> Log:
    """One bit of one field, of each field in turn."""
    return _case(flips.make(seed, number), store)


def a_truncation(store: Path, seed: int, number: int) -> Log:
    """A log that ends too soon."""
    return _case(truncations.make(seed, number * 37), store)


def a_length(store: Path, seed: int, number: int) -> Log:
    """A length that lies."""
    return _case(sizes.make(seed, number * 31 % len(sizes.ALL)), store)


def many_places(store: Path, seed: int, number: int) -> Log:
    """Many damaged places."""
    return _case(salvage.make(seed + number, 3 + number % 20), store)


def a_spoilt_record(store: Path, seed: int, number: int) -> Log:
    """The kinds of ``tests.tools.spoil``, in logs with every oddity."""
    rng = random.Random(f"spoilt {seed} {number}")
    random_log(store / "commitlog", rng.randrange(2**31), records=rng.choice((30, 120)), features=FEATURES)
    count = len(spoil.record_offsets(store))
    hit = sorted(rng.sample(range(count), k=rng.randrange(1, 5)), reverse=True)
    told = [str(spoil.spoil_any(store, record, rng)) for record in hit]
    last = rng.choice((None, None, spoil.torn_record, spoil.add_zero_segment))
    # A tear looks for the last record in front of the first damage: there may be none.
    if last and (last is not spoil.torn_record or spoil.record_offsets(store)):
        last(store, -1, seed)
    return "; ".join(told), {"lmq": rng.random() < 0.6, "crc": rng.choice(("body", "all", "none"))}


def a_way(store: Path, seed: int, number: int) -> Log:
    """The ways of ``tests.tools.damaged_log``."""
    rng = random.Random(f"way {seed} {number}")
    whole = store.with_name(f"{store.name}-whole")
    puts = random_log(whole / "commitlog", rng.randrange(2**31), records=150, segment_size=SEGMENT, features=FEATURES)
    damaged = copy_of(whole, store, puts)
    ways = rng.choices(WAYS, k=rng.choice((1, 1, 2, 3)))
    for way in ways:
        way(damaged, rng)
    return ", ".join(way.__name__ for way in ways), {"segment_size": SEGMENT}


def a_repair_base(store: Path, seed: int, number: int) -> Log:
    """The ways of ``tests.repair`` and ``tests.preflight``."""
    rng = random.Random(f"base {seed} {number}")
    random_log(store / "commitlog", rng.randrange(2**31), records=150, segment_size=SEGMENT, features=FEATURES)
    return "; ".join(damage(store, Sizes(SEGMENT, 400, 50, 60), rng.randrange(2**31))), {"segment_size": SEGMENT}


def a_stale_tail(store: Path, seed: int, number: int) -> Log:
    """Old records behind the log's end."""
    rng = random.Random(f"stale {seed} {number}")
    stale_log(store, rng.randrange(2**31), queues=rng.choice((1, 2, 4)))
    return "stale", {}


def odd_queues(store: Path, seed: int, number: int) -> Log:
    """Queues whose offsets jump, repeat, fall and begin anew, with damage among them, or a wrong queue offset."""
    rng = random.Random(f"odd {seed} {number}")
    offsets = dict.fromkeys(("A", "B", "SCHEDULE_TOPIC_XXXX"), 0)
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for record in range(rng.choice((12, 40, 90))):
            name = rng.choice(list(offsets))
            if rng.random() < 0.12:
                there = offsets[name]
                steps = (0, there + 1, there + 2, there + 40, there - 1, there - 3, there + 70_000, 8796093022465)
                offsets[name] = max(0, rng.choice(steps))
            properties = {"KEYS": f"k{record}"} | ({"DELAY": "1"} if name == "SCHEDULE_TOPIC_XXXX" else {})
            writer.append(Message(topic=name, queue_offset=offsets[name], properties=properties))
            offsets[name] += 1
    told = []
    if rng.random() < 0.4:
        told.append(f"queue offset of {_wrong_queue_offset(store, rng)}")
    if rng.random() < 0.5:
        count = len(spoil.record_offsets(store))
        told.append(str(spoil.spoil_any(store, rng.randrange(count), rng)))
    return "; ".join(told), {"max_fill": rng.choice((100_000, 100_000, 50, 0))}


def _wrong_queue_offset(store: Path, rng: random.Random) -> int:
    """One byte of a record's queue offset, which no checksum covers."""
    place, _ = rng.choice(spoil.record_offsets(store))
    path = max(path for path in spoil.segment_paths(store) if int(path.name) <= place)
    data = bytearray(path.read_bytes())
    data[place - int(path.name) + 20 + rng.randrange(8)] ^= rng.choice((1, 8, 64))
    path.write_bytes(data)
    return place


LOGS: dict[str, MakeLog] = {
    "flips": a_flip, "truncations": a_truncation, "lengths": a_length, "many places": many_places,
    "spoilt records": a_spoilt_record, "ways": a_way, "repair": a_repair_base, "stale": a_stale_tail, "odd queues": odd_queues,
}  # fmt: skip


def check(kind: str, seed: int, numbers: Iterable[int], place: Path) -> None:
    """Raises AssertionError with all logs of a kind on which the two do not agree."""
    found = []
    for number in numbers:
        store = place / f"{kind}-{number}"
        told, settings = LOGS[kind](store, seed, number)
        size = random.Random(f"size {seed} {number}").choice((0, 0, 500, 1700, 5000))
        wrong = disagreements(store, place / "out", size, **settings)
        if wrong:
            found.append(f"{kind} {number} ({told}; {settings}, range size {size}): {wrong}")
        for folder in (store, *place.glob(f"{store.name}-*")):
            shutil.rmtree(folder, ignore_errors=True)
    assert not found, "\n".join(found)
