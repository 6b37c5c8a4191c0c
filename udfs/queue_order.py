"""Decide where the units of queues out of order go, from their runs of queue offsets."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.order import (
    BREAKS_MAX,
    OrderDecision,
    OutOfLine,
    Placement,
    Run,
    broken_at,
    fewer_runs,
    irregular,
    order_appended,
    order_broker,
)
from rocketmq_reindex.storage_format.queue.placement import LogEvidence
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import PlacementSpan, PlacementWriter, Queue
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------- queue runs
# The runs of queue offsets of many queues, in one array.


class QueueRuns:
    """The runs of the queues of one bucket: those of one queue together, in the order of the log.

    ``some`` are unpacked cells of ``cells.RUN_COLUMNS`` or ``cells.BATCH_RUN_COLUMNS`` columns (int64).
    """

    def __init__(self, blocks: Iterable[cells.CellRows]) -> None:
        numbers: dict[tuple[bytes, int], int] = {}
        owners, parts = [np.zeros(0, np.int32)], []
        for pieces in blocks:
            queues = zip(pieces.names, pieces.queue_ids.tolist(), strict=True)
            owner_of_piece = np.fromiter(
                (numbers.setdefault(queue, len(numbers)) for queue in queues), np.int32, len(pieces.names)
            )
            owners.append(np.repeat(owner_of_piece, pieces.counts))
            parts.append(pieces.columns)
        owner, columns = np.concatenate(owners), np.concatenate(parts, axis=1)
        order = np.lexsort((columns[2], owner))
        self._queues = list(numbers)
        self._columns = columns[:, order]
        self._bounds = np.searchsorted(owner[order], np.arange(len(numbers) + 1))

    def pre_blank(self, units_per_file: int) -> int:
        """Return how many units stand before the first one of a queue in its first file, summed over all queues."""
        return int((self._columns[0, self._bounds[:-1]] % units_per_file).sum())

    def odd(
        self, fills_head: Callable[[int, int], bool] | None = None
    ) -> Iterator[tuple[tuple[bytes, int], npt.NDArray[np.int64]]]:
        """Yield each queue out of order, by topic and queue id, with its runs (int64, columns by runs).

        ``fills_head``: tells by queue offset and phy_offset of a queue's first record whether something stands before it: such
        a queue is one of them.
        """
        breaks = broken_at(self._columns)
        owners = np.searchsorted(self._bounds, breaks, side="right") - 1
        inside = set(owners[breaks != self._bounds[owners]].tolist())
        if fills_head:
            firsts = self._columns[:, self._bounds[:-1]]
            later = np.flatnonzero(firsts[0])
            inside |= {k for k in later.tolist() if fills_head(int(firsts[0, k]), int(firsts[2, k]))}
        for k in sorted(inside, key=self._queues.__getitem__):
            yield self._queues[k], self._columns[:, self._bounds[k] : self._bounds[k + 1]]


# ---------------------------------------------------------------------------------------------------------------------- results
# What a task that decides on queue order hands to the driver: the first of what it found in a queue, and sums of the rest.

LISTED_MAX: Final = 100
"""Decisions, and records out of line, that are listed one by one for each queue."""


class LostRecord(NamedTuple):
    """One record out of line; ``is_wrong`` as in ``OutOfLine``."""

    phy_offset: int
    size: int
    is_wrong: bool = False


class MoreLost(NamedTuple):
    """The records out of line that are not listed one by one."""

    records: int
    phy_offset: int
    """of the first one"""
    end: int
    """phy_offset behind the last one"""
    size: int
    """bytes of all of them"""


@dataclass
class OrderResult(handover.TaskResult):
    """One result of ``DecideOrder``: a part, or the count of units before the first ones."""

    part: str = ""
    """path of a file with one ``OddQueue`` on each line, by topic and queue id"""
    pre_blank: int = 0
    """units that stand before the first one of a queue in its first file, of all queues"""


@dataclass
class OddQueue(handover.TaskResult):
    """One queue out of order.

    Where ``breaks`` is not 0, the queue is out of order more often than damage can explain, and the rest has its defaults.
    """

    topic: str
    queue: int
    breaks: int = 0
    decisions: list[OrderDecision] = field(default_factory=list)
    """the first ones, and sums of the others (``cap_decisions``)"""
    filled: int = 0
    """units that stand for missing records"""
    opened: int = -1
    """position at which a file without any unit begins; -1: there is none"""
    lost: list[LostRecord] = field(default_factory=list)
    """the first records out of line"""
    more_lost: MoreLost | None = None
    """the other ones; None: there are none"""
    pending: list[LostRecord] = field(default_factory=list)
    """the last records, of which it is not clear whether they are in line"""
    between_lives: list[int] = field(default_factory=list)
    """as in ``Placement``"""
    where: PlacementSpan | None = None
    """where its rows are"""
    batch: bool = False
    """whether it is a batch ConsumeQueue"""
    digest: str = ""
    """equal digests: units of the same records stand at the same positions"""

    @classmethod
    def of_fields(cls, fields: dict[str, Any]) -> OddQueue:
        """Return the queue with these fields, in which tuples are lists."""
        for name, kind in (("decisions", OrderDecision), ("lost", LostRecord), ("pending", LostRecord)):
            fields[name] = [kind(*row) for row in fields[name]]
        for name, tuple_kind in (("more_lost", MoreLost), ("where", PlacementSpan)):
            fields[name] = tuple_kind(*fields[name]) if fields[name] else None
        return cls(**fields)


def cap_decisions(decisions: Sequence[OrderDecision], listed_max: int = LISTED_MAX) -> list[OrderDecision]:
    """Return the first ``listed_max`` decisions, then for each kind of the others ("more KIND", lowest queue offset, sum of
    units)."""
    by_kind: dict[str, tuple[int, int]] = {}
    for kind, offset, count in decisions[listed_max:]:
        lowest, total = by_kind.get(kind, (offset, 0))
        by_kind[kind] = (min(lowest, offset), total + count)
    return [*decisions[:listed_max], *(OrderDecision(f"more {kind}", *by_kind[kind]) for kind in sorted(by_kind))]


def odd_queue(topic: bytes, queue_id: int, placement: Placement) -> OddQueue:
    """Return the queue with what its placement decides; ``where``, ``batch`` and ``digest`` are for the caller to set."""
    return OddQueue(
        topic.decode(),
        queue_id,
        decisions=cap_decisions(placement.decisions),
        filled=placement.filled,
        opened=placement.opened,
        lost=[LostRecord(record.phy_offset, record.length, record.is_wrong) for record in placement.lost[:LISTED_MAX]],
        pending=[LostRecord(record.phy_offset, record.length) for record in placement.pending],
        between_lives=placement.between_lives,
        more_lost=_more_lost(placement.lost[LISTED_MAX:]),
    )


def _more_lost(records: Sequence[OutOfLine]) -> MoreLost | None:
    if not records:
        return None
    first, last = records[0], records[-1]
    return MoreLost(len(records), first.phy_offset, last.phy_offset + last.length, sum(record.length for record in records))


# ----------------------------------------------------------------------------------------------------------------------- decide
# Decide where the units of queues out of order go.
#
# Queues in order leave nothing. Those out of order go to staged files: a line for each (``OddQueue``), and its placement.

QUEUES_MAX = 20_000
"""Queues in one part: there may be very many out of order."""


def order_digest(order: Placement) -> str:
    """Return the digest of a placement: where it is equal, units of the same records stand at the same positions.

    An incremental build keeps the files of such a queue.
    """
    return new_digest([json.dumps([order.kept, order.fills, order.opened]).encode()]).digest().hex()


@dataclass(frozen=True)
class DecideOrder:
    """Reduces rows of runs (RUNS or BATCH_RUNS) to results (``OrderResult``).

    ``policy`` is logical, broker or fail; what fail does not refuse is placed as logical places it. Nothing is decided about
    records from the phy_offset ``cut`` on. ``opens``: also find files without units at a queue's end (``Placement.opened``).
    ``batch``: the queues are batch ConsumeQueues, in which a run spans as many queue offsets as its records have messages, and
    which have no pre-blank: ``units_per_file`` is 1.
    """

    staging: StagingFolder
    policy: str
    units_per_file: int
    log: LogEvidence
    cut: int = INT64_MAX
    opens: bool = False
    batch: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = files.join(self.staging.plans, f"placements-{uuid.uuid4().hex}")
        with files.writing(self.staging.temporary, path) as writer:
            placements = PlacementWriter(writer, path)
            pre_blank, odd = 0, list[tuple[Queue, str]]()
            for cells_of_bucket in handover.by_bucket(batches):
                runs = self._runs(cell.data for cell in cells_of_bucket)
                pre_blank += runs.pre_blank(self.units_per_file)
                odd_queues = runs.odd(self._fills_head if self.policy != "broker" else None)
                odd += [(queue, self._decide(queue, columns, placements).to_json()) for queue, columns in odd_queues]
                if len(odd) >= QUEUES_MAX:
                    yield self._part(odd)
                    odd = []
            writer.finish()
        if odd:
            yield self._part(odd)
        yield handover.batch([OrderResult(pre_blank=0 if self.batch else pre_blank)])

    def _part(self, odd: list[tuple[Queue, str]]) -> pa.RecordBatch:
        path = files.join(self.staging.plans, f"odd-{uuid.uuid4().hex}")
        files.write_bytes(self.staging.temporary, path, [f"{line}\n".encode() for _, line in sorted(odd)])
        return handover.batch([OrderResult(part=path)])

    def _fills_head(self, first: int, phy_offset: int) -> bool:
        return self.log.fills_head(first, phy_offset, self.units_per_file)

    def _missing_head(self, first: Run) -> list[OrderDecision]:
        if not self._fills_head(first.first, first.phy_offset):
            return []
        missing = first.first % self.units_per_file
        return [OrderDecision("gap", first.first - missing, missing)]

    def _runs(self, packed: Iterable[bytes]) -> QueueRuns:
        return QueueRuns(cells.unpack(cell, cells.BATCH_RUN_COLUMNS if self.batch else cells.RUN_COLUMNS) for cell in packed)

    def _decide(self, queue: Queue, columns: npt.NDArray[np.int64], placements: PlacementWriter) -> OddQueue:
        topic, queue_id = queue
        breaks = len(broken_at(columns))
        if breaks > BREAKS_MAX:
            return OddQueue(topic.decode(), queue_id, breaks)
        runs = fewer_runs(columns)
        if self.policy == "fail" and (refused := [*self._missing_head(runs[0]), *irregular(runs)]):
            return OddQueue(topic.decode(), queue_id, decisions=cap_decisions(refused))
        order = self._order(runs)
        odd = odd_queue(topic, queue_id, order)
        odd.where, odd.batch, odd.digest = placements.put(order), self.batch, order_digest(order)
        return odd

    def _order(self, runs: list[Run]) -> Placement:
        if self.policy == "broker" and self.batch:
            return order_appended(runs)
        if self.policy == "broker":
            return order_broker(runs, self.units_per_file if self.opens else 0)
        return self.log.place(runs, self.units_per_file, self.cut)
