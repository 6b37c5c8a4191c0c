"""Judge the order of queues from their runs: only queues out of order leave a word for the driver."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from storage_format import cells
from storage_format.queue_order import Placement, Run, irregular, order_broker, order_logical
from storage_format.walk_state import INT64_MAX
from udfs import schemas


@dataclass(frozen=True)
class Judge:
    """``policy`` is logical, broker or fail; ``holes`` are the offsets of damage in the log, ascending.

    Records from the offset ``cut`` on are seen, but nothing is decided of them. ``opens``: tell of empty last files
    (``Placement.opened``).
    """

    policy: str
    units_per_file: int
    holes: tuple[int, ...]
    cut: int = INT64_MAX
    opens: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queues: dict[tuple[bytes, int], list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]] = defaultdict(list)
        for batch in batches:
            for cell in batch.column(batch.schema.get_field_index("data")).to_pylist():
                pieces = cells.unpack(cell, cells.RUN_COLUMNS)
                at = 0
                for name, queue_id, count in zip(pieces.names, pieces.queue_ids.tolist(), pieces.counts.tolist(), strict=True):
                    queues[name, queue_id].append(pieces.columns[:, at : at + count])
                    at += count
        yield schemas.result(self._words(queues))

    def _order(self, runs: list[Run]) -> Placement:
        if self.policy == "broker":
            return order_broker(runs, self.units_per_file if self.opens else 0)
        return order_logical(runs, self.holes, self.cut)

    def _words(self, queues: dict[tuple[bytes, int], list[np.ndarray[tuple[int, int], np.dtype[np.int64]]]]) -> Iterator[str]:
        pre_blank = 0
        for (name, queue_id), parts in sorted(queues.items()):
            columns = np.concatenate(parts, axis=1)
            columns = columns[:, np.argsort(columns[2], kind="stable")]
            pre_blank += int(columns[0, 0]) % self.units_per_file
            if (columns[0, 1:] == columns[0, :-1] + columns[1, :-1]).all():
                continue
            runs = [tuple(run) for run in columns.T.tolist()]
            word: dict[str, object] = {"topic": name.decode(), "queue": queue_id}
            if self.policy == "fail":
                word["decisions"] = irregular(runs)
            else:
                order = self._order(runs)
                word |= dataclasses.asdict(order)
            yield json.dumps(word)
        yield json.dumps({"pre_blank": pre_blank})
