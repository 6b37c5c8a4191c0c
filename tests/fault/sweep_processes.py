"""Many kills, stragglers and failing operations, for ``make fault``.

    python -m tests.fault.sweep_processes --kind kill --count 200 --seed 1

kill         kill -9 of a run, then the same again. Of five cases four are runs without Spark, killed at any file operation; the
             fifth is a real command whose driver, JVM or Python worker is killed at a named point or at any moment.
speculation  a standalone cluster of two workers with stragglers in random places
operations   the n-th file operation fails: every n, every kind of failure, into a new folder and over an earlier build
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.fault.disk import Scene, check_killed, sweep, tiny_store
from tests.fault.processes import STAGES, check_ended, fault, kill_somebody
from tests.tools.faulty_children import Children, children
from tests.tools.faulty_cluster import SPECULATION, cluster, event_log, speculated
from tests.tools.faulty_files import Fault
from tests.tools.faulty_processes import fired
from tests.tools.faulty_runs import SIZES

SPARK_EVERY = 5
KINDS_OF_FAILURE = ("EIO", "ENOSPC", "full", "short", "nothing", "close")


def kill_at_any_operation(scene: Scene, warm: Children, rng: random.Random, operations: int) -> str:
    """One run without Spark, killed by chance; what it was."""
    number, kind = rng.randrange(operations) + 1, rng.choice(("kill", "kill-after"))
    status = warm.run(scene.store, scene.out, *scene.words, exchange=scene.exchange, kind=kind, number=number)
    # One that looked at its progress less often had fewer operations, and may have ended before.
    assert status in (0, -signal.SIGKILL)
    check_killed(scene, f"{kind} {number}")
    return "without Spark" if status else "without Spark, not reached"


def kills(folder: Path, count: int, seed: int) -> Counter[str]:
    told: Counter[str] = Counter()
    store = tiny_store(folder / "store")
    with children() as warm:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            scene = Scene(store, folder / f"place-{number}" / "out", rng.random() < 0.7, rng.random() < 0.7)
            probe = Fault("EIO", sys.maxsize)
            scene.run(probe)
            scene.restore()
            began = time.monotonic()
            if number % SPARK_EVERY == SPARK_EVERY - 1:
                # The real command swaps names.
                what = kill_somebody(
                    Scene(store, folder / f"spark-{number}" / "out", scene.earlier), folder / f"run-{number}", rng
                )
            else:
                what = kill_at_any_operation(scene, warm, rng, probe.seen)
            told[what.partition(" after ")[0]] += 1
            if "Spark" not in what or number % 10 == 0:
                print(f"{number + 1} of {count}: {what}, {time.monotonic() - began:.1f} s", flush=True)
    return told


def stragglers(folder: Path, count: int, seed: int) -> Counter[str]:
    told: Counter[str] = Counter()
    store = tiny_store(folder / "store")
    with cluster(folder / "spark") as found:
        for number in range(count):
            rng = random.Random(f"{seed} {number}")
            scene = Scene(store, folder / f"place-{number}" / "out", rng.random() < 0.5)
            # Not two in one stage: the copy of a straggler must not become one, Spark makes no second.
            chosen = [rng.choice(stage) for stage in rng.sample(STAGES, rng.randrange(1, 4))]
            faults = [fault("worker", point, rng.choice(("stop", "sleep 200"))) for point in chosen]
            settings = SPECULATION | event_log(folder / f"events-{number}")
            began = time.monotonic()
            with found.command(store, scene.out, folder / f"run-{number}", (*SIZES, *scene.words), settings, faults) as run:
                assert check_ended(scene, run, False)["exit"] == 0
            assert fired(folder / f"run-{number}") == len(faults), chosen
            counts = speculated(folder / f"events-{number}")
            assert counts["won"] >= len(faults), (counts, faults)
            told += Counter(counts)
            print(f"{number + 1} of {count}: {counts}, {time.monotonic() - began:.1f} s", flush=True)
    return told


def operations(folder: Path, _count: int, _seed: int) -> Counter[str]:
    told: Counter[str] = Counter()
    store = tiny_store(folder / "store")
    for earlier, exchange in ((False, True), (True, True), (True, False)):
        for kind in KINDS_OF_FAILURE:
            scene = Scene(store, folder / f"place-{kind}-{earlier}-{exchange}" / "out", earlier, exchange)
            exits = Counter(summary["exit"] for _, summary in sweep(scene, kind))
            print(f"{kind}, earlier build {earlier}, swap {exchange}: {dict(exits)}", flush=True)
            told[kind] += exits.total()
    return told


RUNS: dict[str, Callable[[Path, int, int], Counter[str]]] = {
    "kill": kills,
    "speculation": stragglers,
    "operations": operations,
}
BIG = {"kill": 200, "speculation": 20, "operations": 1}
"""the counts of `make fault`"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=tuple(RUNS), required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=None)
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(2**31) if asked.seed is None else asked.seed
    print(f"{asked.kind}: seed {seed}", flush=True)
    folder, began = Path(tempfile.mkdtemp(prefix="rmq-reindex-fault-")), time.monotonic()
    told = RUNS[asked.kind](folder, BIG[asked.kind] if asked.count is None else asked.count, seed)
    # Left to be looked at when a case failed.
    shutil.rmtree(folder)
    print(json.dumps({"kind": asked.kind, "seed": seed, "seconds": round(time.monotonic() - began), "cases": dict(told)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
