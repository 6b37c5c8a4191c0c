"""One damaged store, repaired with and without a replica: all that is wrong with the results, in words."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.repair.bases import Base
from tests.repair.repaired import DERIVED, build, repair, tree
from tests.repair.starts import SHOWN, Wanted, started
from tests.repair.truth import Truth, items_of, meets, places, read_mended, truth_of
from tests.repair.ways import damage, touched

NEIGHBOUR = 160
"""Bytes of damage that have room for a record of their own, whatever properties it needs."""
LOG = ("commitlog/",)
INNER_BATCH = 0x80
"""``MessageSysFlag.INNER_BATCH_FLAG``"""


@dataclass
class Verdict:
    """Of the store of one seed: what befell it, what is wrong, and figures to be added up."""

    seed: int
    kind: str
    deeds: list[str]
    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def lines(self, release: str) -> list[str]:
        """What is wrong, after a line with what repeats it."""
        if not self.wrong:
            return []
        first = f"--version {release} --one {self.seed}, {self.kind} ({'; '.join(self.deeds)}):"
        return [first, *(f"  {words}" for words in self.wrong)]


def judge(real: RealStores, base: Base, scratch: Path, seed: int) -> Verdict:
    """Damage a copy of ``base``, and judge what repair makes of it. Nothing is left in ``scratch``."""
    place = scratch / str(seed)
    store, out = place / "store", place / "out"
    shutil.copytree(base.path, store)
    verdict = Verdict(seed, base.kind, damage(store, base.conf.sizes, seed))
    stretches = touched(base.path / "commitlog", store / "commitlog")
    truth = truth_of(base.path / "commitlog", store / "commitlog", real.release, stretches)
    verdict.counts.update(stores=1, touched=sum(high - low for low, high in stretches), survivors=len(truth.survivors))
    try:
        _judge(real, base, store, out, truth, verdict)
    except Exception as error:  # noqa: BLE001  whatever comes out of a repair but its own errors is a finding
        verdict.wrong.append(f"raised {type(error).__name__}: {error}")
    shutil.rmtree(place, ignore_errors=True)
    return verdict


def _judge(real: RealStores, base: Base, store: Path, out: Path, truth: Truth, verdict: Verdict) -> None:
    before, seed, wrong, counts = tree(store), verdict.seed, verdict.wrong, verdict.counts
    told = repair(base, store, out, seed)
    if told.error:
        counts["refused"] += 1
        if truth.survivors:
            wrong.append(f"repair ends with {told.exit}: {told.error}")
    else:
        wrong += _judge_log(base, out, told, truth, real.release, counts)
        wrong += _judge_starts(real, base, out, told, truth, seed)
        wrong += _judge_again(base, out, truth, seed)
        wrong += _judge_replica(base, store, out.with_name("copied"), truth, seed, counts)
    if tree(store) != before:
        wrong.append("the damaged store was changed")
    wrong += _judge_damaged(real, base, store, truth, seed, counts)


def _ranges(told: RepairResult) -> list[tuple[int, int, tuple[int, int], str]]:
    """Of each changed range [low, high) the damage in it, and how it was treated."""
    assert told.repair is not None
    return [
        (entry["offset"], entry["offset"] + entry["length"], (entry["damaged"][0], sum(entry["damaged"])), entry["how"])
        for entry in told.repair["ranges"]
    ]


def _survivors(told: RepairResult, truth: Truth) -> tuple[list[int], list[int]]:
    """Offsets of survivors that a change took: those beside damage that is too small for a record, and others."""
    beside: list[int] = []
    others: list[int] = []
    for record in truth.survivors:
        for low, high, (first, last), _ in _ranges(told):
            if low < record.offset + record.size and record.offset < high:
                inside = first < record.offset + record.size and record.offset < last
                (others if inside or last - first >= NEIGHBOUR else beside).append(record.offset)
    return beside, others


def _judge_log(
    base: Base, out: Path, told: RepairResult, truth: Truth, release: str, counts: Counter[str]
) -> Iterator[str]:  # fmt: skip
    """The new log beside the undamaged one."""
    beside, others = _survivors(told, truth)
    counts["neighbours"] += len(beside)
    if others:
        yield f"survivors were taken: {others[:SHOWN]}"
    lost = any(how != "replica" for *_, how in _ranges(told))
    if told.exit != (3 if lost or _is_of_touched(told, truth) else 0):
        yield f"exit {told.exit} with {len(_ranges(told))} ranges changed"
    counts["ranges"] += len(_ranges(told))
    mended = read_mended(out / "commitlog", release, base.checks_own_crc)
    if mended.end < truth.good_to:
        yield f"the chain of records ends at {mended.end}, and good ones follow up to {truth.good_to}"
    gone = set(beside) | set(others)
    new = touched(base.path / "commitlog", out / "commitlog")
    changed = [
        record.offset for record in truth.survivors
        if record.offset not in gone and any(low < record.offset + record.size and record.offset < high for low, high in new)
    ]  # fmt: skip
    if changed:
        yield f"survivors have other bytes: {changed[:SHOWN]}"


def _judge_starts(real: RealStores, base: Base, out: Path, told: RepairResult, truth: Truth, seed: int) -> Iterator[str]:
    gone = {offset for part in _survivors(told, truth) for offset in part}
    anew = _begun_anew(truth)
    unsure = [one for one in truth.survivors if one.offset < anew.get((one.topic, one.queue), -1)]
    gone |= {record.offset for record in unsure}
    left = [record for record in truth.survivors if record.offset not in gone]
    keys = [(record.topic, record.properties.get("UNIQ_KEY", ""), record.offset) for record in left if record.items(False)]
    served = [one for record in left for one in places(base, record)]
    wanted = Wanted(
        read_mended(out / "commitlog", real.release, base.checks_own_crc), served,
        items_of(left, real.release), [one for one in keys if len(one[1]) == 16], truth.known,
        [(one.offset, one.offset + one.size) for one in (*unsure, *truth.unsure)],
    )  # fmt: skip
    for crashed in (False, True):
        for words in started(real, base, out, wanted, seed, crashed=crashed):
            yield f"{'after a crash' if crashed else 'clean'}: {words}"


def _begun_anew(truth: Truth) -> dict[tuple[str, int], int]:
    """Where a touched record with QUEUEOFFSET 0 lies, by its queue: as if the topic had been deleted and made again there."""
    return {(one.topic, one.queue): one.offset for one in truth.unsure if one.queue_offset == 0 and one.gets_unit}


def _judge_again(base: Base, out: Path, truth: Truth, seed: int) -> Iterator[str]:
    """A repair of the repaired log changes nothing, and a build of it finds the same."""
    again, built = out.with_name("again"), out.with_name("built")
    told = repair(base, out, again, seed + 1)
    if _ranges(told) or told.exit not in ((0, 3) if _is_of_touched(told, truth) else (0,)):
        yield f"repair of its own output: exit {told.exit}, {told.error or _ranges(told)[:SHOWN]}"
    elif tree(again, LOG) != tree(out, LOG):
        yield "repair of its own output changes the log"
    elif tree(again, DERIVED) != tree(out, DERIVED):
        yield "repair of its own output derives other files"
    derived = build(base, out, built)
    if derived.exit == 5 and (_is_of_touched(derived, truth) or _is_of_batches(derived, truth)):
        # Advised is this, which is what a repair does.
        derived = build(base, out, built, "salvage")
    elif derived.exit or derived.error:
        yield f"build of the repaired log: exit {derived.exit}: {derived.error}"
        return
    new, old = tree(built, DERIVED), tree(out, DERIVED)
    if new != old:
        names = sorted(name for name in new.keys() | old.keys() if new.get(name) != old.get(name))
        yield f"build of the repaired log makes other files: {names[:SHOWN]}"


def _is_of_touched(told: BuildResult, truth: Truth) -> bool:
    """Whether all damage that is told is a touched record whose bytes are sound: it may have a wrong queue or offset."""
    unsure = {one.offset for one in truth.unsure}
    return bool(told.damage) and all(entry["offset"] in unsure for entry in told.damage)


def _is_of_batches(told: BuildResult, truth: Truth) -> bool:
    """Whether a build is refused as a touched record says that it is an inner batch, beside offsets that are missing."""
    return "of inner batches" in str(told.error) and any(one.sysflag & INNER_BATCH for one in truth.unsure)


def _judge_replica(base: Base, store: Path, out: Path, truth: Truth, seed: int, counts: Counter[str]) -> Iterator[str]:
    """With the undamaged log beside it nothing is lost, but for ranges beside which no record is the same in both logs."""
    told = repair(base, store, out, seed, base.path)
    if told.error:
        yield f"with a replica: exit {told.exit}: {told.error}"
        return
    lost, open_ranges = list[tuple[int, int]](), list[tuple[int, int]]()
    for low, high, _, how in _ranges(told):
        if how != "replica":
            (lost if _has_borders(told, truth, low, high, base.conf.sizes.segment) else open_ranges).append((low, high))
    # A touched record may be out of line only where nothing is missing around it.
    late = any("queue offset out of line" in warning for warning in told.warnings)
    if lost or told.exit != (3 if open_ranges or late else 0):
        yield f"with a replica: exit {told.exit}, lost {lost[:SHOWN]}"
    segments = [int(path.name) for path in (store / "commitlog").iterdir()]
    changed = [(low, high) for low, high, _, how in _ranges(told) if how == "replica"]
    differing = []
    for low, high in touched(base.path / "commitlog", out / "commitlog"):
        if low < min(segments) or low >= max(segments) + base.conf.sizes.segment:
            counts["bytes of segments at the ends"] += high - low
        elif low >= truth.good_to or meets(open_ranges, low, high):
            counts["bytes of the log's end"] += high - low
        elif truth.hidden(low) and not meets(changed, low, high):
            counts["bytes that no check covers"] += high - low
        else:
            differing.append((low, high))
    if differing:
        yield f"with a replica: {len(differing)} stretches differ from the undamaged log, as {differing[:SHOWN]}"


def _has_borders(told: RepairResult, truth: Truth, low: int, high: int, segment: int) -> bool:
    """Whether a record that no damage touched lies on each side of a range, before other damage and the log's end.

    In another segment it has to be the next one: there one with other bytes is of another log.
    """
    ranges = _ranges(told)
    before = max((last for _, last, *_ in ranges if last <= low), default=0)
    behind = min([first for first, *_ in ranges if first >= high] + [truth.good_to])
    at = [record.offset for record in truth.survivors]
    # The log's first record has nothing before it.
    left = [record.offset for record in truth.accepted if before <= record.offset < low]
    right = [record.offset for record in truth.accepted if high <= record.offset < behind]
    if low % segment == 0:
        left = left[-1:]
    if high % segment == 0:
        right = right[:1]
    begins = bool(set(left) & set(at)) or not any(record.offset < low for record in truth.accepted)
    return begins and high <= truth.end and bool(set(right) & set(at))


def _judge_damaged(
    real: RealStores, base: Base, store: Path, truth: Truth, seed: int, counts: Counter[str]
) -> Iterator[str]:  # fmt: skip
    """Of the damaged store itself: where the real start cuts, preflight says so."""
    crashed = random.Random(f"abort {seed}").random() < 0.5
    if crashed:
        (store / "abort").touch()
    said = predict(store, real.release, base.conf, store.parent)
    told = real.start(store, base.conf)
    if told.loads:
        real.leave(store)
    cut = not told.loads or told.behind > 0 or told.max_offset < truth.good_to
    counts[
        "damaged stores that do not load" if not told.loads else "damaged stores cut" if cut else "damaged stores whole"
    ] += 1
    if cut and not isinstance(said, str) and said["exit"] != 4:
        words = told.reason or f"ends at {told.max_offset}, {told.behind} bytes behind, and good records go to {truth.good_to}"
        yield f"damaged store{' after a crash' if crashed else ''} {words}: preflight says {said['exit']}"
