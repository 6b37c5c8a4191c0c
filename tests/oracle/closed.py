"""Stores as the real RocketMQ closed them: verify finds nothing, and names their version among those that fit."""

from __future__ import annotations

from pathlib import Path

from tests.oracle.scenarios import Scenario
from tests.tools.local_engine import InlineEngine
from tests.tools.local_verify import local_verify

TOLD = ("segment_size", "delay_levels", "lmq")
"""What no file of a store tells, and an operator has to know."""
RACED = "checkpoint-stale"
"""Before 5.5 a flush of the queues that overlaps the last dispatch puts an older logicsMsgTimestamp back
(``FlushConsumeQueueService.doFlush``)."""


def judge_closed(scenario: Scenario, _: Path) -> list[str]:
    """What is wrong with what verify says of it: nothing, if all goes well."""
    if scenario.failure:
        return [f"{scenario.name}: the real store was not closed: {scenario.failure}"]
    told = {name: scenario.settings[name] for name in TOLD}
    version = str(scenario.options()["broker_version"])
    found = []
    for named in ({}, {"broker_version": version}):
        verified = local_verify(scenario.path, InlineEngine(2, 2), **told, **named)
        bad = [f"{finding['kind']} {finding['count']}" for finding in verified.findings if finding["kind"] != RACED]
        if verified.error:
            bad = [verified.error]
        elif not named and version not in verified.fits:
            bad.append(f"the versions that fit are {verified.fits}")
        found += [f"{scenario.name}: verify as {named or 'any version'}: {words}" for words in bad]
    return found
