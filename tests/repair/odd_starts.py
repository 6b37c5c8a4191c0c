"""Repaired odd logs, started by the real RocketMQ: a consumer from each queue's min offset on is given what survives."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.preflight.real import RealStores
from tests.repair.odd_judge import RELEASES, SHOWN, OddVerdict, judge, lay_out, version_of
from tests.repair.odd_logs import odd_log


def judged(scratch: Path, seed: int, real: RealStores | None = None) -> OddVerdict:
    """The log of a seed, judged, and started by ``real`` if it is given. Nothing is left in ``scratch``."""
    place = scratch / str(seed)
    verdict = judge(odd_log(place / "store", seed), place, seed)
    if real is not None and verdict.out is not None:
        verdict.counts["started"] += 1
        verdict.wrong += _started(real, verdict, verdict.out, place / "real", crashed=seed % 2 == 1)
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


def _started(real: RealStores, verdict: OddVerdict, out: Path, store: Path, *, crashed: bool) -> Iterator[str]:
    assert verdict.conf is not None
    lay_out(out, out / "commitlog", store)
    if crashed:
        (store / "abort").touch()
    told = real.start(store, verdict.conf)
    if not told.loads:
        yield f"the real store does not load: {told.reason}"
        return
    assert told.queues is not None
    given = real.read(store)
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
