"""Judge the order of batch queues from their runs: only queues out of order leave a word for the driver."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_format import cells
from storage_format.queue_order import irregular, order_appended, order_logical
from storage_format.walk_state import INT64_MAX
from udfs import schemas
from udfs.words import queue_word


@dataclass(frozen=True)
class BatchJudge:
    """As ``Judge``; a run spans as many queue offsets as its records have messages."""

    policy: str
    holes: tuple[int, ...]
    cut: int = INT64_MAX

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queues: dict[tuple[bytes, int], list[npt.NDArray[np.int64]]] = defaultdict(list)
        for batch in batches:
            for cell in batch.column(batch.schema.get_field_index("data")).to_pylist():
                pieces = cells.unpack(cell, cells.BATCH_RUN_COLUMNS)
                at = 0
                for name, queue_id, count in zip(pieces.names, pieces.queue_ids.tolist(), pieces.counts.tolist(), strict=True):
                    queues[name, queue_id].append(pieces.columns[:, at : at + count])
                    at += count
        yield schemas.result(self._words(queues))

    def _words(self, queues: dict[tuple[bytes, int], list[npt.NDArray[np.int64]]]) -> Iterator[str]:
        for (name, queue_id), parts in sorted(queues.items()):
            columns = np.concatenate(parts, axis=1)
            columns = columns[:, np.argsort(columns[2], kind="stable")]
            if (columns[0, 1:] == columns[0, :-1] + columns[1, :-1]).all():
                continue
            runs = [tuple(run) for run in columns.T.tolist()]
            if self.policy == "fail":
                yield json.dumps(queue_word(name, queue_id, irregular(runs)) | {"batch": True})
                continue
            order = order_appended(runs) if self.policy == "broker" else order_logical(runs, self.holes, self.cut)
            placement = {"batch": True, "kept": order.kept, "fills": order.fills}
            yield json.dumps(queue_word(name, queue_id, order.decisions, order) | placement)
