"""One scenario, three rebuilds: ours and the reference's beside the real store's."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.golden.stores import read_files
from tests.oracle.first_difference import Files, first_difference
from tests.oracle.scenarios import Scenario
from tests.reference.build import reference_build
from tests.tools.local_engine import InlineEngine, local_build


def judge(scenario: Scenario, out: Path) -> list[str]:
    """What is wrong with our build (into ``out``, emptied first) and with the reference's: nothing, if all goes well."""
    if scenario.failure:
        found = [f"the real store made no rebuild: {scenario.failure}"]
    else:
        found = [*ours(scenario, out), *reference(scenario)]
    return [f"{scenario.name}: {words}" for words in found]


def ours(scenario: Scenario, out: Path) -> list[str]:
    """A build in this process, cut up and dealt out by the scenario's seed."""
    rng = random.Random(scenario.settings["seed"])
    range_size = rng.choice((0, 0, rng.randrange(700, 5_000), rng.randrange(5_000, 200_000)))
    engine = InlineEngine(rng.randrange(1, 6), rng.randrange(1, 4))
    shutil.rmtree(out, ignore_errors=True)
    summary = local_build(scenario.path, out, engine, range_size=range_size, **scenario.options())
    if summary.exit:
        return [f"exit {summary.exit}: {summary.error}"]
    return different(scenario, read_files(out))


def reference(scenario: Scenario) -> list[str]:
    """The plain Python build."""
    built = reference_build(scenario.path, **scenario.options())
    if built.summary.exit:
        return [f"reference: exit {built.summary.exit}: {built.summary.refused}"]
    return [f"reference: {words}" for words in different(scenario, built.files)]


def _lasting(scenario: Scenario) -> Files:
    """The broker's own rebuild, but for an empty last file of a queue on which its version may not start again."""
    return {
        name: content for name, content in scenario.rebuilt().items()
        if scenario.keeps_empty_files or not name.startswith("consumequeue/") or content.strip(b"\0")
    }  # fmt: skip


def different(scenario: Scenario, got: Files) -> list[str]:
    """The first field that is not the real store's."""
    found = first_difference(_lasting(scenario), got, scenario.settings["hash_slots"])
    return [str(found)] if found else []
