"""All that fuzzing ever found, the seeds, and some blind mutations, by the compiled loops (test_fuzz: by the plain ones)."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import TARGETS
from tests.fuzz.replay import load
from tests.fuzz.run import FINDINGS
from tests.fuzz.target import mutate

MUTATIONS = 150


def test_every_finding_has_a_target() -> None:
    names = [path.name for path in FINDINGS.iterdir() if path.name != "README.md"]
    assert all(name.split("-")[0] in TARGETS for name in names), names


@pytest.mark.parametrize("target", TARGETS)
def test_compiled_loops(target: str, seed: int) -> None:
    module, rng = load(target), random.Random(seed)
    for path in sorted(FINDINGS.glob(f"{target}-*")):
        module.check(path.read_bytes())
    seeds = module.seeds(rng)
    assert len(seeds) > 5
    for data in seeds:
        module.check(data)
    for _ in range(MUTATIONS):
        data = mutate(rng, rng.choice(seeds), rng.choice(seeds), module.DICTIONARY)[: module.MAX_LEN]
        try:
            module.check(data)
        except BaseException:
            print(f"input: {data.hex()}")
            raise
