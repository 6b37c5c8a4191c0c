"""Stores that the real RocketMQ truncated and wrote on: ours is its own rebuild, whatever the policy, and exit 0."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.golden.stores import read_files
from tests.oracle.judge import different
from tests.oracle.scenarios import Scenario
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import local_verify

POLICIES = ("fail", "stop", "salvage")
SIZES = ("segment_size", "cq_file_size", "hash_slots", "index_items", "delay_levels", "lmq", "broker_version")


def judge_stale(scenario: Scenario, out: Path) -> list[str]:
    """What is wrong with ours: nothing, if all goes well. ``out`` is emptied first."""
    if scenario.failure:
        return [f"{scenario.name}: the real store made no rebuild: {scenario.failure}"]
    rng = random.Random(scenario.settings["seed"])
    found = []
    for policy in POLICIES:
        shutil.rmtree(out, ignore_errors=True)
        ranges = rng.choice((0, rng.randrange(700, 5_000), rng.randrange(5_000, 200_000)))
        summary = local_build(scenario.path, out, InlineEngine(2, 2), range_size=ranges, on_damage=policy, **scenario.options())
        words = different(scenario, read_files(out)) if summary.exit in (0, 3) else []
        if summary.exit:
            words.append(f"exit {summary.exit}: {summary.error or summary.damage}")
        found += [f"{scenario.name}: {policy}: {word}" for word in words]
    sizes = {name: value for name, value in scenario.options().items() if name in SIZES}
    shutil.rmtree(out, ignore_errors=True)
    # Its checkpoint knows the log's last record also where that has no unit.
    local_build(scenario.path, out, InlineEngine(2, 2), **scenario.options() | {"checkpoint": "safe"})
    verified = local_verify(out, InlineEngine(2, 2), commitlogs=(str(scenario.path / "commitlog"),), **sizes)
    # As a broker's own: an empty last file of a queue with repeats.
    expected = {"queue-file-empty"}
    shutil.rmtree(out)
    logical = local_build(scenario.path, out, InlineEngine(2, 2), **scenario.options() | {"queue_order": "logical"})
    if any(decision["kind"] == "out-of-line" for decision in logical.decisions):
        # Records that the dispatcher put in a wrong place: verify says so, as a build does that looks at their offsets.
        expected.add("log-out-of-line")
    bad = [finding["kind"] for finding in verified.findings if finding["kind"] not in expected]
    return found + ([f"{scenario.name}: verify: {verified.error or bad}"] if verified.error or bad else [])


def stale_tails(scenarios: list[Scenario]) -> int:
    """How many of the stores end in front of where they ended before."""
    return sum(scenario.settings["end"] < scenario.settings["old_end"] for scenario in scenarios)
