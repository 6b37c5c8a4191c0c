"""Bring together what the ranges say of topics, as lines of the draft of config/topics.json."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC, is_usual
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.grouping import bucket_of, cut_cells
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.topics import QUEUES_MAX, is_own, topic_entry
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.stage import Stage

NAMES_TOLD = 20
"""names in a warning"""


def topic_rows(scanner: RangeScanner, number: int, keys: tuple[int, ...]) -> Iterator[schemas.Row]:
    """What the records of the range just scanned say of their topics: rows of cells (``cells.TOPIC_COLUMNS``)."""
    names = scanner.names
    entries = names.topics()
    if not len(entries):
        return
    queues, many = np.zeros(len(names.texts), np.int64), np.zeros(len(names.texts), np.int64)
    met = scanner.queue_count
    name, highest = scanner.queues.name[:met], scanner.queues.queue_id[:met].astype(np.int64)
    np.maximum.at(queues, name, np.where(highest < QUEUES_MAX, highest + 1, 0))
    np.maximum.at(many, name, highest >= QUEUES_MAX)
    texts = [names.texts[k].encode() for k in entries]
    ids, ones = np.zeros(len(entries), np.int32), np.ones(len(entries), np.int64)
    bucket = bucket_of(names.crc[entries], ids, np.zeros_like(ones), len(keys))
    columns = np.stack([queues[entries], many[entries]])
    rows = np.arange(len(entries))
    for target, cell in cut_cells(bucket, texts, rows, ids, rows, ones, columns):
        yield schemas.TOPICS, target, keys[target], number, cell, 0


@dataclass(frozen=True)
class DraftTopics:
    """A topic's queues are the most that any range saw; ``batch`` are the topics of batch ConsumeQueues.

    Leaves a part of sorted lines on the stage, [name, entry] each, and a word: the part, what was left out, and whether there
    are delayed messages.
    """

    stage: Stage
    batch: frozenset[str]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        queues: dict[str, int] = {}
        many: set[str] = set()
        for batch in batches:
            for cell in batch.column(batch.schema.get_field_index("data")).to_pylist():
                pieces = cells.unpack(cell, cells.TOPIC_COLUMNS)
                for raw, count, above in zip(pieces.names, *pieces.columns.tolist(), strict=True):
                    name = raw.decode()
                    queues[name] = max(queues.get(name, 0), count)
                    if above:
                        many.add(name)
        wanted = sorted(name for name in queues if not is_own(name))
        # No client could subscribe to a name that TopicValidator refuses, and one such as @type means something else to the
        # broker's JSON parser.
        usual = [name for name in wanted if is_usual(name)]
        if queues:
            part = files.join(self.stage.plans, f"topics-{uuid.uuid4().hex}")
            drafted = [[name, topic_entry(name, queues[name], name in self.batch)] for name in usual if queues[name]]
            files.write_bytes(self.stage.temporary, part, [f"{json.dumps(line)}\n".encode() for line in drafted])
            word = {
                "part": part,
                "delayed": queues.get(SCHEDULE_TOPIC, 0) > 0,
                "refused": len(wanted) - len(usual),
                "refused_names": [name for name in wanted if not is_usual(name)][:NAMES_TOLD],
                "many": [name for name in usual if name in many][:NAMES_TOLD],
            }
            yield schemas.result([json.dumps(word)])
