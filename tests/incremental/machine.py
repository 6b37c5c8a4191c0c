"""Random lives of a log, each step a rule, each build compared: ``python -m tests.incremental.machine --count 200``."""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.incremental.world import SETTINGS, World
from tests.tools.faulty_files import Fault

SEEDS = st.integers(0, 2**20)
POINTS = (
    "/_scans/.*/temporary/", "/entries/", "/data/", "/builds/", "/commitlog/", "/tree/consumequeue/", "/made/", "/parts/",
    "/tree/reindex.json", "/sealed$", "/out$", "",
)  # fmt: skip


def matching(pattern: str) -> Fault:
    found = re.compile(pattern)
    return Fault("EIO", 1, lambda _, path: bool(found.search(path)))


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="life-"))
        self.world = World(self.root)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize(seed=SEEDS, count=st.integers(1, 80))
    def begin(self, seed: int, count: int) -> None:
        self.world.append(random.Random(seed), count)
        self.world.build()

    @rule(seed=SEEDS, count=st.integers(1, 40))
    def append(self, seed: int, count: int) -> None:
        self.world.append(random.Random(seed), count)

    @rule()
    def roll(self) -> None:
        self.world.roll()

    @rule()
    def ahead(self) -> None:
        self.world.allocate_ahead()

    @rule()
    def expire(self) -> None:
        self.world.expire()

    @rule(seed=SEEDS)
    def disorder(self, seed: int) -> None:
        self.world.disorder(random.Random(seed))

    @rule(seed=SEEDS)
    def tear(self, seed: int) -> None:
        self.world.tear(random.Random(seed))

    @rule(seed=SEEDS)
    def crash(self, seed: int) -> None:
        self.world.crash(random.Random(seed))

    @rule(seed=SEEDS)
    def damage(self, seed: int) -> None:
        self.world.damage(random.Random(seed))

    @precondition(lambda self: self.world.mended)
    @rule()
    def mend(self) -> None:
        self.world.mend()

    @rule(seed=SEEDS)
    def spoil_result(self, seed: int) -> None:
        self.world.spoil_result(random.Random(seed))

    @rule(seed=SEEDS)
    def touch(self, seed: int) -> None:
        self.world.touch(random.Random(seed))

    @rule(words=st.sampled_from(SETTINGS))
    def change_settings(self, words: tuple[str, ...]) -> None:
        self.world.words = words

    @rule()
    def build(self) -> None:
        self.world.build()

    @rule()
    def grow_and_build(self) -> None:
        self.world.append(random.Random(len(self.world.writer.puts)), 5)
        self.world.build()
        again = self.world.incremental()
        if again["exit"] in (0, 3):
            assert again["incremental"]["nothing_new"]

    @rule()
    def recheck(self) -> None:
        self.world.build("--recheck")

    @rule(point=st.sampled_from(POINTS), number=st.integers(1, 60))
    def broken_build(self, point: str, number: int) -> None:
        fault = matching(point)
        fault.number = number
        self.world.broken(fault)
        self.world.build()


def live(count: int, steps: int) -> None:
    """So many lives of so many steps at most."""
    chosen = settings(
        max_examples=count, stateful_step_count=steps, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    run_state_machine_as_test(Life, settings=chosen)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--steps", type=int, default=30)
    given = parser.parse_args()
    live(given.count, given.steps)
    print(f"{given.count} lives of up to {given.steps} steps: every incremental build is the full one")
    return 0


if __name__ == "__main__":
    sys.exit(main())
