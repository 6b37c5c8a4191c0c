"""Put together what the ranges say about topics, as lines of the draft of config/topics.json."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC, is_usual
from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.topics import is_own, topic_entry
from rocketmq_reindex.udfs import files, results
from rocketmq_reindex.udfs.results import Result
from rocketmq_reindex.udfs.staging import StagingFolder

NAMES_MAX = 20
"""Names of topics in one warning."""


@dataclass
class TopicsResult(Result):
    """What one task drafted."""

    part: str
    """path of a file of sorted lines, each [topic, its entry as text]"""
    delayed: bool
    """whether there are delayed messages"""
    refused: int
    """topics left out because RocketMQ's ``TopicValidator`` (5.3) refuses their names"""
    refused_names: list[str] = field(default_factory=list)
    """the first NAMES_MAX of those"""
    many: list[str] = field(default_factory=list)
    """the first NAMES_MAX topics with queue ids from ``topics.QUEUES_MAX`` on, which are left out"""


@dataclass(frozen=True)
class DraftTopics:
    """Reduces rows of TOPICS to results (``TopicsResult``) and staged lines of the draft (``TopicConfig``, RocketMQ 5.3).

    A topic gets as many queues as the range that saw most of them. ``batch`` are the topics of batch ConsumeQueues.
    """

    staging: StagingFolder
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
            part = files.join(self.staging.plans, f"topics-{uuid.uuid4().hex}")
            drafted = [[name, topic_entry(name, queues[name], name in self.batch)] for name in usual if queues[name]]
            files.write_bytes(self.staging.temporary, part, [f"{json.dumps(line)}\n".encode() for line in drafted])
            refused = [name for name in wanted if not is_usual(name)]
            result = TopicsResult(
                part,
                queues.get(SCHEDULE_TOPIC, 0) > 0,
                len(refused),
                refused[:NAMES_MAX],
                [name for name in usual if name in many][:NAMES_MAX],
            )
            yield results.batch([result])
