"""Stores as the real RocketMQ closed them: verify finds nothing, and names their version among those that fit."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.scenarios import Scenario
from tests.tools.local_engine import LocalEngine
from tests.tools.local_verify import local_verify

TOLD = ("segment_size", "delay_levels", "lmq")
"""What no file of a store tells, and an operator has to know."""


def judge_closed(scenario: Scenario, _: Path) -> list[str]:
    """What is wrong with what verify says of it: nothing, if all goes well."""
    if scenario.failure:
        return [f"{scenario.name}: the real store was not closed: {scenario.failure}"]
    told = {name: scenario.settings[name] for name in TOLD}
    found = []
    for version in ({"broker_version": scenario.options()["broker_version"]},):
        verified = local_verify(scenario.path, LocalEngine(2, 2), **told, **version)
        bad = verified.error or [(finding["kind"], finding["count"]) for finding in verified.findings]
        found += [f"{scenario.name}: verify {version or 'of any version'}: {bad}"] if bad else []
    return found
