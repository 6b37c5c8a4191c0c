"""Which JVM options suit the peer best: its rebuild of one log under each, in turn. ``sides.PEER_JAVA`` is what the race takes.

python -m tests.bench.heaps [--bytes N] [--rounds N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from statistics import median

from tests.bench.logs import BENCH, GIB, make_log, warm_page_cache
from tests.bench.race import show
from tests.bench.sides import PEER_JAVA, Run, run_peer

OPTIONS = (
    "-Xms1g -Xmx1g",
    "-Xms512m -Xmx2g",
    "-Xms4g -Xmx4g",
    PEER_JAVA,
    PEER_JAVA.replace("4g", "8g"),
    "-Xms4g -Xmx4g -XX:+UseParallelGC",
    "-Xms4g -Xmx4g -XX:+UseSerialGC",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="orders")
    parser.add_argument("--bytes", type=int, default=2 * GIB)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    store = make_log(given.preset, given.bytes, 7)
    warm_page_cache(store)
    runs: dict[str, list[Run]] = {options: [] for options in OPTIONS}
    for _ in range(given.rounds):
        for options, found in runs.items():
            os.environ["ORACLE_JAVA_OPTS"] = options
            found.append(run_peer(store, BENCH / "peer"))
    for options, found in sorted(runs.items(), key=lambda one: median(run.build for run in one[1])):
        print(options)
        print(show("", [run.build for run in found], found[0].records))
    shutil.rmtree(BENCH / "peer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
