"""How far a broker was with half messages: its own offset in config/consumerOffset.json, by what the log says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.publishing.layout import CONSUMER_OFFSETS
from rocketmq_reindex.storage_format.delay.decide import HalfOffsets
from rocketmq_reindex.storage_format.names import HALF_TOPIC
from rocketmq_reindex.udfs import plans
from rocketmq_reindex.udfs.delay.join import JoinedResult
from rocketmq_reindex.udfs.delay.pending import FirstPending
from rocketmq_reindex.udfs.staging import StagingFolder

_TRANSACTIONS: Final = f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"
"""``TransactionalMessageUtil.buildConsumerGroup``: how far the broker has checked half messages"""


def pass_halves(
    table: dict[str, Any], results: Sequence[JoinedResult], engine: Engine, staging: StagingFolder, summary: Summary
) -> bool:  # fmt: skip
    """Put the broker's own offset into the table of consumerOffset.json; returns whether it changed.

    Without it a broker asks again about half messages that were committed after a check, and commits them twice.
    """
    given = table.get("offsetTable", {}).get(_TRANSACTIONS, {}).get("0")
    found = _half_offsets(results, given or 0, engine, staging)
    offset = found.goes_on(given)
    if found.pending < offset:
        summary.warn(
            f"{CONSUMER_OFFSETS}: {_TRANSACTIONS} stands at {offset}, but by the log the half message at {found.pending} is "
            f"neither committed nor rolled back: the broker asks about none below {offset}"
        )
    if offset == (given or 0):
        return False
    table.setdefault("offsetTable", {}).setdefault(_TRANSACTIONS, {})["0"] = offset
    summary.warn(f"{CONSUMER_OFFSETS}: {_TRANSACTIONS} goes on at {offset}: half messages below it are decided or written anew")
    return True


def _half_offsets(results: Sequence[JoinedResult], given: int, engine: Engine, staging: StagingFolder) -> HalfOffsets:
    """What the results of all buckets say of half messages; those from the offset ``given`` on were not passed."""
    passed = max(result.passed for result in results) + 1 if results else 0
    end = max(passed, given)
    if not end:
        return HalfOffsets(0, 0, -1)
    plan = plans.write_plan(staging, "halves", [result.halves for result in results if result.halves])
    (pending,) = map(int, engine.numbers(FirstPending(plan, end), 1))
    _, checked = max((result.last_check for result in results), default=[-1, -1])
    return HalfOffsets(min(passed, pending), pending, checked)
