"""Starts of a repaired store by the real RocketMQ: nothing is cut, what survives is served, and it goes on writing."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.preflight.disk import read_disk
from tests.preflight.log_walk import Item
from tests.preflight.predicted import predict
from tests.preflight.real import RealPut, RealStart, RealStores
from tests.reference import records as r
from tests.repair.bases import Base
from tests.repair.repaired import lay_out, tree
from tests.repair.truth import LIGHT, Mended, Served

PUTS = 25
ASKED = 40
"""Keys that the store itself is asked for."""
SHOWN = 4


@dataclass(frozen=True)
class Wanted:
    """What each start of one repaired store has to show; ``known`` is where its records lie, the fillers aside."""

    mended: Mended
    served: list[Served]
    items: set[Item]
    keys: list[tuple[str, str, int]]
    """topic, UNIQ_KEY, and where the message lies"""
    known: set[int]
    unsure: list[tuple[int, int]]
    """touched records that are still good for all that can be checked: they may have a wrong queue or offset"""


def started(real: RealStores, base: Base, out: Path, wanted: Wanted, seed: int, *, crashed: bool) -> list[str]:
    """What is wrong with two starts of a copy of ``out``, between which the store takes new messages."""
    store = out.with_name(f"{out.name}-{'crashed' if crashed else 'clean'}")
    lay_out(base, out, store, crashed=crashed)
    log = tree(store, ("commitlog/",))
    found = _predicted(real, base, store, wanted)
    told = real.start(store, base.conf)
    if not told.loads:
        return [*found, f"does not load: {told.reason}"]
    found += _log_kept(told, wanted, log, store)
    found += _right(real, base, store, told, wanted)
    puts = real.put(store, seed, PUTS, _queues(told, seed))
    told = real.look(store)
    wanted = _with_puts(wanted, puts)
    found += [f"after puts: {words}" for words in _right(real, base, store, told, wanted)]
    end = told.max_offset
    real.close(store)
    log = tree(store, ("commitlog/",))
    found += [f"second start: {words}" for words in _predicted(real, base, store, wanted)]
    told = real.start(store, base.conf)
    if not told.loads:
        return [*found, f"second start: does not load: {told.reason}"]
    wanted.mended.end, kept = end, wanted.mended.end
    second = [*_log_kept(told, wanted, log, store), *_right(real, base, store, told, wanted)]
    wanted.mended.end = kept
    real.leave(store)
    return found + [f"second start: {words}" for words in second]


def _predicted(real: RealStores, base: Base, store: Path, wanted: Wanted) -> list[str]:
    """Preflight foresees no loss, but that of a touched record that goes back: a queue's last one stays, without a unit."""
    said = predict(store, real.release, base.conf, store.parent)
    if isinstance(said, str):
        return [f"preflight: {said}"]
    losses = [loss["text"] for loss in said["losses"] if not _is_unsure(loss["text"], wanted)]
    if losses or said["refusals"]:
        return [f"preflight says {said['exit']}: {losses[:SHOWN]} {said['refusals'][:SHOWN]}"]
    return []


def _is_unsure(text: str, wanted: Wanted) -> bool:
    """Whether a loss is that of touched records alone. One that names another queue begins that, above 0."""
    passed = re.match(r"([\d,]+) messages? of [\d,]+ queues?, such as .*: the units from its min offset", text)
    if passed is not None:
        return int(passed[1].replace(",", "")) <= len(wanted.unsure)
    found = re.match(r"(\d+) records? of the log at offsets ([\d,]+) to ([\d,]+) gets? no unit", text)
    if found is None:
        return False
    count, low, high = (int(group.replace(",", "")) for group in found.groups())
    return sum(low <= start and end <= high for start, end in wanted.unsure) >= count


def _log_kept(told: RealStart, wanted: Wanted, log: dict[str, bytes], store: Path) -> Iterator[str]:
    """The start cut nothing."""
    if (told.min_offset, told.max_offset) != (wanted.mended.first, wanted.mended.end):
        yield f"the log is [{told.min_offset}, {told.max_offset}), not [{wanted.mended.first}, {wanted.mended.end})"
    for name, data in log.items():
        length = wanted.mended.end - int(Path(name).name)
        if length < 0:
            continue
        path = store / name
        if not path.exists():
            yield f"{name} is deleted"
        elif path.read_bytes()[:length] != data[:length]:
            yield f"{name} has other bytes than before"


def _right(real: RealStores, base: Base, store: Path, told: RealStart, wanted: Wanted) -> list[str]:
    """What of queues and index is not as wanted."""
    assert told.queues is not None
    fillers = wanted.mended.fillers
    found = [f"{told.behind} bytes are never dispatched"] if told.behind else []
    missing = [one for one in wanted.served if _place(told, one) != one.offset]
    found += _some("survivor not served", ((one, f"but {_place(told, one)}") for one in missing))
    served = {place for queue in told.queues.values() for place in queue.served if place >= 0}
    found += _some("filler served", served & fillers)
    found += _some("nobody knows what is served", served - wanted.known - fillers)
    found += _some("queue of a filler", {topic for topic, _ in told.queues} & wanted.mended.topics)
    items = set(read_disk(store, base.conf.sizes.hash_slots).all_items())
    found += _some("index item missing", wanted.items - items)
    found += _some("index item of a filler", (item for item in items if item[1] in fillers))
    asked = wanted.keys[-ASKED:]
    told_places = list(zip(asked, real.find(store, [one[:2] for one in asked]), strict=True))
    return (
        found
        + _some("key not found", (f"{one}: {places}" for one, places in told_places if one[2] not in places))
        + _some("key of a filler", (f"{one}: {places}" for one, places in told_places if fillers & set(places)))
    )


def _place(told: RealStart, one: Served) -> int | None:
    assert told.queues is not None
    queue = told.queues.get((one.topic, one.queue))
    at = one.queue_offset - queue.min_offset if queue else -1
    return queue.served[at] if queue and 0 <= at < len(queue.served) else None


def _some(what: str, wrong: Iterable[object]) -> list[str]:
    listed = sorted(str(one) for one in wrong)
    return [f"{what}: {len(listed)}, as {'; '.join(listed[:SHOWN])}"] if listed else []


def _queues(told: RealStart, seed: int) -> list[tuple[str, int]]:
    """Some queues that the store has, and a new one."""
    assert told.queues is not None
    there = [
        name for name in told.queues if not name[0].startswith((LIGHT, "SCHEDULE_", "Batch")) and len(name[0].encode()) < 100
    ]
    rng = random.Random(f"put {seed}")
    return [*rng.sample(sorted(there), min(5, len(there))), ("Fresh", 0)]


def _with_puts(wanted: Wanted, puts: list[RealPut]) -> Wanted:
    units = [put for put in puts if put.sysflag & r.TRANSACTION_MASK in (0, r.COMMIT)]
    keyed = [put for put in puts if put.sysflag & r.TRANSACTION_MASK != r.ROLLBACK]
    return Wanted(
        wanted.mended, [*wanted.served, *(Served(put.topic, put.queue, put.queue_offset, put.offset) for put in units)],
        wanted.items, [*wanted.keys[-ASKED + len(keyed) :], *((put.topic, put.key, put.offset) for put in keyed)],
        wanted.known | {put.offset for put in puts}, wanted.unsure,
    )  # fmt: skip
