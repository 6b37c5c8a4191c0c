"""The data source ``rocketmq-consumequeue``: the units of ConsumeQueue and batch ConsumeQueue files as rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from rocketmq_reindex.storage_format.file_names import first_byte, queue_id
from rocketmq_reindex.storage_format.findings import CODES
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.batch_queue import BATCH_UNIT
from rocketmq_reindex.storage_format.queue.reader import FAULTS, UNIT, QueueFile, read_queue_file
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.messages.arrow_columns import TIME, times
from rocketmq_reindex.udfs.sql.base import DAMAGE, Reader, Source, fault_texts
from rocketmq_reindex.udfs.sql.filters import narrow_topics, pushed_numbers
from rocketmq_reindex.udfs.sql.folders import queue_folders
from rocketmq_reindex.udfs.sql.one_line import in_one_line
from rocketmq_reindex.udfs.sql.options import FAIL, ROWS, Topics, Words

GROUP_BYTES: Final = 64 << 20
"""Bytes of the files of one task, at least."""
GROUPS_MAX: Final = 512
"""Tasks, at most."""

_FIELDS: Final = (
    pa.field("topic", pa.string()),
    pa.field("queueId", pa.int32()),
    pa.field("consumeQueueOffset", pa.int64()),
    pa.field("commitLogOffset", pa.int64()),
    pa.field("msgSize", pa.int32()),
    pa.field("tagsCode", pa.int64()),
    # of batch ConsumeQueues alone
    pa.field("storeTimestamp", pa.int64()),
    pa.field("storeTime", TIME),
    pa.field("batchSize", pa.int32()),
)


class QueueUnits(NamedTuple):
    """One file of one queue."""

    topic: str
    queue_id: int
    path: str
    start: int
    """logical offset of its first byte"""
    batch: bool
    """whether it is a batch ConsumeQueue's"""


@dataclass
class QueueGroup(InputPartition):
    """Files that one task reads."""

    files: list[QueueUnits]


class ConsumeQueueSource(Source):
    """Makes readers of the units of a store (``ConsumeQueue`` and ``BatchConsumeQueue``, RocketMQ 5.3).

    Its options: docs/reference/sql.md.
    """

    known = ("topic", "excludeTopic", "queueId")
    fields = _FIELDS

    @classmethod
    def name(cls) -> str:
        return "rocketmq-consumequeue"

    def located(self, words: Words) -> list[tuple[str, bool]]:
        """The folders of topics, each with whether its queues are batch ones."""
        return queue_folders(words.path())

    def reader(self, schema: StructType) -> ConsumeQueueReader:
        """A reader of the columns ``schema``. Raises the errors of ``schema``, which Spark does not ask where it has one."""
        with in_one_line():
            return ConsumeQueueReader(self, schema)


class ConsumeQueueReader(Reader):
    """Reads groups of files. Raises UsageError for options that it does not take."""

    def __init__(self, source: ConsumeQueueSource, schema: StructType) -> None:
        super().__init__(source, schema)
        self.topics: Topics | None = Topics(self.words.words("topic"), self.words.words("excludeTopic"))
        wanted = self.words.words("queueId")
        if not all(re.fullmatch(r"[0-9]{1,10}", word) for word in wanted):
            raise self.words.error(f"queueId {self.words.text('queueId')!a}: take numbers, separated by commas")
        self.queues: set[int] | None = {int(word) for word in wanted} or None

    def narrow(self, filters: list[Any]) -> None:
        """Read less where the filters allow it."""
        self.topics = narrow_topics(self.topics, filters) if self.topics is not None else None
        asked = pushed_numbers("queueId", filters)
        if asked is not None:
            self.queues = asked if self.queues is None else self.queues & asked

    def plan(self) -> list[InputPartition]:
        """The groups to read."""
        if self.topics is None:
            return []
        found, sizes = [], []
        for unit, size in self._files(self.topics):
            found.append(unit)
            sizes.append(size)
        group = max(GROUP_BYTES, sum(sizes) // GROUPS_MAX)
        groups: list[QueueGroup] = []
        room = 0
        for unit, size in zip(found, sizes, strict=True):
            if not groups or room < size:
                groups.append(QueueGroup([]))
                room = group
            groups[-1].files.append(unit)
            room -= size
        return [*groups]

    def _files(self, topics: Topics) -> Iterator[tuple[QueueUnits, int]]:
        """Each wanted file, by topic, queue id and offset, with its size in bytes."""
        for tree, batch in self.located:
            for topic in files.listing(tree):
                # The name of a folder may be no UTF-8.
                name = topic.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
                if topic.kind != files.FOLDER or not topics.wants(name):
                    continue
                queues = [(number, e.path) for e in files.listing(topic.path) if e.kind == files.FOLDER
                          if (number := queue_id(e.name)) is not None]  # fmt: skip
                for number, path in sorted(queues):
                    if self.queues is not None and number not in self.queues:
                        continue
                    for file in files.listing(path):
                        start = first_byte(file.name)
                        if file.kind == files.FILE and start is not None and file.size:
                            yield QueueUnits(name, number, file.path, start, batch), file.size

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The units of one group, and its damage as the option onDamage says. Raises RefusedError with onDamage fail."""
        for unit in partition.files if isinstance(partition, QueueGroup) else []:
            with files.Reader(unit.path) as reader:
                data = reader.whole()
                batch = self._batch_units(unit, data) if unit.batch else self._units(unit, data)
            if batch.num_rows:
                yield batch

    def _units(self, unit: QueueUnits, data: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        file = read_queue_file(data, unit.start)
        bad = np.flatnonzero((file.kind != UNIT) & (file.fault != 0))
        if self.on_damage == FAIL and file.findings:
            finding = file.findings[0]
            self.refuse(escape(unit.path), f"{finding.text} (at {finding.at}, {finding.count} in all)")
        if self.on_damage == ROWS:
            rows = np.flatnonzero((file.kind == UNIT) | (file.fault != 0))
        else:
            rows = np.flatnonzero(file.kind == UNIT)
            if len(bad):
                self.skipped(escape(unit.path), len(bad), f"position {file.position + int(bad[0])}")
        return self._batch(unit, {
            "consumeQueueOffset": file.position + rows,
            "commitLogOffset": file.phy_offset[rows],
            "msgSize": file.size[rows],
            "tagsCode": file.tags_code[rows],
        }, len(rows), _damage(file, rows))  # fmt: skip

    def _batch_units(self, unit: QueueUnits, data: npt.NDArray[np.uint8]) -> pa.RecordBatch:
        table = np.frombuffer(data[: len(data) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE], BATCH_UNIT)
        # As BatchConsumeQueue.recover (5.3): a unit exists if its offset and size are valid.
        rows = table[(table["phy_offset"] >= 0) & (table["size"] > 0)]
        return self._batch(unit, {
            "consumeQueueOffset": rows["base"],
            "commitLogOffset": rows["phy_offset"],
            "msgSize": rows["size"],
            "tagsCode": rows["tags_code"],
            "storeTimestamp": rows["store_time"],
            "batchSize": rows["count"],
        }, len(rows), None)  # fmt: skip

    def _batch(
        self, unit: QueueUnits, columns: dict[str, npt.NDArray[Any]], count: int, damage: pa.Array | None
    ) -> pa.RecordBatch:
        made = []
        for field in self.schema:
            if field.name == "topic":
                made.append(pc.fill_null(pa.nulls(count, pa.string()), unit.topic))
            elif field.name == "queueId":
                made.append(pa.array(np.full(count, unit.queue_id, np.int32)))
            elif field.name == DAMAGE and damage is not None:
                made.append(damage)
            elif field.name == "storeTime" and "storeTimestamp" in columns:
                made.append(times(columns["storeTimestamp"].astype(np.int64)))
            elif field.name in columns:
                made.append(pa.array(columns[field.name].astype(field.type.to_pandas_dtype()), field.type))
            else:
                made.append(pa.nulls(count, field.type))
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _damage(file: QueueFile, rows: npt.NDArray[np.intp]) -> pa.Array:
    """What is wrong with each of the slots ``rows`` (string), null for a sound one."""
    return fault_texts(file.fault[rows], tuple(CODES[name] for name in FAULTS))
