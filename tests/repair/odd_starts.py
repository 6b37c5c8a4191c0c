"""Repaired odd logs, started by the real RocketMQ: a consumer from each queue's min offset on is given what survives."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.preflight.real import RealStores
from tests.repair.odd_judge import RELEASES, SHOWN, OddVerdict, judge, lay_out, version_of
from tests.repair.odd_logs import odd_log
from tests.tools.local_engine import local_build


def judged(scratch: Path, seed: int, real: RealStores | None = None, crashed: bool | None = None) -> OddVerdict:
    """The log of a seed, judged, and started by ``real`` if it is given. Nothing is left in ``scratch``.

    ``crashed``: whether it starts as after a crash; None: as the seed says.
    """
    place = scratch / str(seed)
    verdict = judge(odd_log(place / "store", seed), place, seed, crashed)
    if real is not None and verdict.out is not None:
        verdict.counts["started"] += 1
        verdict.wrong += _started(real, verdict, verdict.out, place / "real")
    shutil.rmtree(place, ignore_errors=True)
    return verdict


def real_stores(scratch: Path, seed: int, before: RealStores | None) -> RealStores:
    """The real stores of the version that the seed's log is for; ``before`` are ended if they are of another."""
    version = RELEASES[version_of(seed)]
    if before is not None and before.release == version:
        return before
    if before is not None:
        before.__exit__(None, None, None)
    return RealStores(version, scratch)


def _started(real: RealStores, verdict: OddVerdict, out: Path, store: Path) -> Iterator[str]:
    assert verdict.conf is not None
    lay_out(out, out / "commitlog", store)
    if verdict.crashed:
        (store / "abort").touch()
    told = real.start(store, verdict.conf)
    if verdict.refused or verdict.emptied:
        yield from _advised(real, verdict, out, store, told.loads)
        return
    if not told.loads:
        yield f"the real store does not load: {told.reason}"
        return
    assert told.queues is not None
    # A recovery may leave a unit of zeros at a queue's end: its message has no bytes, and a client's decoder makes none of it.
    given = {queue: [place for place in places if place >= 0] for queue, places in real.read(store).items()}
    real.leave(store)
    if told.behind:
        yield f"{told.behind} bytes are never dispatched"
    for queue, places in sorted(verdict.served.items()):
        found = given.get(queue, [])
        if found == places:
            continue
        if queue in verdict.blank_heads and set(found) <= set(places):
            # As a broker itself leaves it: no lost bytes explain what is missing there.
            verdict.counts["unexplained heads"] += 1
        else:
            yield f"a consumer of {queue} is given {found[:SHOWN]}... ({len(found)}), not {places[:SHOWN]}... ({len(places)})"


def _advised(real: RealStores, verdict: OddVerdict, out: Path, store: Path, loads: bool) -> Iterator[str]:
    """Where preflight says that no broker starts, or that it hides a queue: so it is, and not on the build that is advised."""
    assert verdict.conf is not None
    verdict.counts["refused" if verdict.refused else "emptied"] += 1
    if loads != verdict.emptied:
        yield f"the real store {'loads' if loads else 'does not load'}, and preflight says otherwise"
    hidden = set[tuple[str, int]]()
    if loads:
        given = real.read(store)
        hidden = {queue for queue, places in verdict.served.items() if places and not given.get(queue)}
        real.leave(store)
        if not hidden:
            yield "each queue is served, and preflight says that one is hidden"
    sizes, built, again = verdict.conf.sizes, out.with_name("by-order"), store.with_name("advised")
    line = ".".join(verdict.version.split(".")[:2])
    told = local_build(
        out, built, queue_order="broker", on_damage="salvage", broker_version=line, segment_size=sizes.segment,
        cq_file_size=sizes.cq_file, hash_slots=sizes.hash_slots, index_items=sizes.index_items,
    )  # fmt: skip
    if told.error:
        yield f"the advised build ends with {told.exit}: {told.error}"
        return
    lay_out(built, out / "commitlog", again)
    if verdict.crashed:
        (again / "abort").touch()
    started = real.start(again, verdict.conf)
    if not started.loads and verdict.crashed:
        # Records at the log's end that the broker's order leaves out, too: the advice goes on with a start without abort.
        verdict.counts["without abort"] += 1
        # The start that failed left the empty file.
        again = again.with_name("without-abort")
        lay_out(built, out / "commitlog", again)
        started = real.start(again, verdict.conf)
    if not started.loads:
        yield f"the real store does not load on the advised build: {started.reason}"
        return
    given = real.read(again)
    real.leave(again)
    if still := sorted(queue for queue in hidden if not given.get(queue)):
        yield f"{still} are hidden on the advised build, too"
