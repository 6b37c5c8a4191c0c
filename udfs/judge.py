"""Judge the order of queues from their runs: only queues out of order leave a word for the driver, and where their units go
a staged file.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_format import cells
from storage_format.queue_order import Placement, Run, irregular, order_appended, order_broker, order_logical
from storage_format.walk_state import INT64_MAX
from udfs import files, schemas
from udfs.placements import PlacementWriter
from udfs.stage import Stage
from udfs.words import queue_word

Queues = dict[tuple[bytes, int], list[npt.NDArray[np.int64]]]


@dataclass(frozen=True)
class Judge:
    """``policy`` is logical, broker or fail; ``holes`` are the offsets of damage in the log, ascending.

    Records from the offset ``cut`` on are seen, but nothing is decided of them. ``opens``: tell of empty last files
    (``Placement.opened``). ``batch``: the queues are batch ConsumeQueues, whose runs span as many queue offsets as their
    records have messages.
    """

    stage: Stage
    policy: str
    units_per_file: int
    holes: tuple[int, ...]
    cut: int = INT64_MAX
    opens: bool = False
    batch: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queues: Queues = defaultdict(list)
        for batch in batches:
            for cell in batch.column(batch.schema.get_field_index("data")).to_pylist():
                pieces = cells.unpack(cell, cells.BATCH_RUN_COLUMNS if self.batch else cells.RUN_COLUMNS)
                for name, queue_id, runs in pieces.parts():
                    queues[name, queue_id].append(runs)
        path = files.join(self.stage.plans, f"placements-{uuid.uuid4().hex}")
        with files.writing(self.stage.temporary, path) as writer:
            words = list(self._words(queues, PlacementWriter(writer, path)))
            writer.finish()
        yield schemas.result(words)

    def _order(self, runs: list[Run]) -> Placement:
        if self.policy == "broker" and self.batch:
            return order_appended(runs)
        if self.policy == "broker":
            return order_broker(runs, self.units_per_file if self.opens else 0)
        return order_logical(runs, self.holes, self.cut)

    def _words(self, queues: Queues, placements: PlacementWriter) -> Iterator[str]:
        pre_blank = 0
        for (name, queue_id), parts in sorted(queues.items()):
            columns = np.concatenate(parts, axis=1)
            columns = columns[:, np.argsort(columns[2], kind="stable")]
            if not self.batch:
                pre_blank += int(columns[0, 0]) % self.units_per_file
            if (columns[0, 1:] == columns[0, :-1] + columns[1, :-1]).all():
                continue
            runs = [tuple(run) for run in columns.T.tolist()]
            if self.policy == "fail":
                yield json.dumps(queue_word(name, queue_id, irregular(runs)))
                continue
            order = self._order(runs)
            placed = {"where": placements.put(order), "batch": self.batch}
            yield json.dumps(queue_word(name, queue_id, order.decisions, order) | placed)
        yield json.dumps({"pre_blank": pre_blank})
