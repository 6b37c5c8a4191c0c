"""Judge the order of queues from their runs: only queues out of order leave a word, in parts of sorted lines, and where their
units go a staged file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.logical_order import order_logical
from rocketmq_reindex.storage_format.queue.order import (
    BREAKS_MAX,
    Placement,
    RolledBack,
    irregular,
    order_appended,
    order_broker,
)
from rocketmq_reindex.storage_format.queue.runs import Run, broken_at, fewer_runs
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.order.placements import PlacementWriter, Queue
from rocketmq_reindex.udfs.order.words import queue_word
from rocketmq_reindex.udfs.stage import Stage

WORDS_MAX = 20_000
"""of a part: very many queues may be out of order"""


class QueueRuns:
    """The runs of the queues of one bucket as columns of one array, those of a queue together and in the log's order."""

    def __init__(self, some: Iterable[cells.Pieces]) -> None:
        numbers: dict[tuple[bytes, int], int] = {}
        owners, parts = [np.zeros(0, np.int32)], []
        for pieces in some:
            queues = zip(pieces.names, pieces.queue_ids.tolist(), strict=True)
            met = np.fromiter((numbers.setdefault(queue, len(numbers)) for queue in queues), np.int32, len(pieces.names))
            owners.append(np.repeat(met, pieces.counts))
            parts.append(pieces.columns)
        owner, columns = np.concatenate(owners), np.concatenate(parts, axis=1)
        order = np.lexsort((columns[2], owner))
        self._queues = list(numbers)
        self._columns = columns[:, order]
        self._bounds = np.searchsorted(owner[order], np.arange(len(numbers) + 1))

    def pre_blank(self, units_per_file: int) -> int:
        """Units that stand before the first one of a queue in its first file, of all queues."""
        return int((self._columns[0, self._bounds[:-1]] % units_per_file).sum())

    def odd(self) -> Iterator[tuple[tuple[bytes, int], npt.NDArray[np.int64]]]:
        """The queues out of order, with their runs."""
        breaks = broken_at(self._columns)
        owners = np.searchsorted(self._bounds, breaks, side="right") - 1
        inside = np.unique(owners[breaks != self._bounds[owners]]).tolist()
        for k in sorted(inside, key=self._queues.__getitem__):
            yield self._queues[k], self._columns[:, self._bounds[k] : self._bounds[k + 1]]


def order_digest(order: Placement) -> str:
    """The same digest: units of the same records go to the same places (for builds that keep files of the one before)."""
    return new_digest([json.dumps([order.kept, order.fills, order.opened]).encode()]).digest().hex()


@dataclass(frozen=True)
class Judge:
    """``policy`` is logical, broker or fail (what that does not refuse stands as logical puts it); ``holes`` are the offsets of
    damage in the log, ascending.

    Records from the offset ``cut`` on are seen, but nothing is decided of them. ``opens``: tell of empty last files
    (``Placement.opened``). ``batch``: the queues are batch ConsumeQueues, whose runs span as many queue offsets as their
    records have messages. ``rolled_back``: where records are older than those before them (``order_logical``).
    """

    stage: Stage
    policy: str
    units_per_file: int
    holes: tuple[int, ...]
    cut: int = INT64_MAX
    opens: bool = False
    batch: bool = False
    rolled_back: RolledBack | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = files.join(self.stage.plans, f"placements-{uuid.uuid4().hex}")
        with files.writing(self.stage.temporary, path, own=True) as writer:
            placements = PlacementWriter(writer, path)
            pre_blank, words = 0, list[tuple[Queue, str]]()
            for cells_of_bucket in schemas.by_bucket(batches):
                runs = self._runs(cell for _, _, cell in cells_of_bucket)
                pre_blank += runs.pre_blank(self.units_per_file)
                words += self._words(runs, placements)
                if len(words) >= WORDS_MAX:
                    yield self._part(words)
                    words = []
            writer.finish()
        if words:
            yield self._part(words)
        yield schemas.result([json.dumps({"pre_blank": 0 if self.batch else pre_blank})])

    def _part(self, words: list[tuple[Queue, str]]) -> pa.RecordBatch:
        """Leave words in the order of their queues."""
        path = files.join(self.stage.plans, f"odd-{uuid.uuid4().hex}")
        files.write_bytes(self.stage.temporary, path, [f"{word}\n".encode() for _, word in sorted(words)])
        return schemas.result([json.dumps({"odd": path})])

    def _runs(self, some: Iterable[bytes]) -> QueueRuns:
        return QueueRuns(cells.unpack(cell, cells.BATCH_RUN_COLUMNS if self.batch else cells.RUN_COLUMNS) for cell in some)

    def _order(self, runs: list[Run]) -> Placement:
        if self.policy == "broker" and self.batch:
            return order_appended(runs)
        if self.policy == "broker":
            return order_broker(runs, self.units_per_file if self.opens else 0)
        return order_logical(runs, self.holes, self.cut, self.rolled_back)

    def _words(self, queues: QueueRuns, placements: PlacementWriter) -> Iterator[tuple[Queue, str]]:
        for queue, columns in queues.odd():
            yield queue, json.dumps(self._word(queue, columns, placements))

    def _word(self, queue: Queue, columns: npt.NDArray[np.int64], placements: PlacementWriter) -> dict[str, Any]:
        name, queue_id = queue
        breaks = len(broken_at(columns))
        if breaks > BREAKS_MAX:
            return {"topic": name.decode(), "queue": queue_id, "breaks": breaks}
        runs = fewer_runs(columns)
        if self.policy == "fail" and (refused := irregular(runs)):
            return queue_word(name, queue_id, refused)
        order = self._order(runs)
        return queue_word(name, queue_id, order.decisions, order) | {
            "where": placements.put(order),
            "batch": self.batch,
            "digest": order_digest(order),
        }
