"""Rows of the table ``messages``: executors read the records of the ranges that a build was made from once more.

Such a range begins with a record that is known, so nothing is guessed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.kernels.murmur3 import murmur3_128
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.storage_format.text.hashes import hash_keys
from rocketmq_reindex.udfs import files, plans
from rocketmq_reindex.udfs.messages.arrow_columns import string_buffers
from rocketmq_reindex.udfs.messages.batches import MessageBatches, fields
from rocketmq_reindex.udfs.scan.segment_reader import SegmentReader
from rocketmq_reindex.udfs.tables.schema import MESSAGES

_OF_RECORD = [name for name in MESSAGES.arrow.names if name in fields(body=False, damage=False).names]


@dataclass(frozen=True)
class MessageRows:
    """Makes rows of ``MESSAGES`` from a task's share of the ranges ``specs``, which ``tasks`` tasks share.

    ``settings`` are those of the build's scan, but for messages only; ``build`` is the value of the column build.
    """

    specs: tuple[RangeSpec, ...]
    tasks: int
    settings: ScanSettings
    build: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scanner = RangeScanner(self.settings)
        everything = fields(body=False, damage=False)
        made = MessageBatches(pa.schema([everything.field(name) for name in _OF_RECORD]), INT64_MIN, INT64_MAX)
        let_go = files.outgrows_cache(sum(spec.high - spec.low for spec in self.specs))
        for task in plans.numbers(batches):
            for spec in plans.share(self.specs, task, self.tasks):
                ahead = min(spec.high, spec.data_end)
                with SegmentReader(spec.path, spec.segment_start, ahead=ahead, let_go=let_go) as segment:
                    for block in scanner.scan(spec, segment.read, segment.view):
                        for batch in made.of_block(block):
                            yield with_keys(batch, self.build)


def with_keys(batch: pa.RecordBatch, build: str) -> pa.RecordBatch:
    """A batch of ``MESSAGES``, from one with the columns that records have."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= _keys(columns["topic"], columns["uniqKey"], columns["keys"])
    columns["build"] = pa.array([build] * len(batch), pa.string())
    return pa.RecordBatch.from_arrays([columns[name] for name in MESSAGES.arrow.names], schema=MESSAGES.arrow)


def _keys(topic: pa.Array, unique: pa.Array, keys: pa.Array) -> dict[str, pa.Array]:
    """The columns of hashes. Which texts are keys, and their order, is that of ``IndexService.buildIndex`` (RocketMQ 5.3)."""
    count = len(topic)
    parts = pc.split_pattern(pc.fill_null(keys, ""), " ")
    part, row_of_part = pc.list_flatten(parts), pc.list_parent_indices(parts).to_numpy(zero_copy_only=False)
    some = pc.greater(pc.binary_length(part), 0)
    part, row_of_part = part.filter(some), row_of_part[some.to_numpy(zero_copy_only=False)].astype(np.int64)
    has = unique.is_valid()
    row_of_unique = np.flatnonzero(has.to_numpy(zero_copy_only=False))
    # Each message's unique key comes first, its other keys behind it.
    order = np.argsort(np.concatenate([2 * row_of_unique, 2 * row_of_part + 1]), kind="stable")
    row = np.concatenate([row_of_unique, row_of_part])[order]
    text = pa.concat_arrays([unique.filter(has), part]).take(pa.array(order))
    joined = pc.binary_join_element_wise(topic.take(pa.array(row)), text, "#")
    hashes, prints = hash_keys(*string_buffers(joined)), murmur3_128(*string_buffers(joined))[:, 0].view(np.int64)
    ends = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=count), out=ends[1:])
    has_unique = has.to_numpy(zero_copy_only=False)
    behind = ends[:-1] + has_unique
    return {
        "keyHashes": pa.ListArray.from_arrays(pa.array(ends), pa.array(hashes)),
        "keyFingerprints": pa.ListArray.from_arrays(pa.array(ends), pa.array(prints)),
        "uniqFingerprint": _taken(prints, ends[:-1], has_unique),
        "keyFingerprint": _taken(prints, behind, behind < ends[1:]),
    }


def _taken(values: npt.NDArray[np.int64], at: npt.NDArray[np.int32], valid: npt.NDArray[np.bool_]) -> pa.Array:
    """``values[at]`` as an array, null where not ``valid``."""
    out = np.zeros(len(at), np.int64)
    out[valid] = values[at[valid]]
    return pa.array(out, mask=~valid)
