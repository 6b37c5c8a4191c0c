"""Rows of the Delta tables ``messages``, ``quarantine`` and ``files``, which executors make."""

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.kernels.java_text import hash_keys, murmur3_128
from rocketmq_reindex.storage_format.scan import range_scan, ranges, settings as scan_settings
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.messages.batches import MessageBatches, fields, string_buffers
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from rocketmq_reindex.udfs.table_schema import FILES, FIRST_BYTES, MESSAGES, QUARANTINE

# --------------------------------------------------------------------------------------------------------------------- messages
# Rows of the table ``messages``: executors read the records of the ranges that a build was made from once more.
#
# Such a range begins with a record that is known, so nothing is guessed again.

_OF_RECORD = [name for name in MESSAGES.arrow.names if name in fields(body=False, damage=False).names]


@dataclass(frozen=True)
class MessageRows:
    """Makes rows of ``MESSAGES`` from a task's share of the ranges ``specs``, which ``tasks`` tasks share.

    ``settings`` are those of the build's scan, but for messages only; ``build`` is the value of the column build.
    """

    specs: tuple[ranges.RangeSpec, ...]
    tasks: int
    settings: scan_settings.ScanSettings
    build: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        scanner = range_scan.RangeScanner(self.settings)
        everything = fields(body=False, damage=False)
        made = MessageBatches(pa.schema([everything.field(name) for name in _OF_RECORD]), layouts.INT64_MIN, layouts.INT64_MAX)
        let_go = files.outgrows_cache(sum(spec.high - spec.low for spec in self.specs))
        for task in handover.numbers(batches):
            for spec in handover.share(self.specs, task, self.tasks):
                ahead = min(spec.high, spec.data_end)
                with SegmentReader(spec.path, spec.segment_start, ahead=ahead, let_go=let_go) as segment:
                    for block in scanner.scan(spec, segment.read, segment.view):
                        for batch in made.of_block(block):
                            yield with_keys(batch, self.build)


def with_keys(batch: pa.RecordBatch, build: str) -> pa.RecordBatch:
    """Return a batch of ``MESSAGES``, from one with the columns that records have."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns |= _keys(columns["topic"], columns["uniqKey"], columns["keys"])
    columns["build"] = pa.array([build] * len(batch), pa.string())
    return pa.RecordBatch.from_arrays([columns[name] for name in MESSAGES.arrow.names], schema=MESSAGES.arrow)


def _keys(topic: pa.Array, unique: pa.Array, keys: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of hashes. Which texts are keys, and their order, is that of ``IndexService.buildIndex`` (RocketMQ
    5.3)."""
    count = len(topic)
    parts = pc.split_pattern(pc.fill_null(keys, ""), " ")
    part, row_of_part = pc.list_flatten(parts), pc.list_parent_indices(parts).to_numpy(zero_copy_only=False)
    is_key = pc.greater(pc.binary_length(part), 0)
    part, row_of_part = part.filter(is_key), row_of_part[is_key.to_numpy(zero_copy_only=False)].astype(np.int64)
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
    """Return ``values[at]`` as an array, null where not ``valid``."""
    out = np.zeros(len(at), np.int64)
    out[valid] = values[at[valid]]
    return pa.array(out, mask=~valid)


# ------------------------------------------------------------------------------------------------------------------- quarantine
# Rows of the table ``quarantine``: stretches of damage, each with its first bytes, which executors read.


def read_first_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``QUARANTINE`` with the first bytes filled in, where they can be read, and without passwords in paths."""
    for batch in batches:
        # One dict for each row: there are few, and each is a read of its own.
        rows = batch.to_pylist()
        for row in rows:
            row["firstBytes"] = first_bytes(row["path"], int(row["segment"]), row["offset"], row["length"])
            row["path"] = row["path"] and showing.redacted(row["path"])
        yield pa.RecordBatch.from_pylist(rows, schema=QUARANTINE.arrow)


def first_bytes(path: str | None, start: int, offset: int, length: int) -> str | None:
    """Return up to 64 bytes of damage in hex; None where they cannot be read.

    The segment at ``path`` (None: missing) begins at phy_offset ``start``, the damage at ``offset``, with ``length`` bytes.
    """
    if path is None:
        return None
    with contextlib.suppress(OSError, errors.InputError), files.Reader(path) as reader:
        at = offset - start
        count = min(FIRST_BYTES, length, reader.size() - at)
        return reader.read(at, count).hex() if at >= 0 and count > 0 else None
    return None


# ------------------------------------------------------------------------------------------------------------------ files table
# Rows of the table ``files``: executors read the manifest's list in stretches, so no line passes through the driver.

STRETCH: Final = 16 << 20
"""Bytes of the manifest that one task reads."""
_LINE: Final = b'  {"path": "'
"""How each line of the manifest's list begins, and no other line."""
_FIELDS: Final = pa.schema([("path", pa.string()), ("size", pa.int64()), ("used", pa.int64()), ("digest", pa.string())])
_PIECE: Final = 1 << 20


@dataclass(frozen=True)
class ManifestFiles:
    """Makes rows of ``FILES`` from the lines of the file ``manifest`` that begin in a task's share of its ``size`` bytes.

    ``tasks`` tasks share them; ``build`` is the value of the column build.
    """

    manifest: str
    size: int
    tasks: int
    build: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with files.Reader(self.manifest) as reader:
            for task in handover.numbers(batches):
                for lines in _lines(reader, *handover.share_of(self.size, task, self.tasks), self.size):
                    yield from self._rows(lines)

    def _rows(self, lines: list[bytes]) -> Iterator[pa.RecordBatch]:
        from pyarrow import json

        file_lines = b"\n".join(line.rstrip(b",") for line in lines if line.startswith(_LINE))
        if not file_lines:
            return
        # A line is far shorter than a block, in which it must end.
        options = json.ParseOptions(explicit_schema=_FIELDS, unexpected_field_behavior="ignore")
        table = json.read_json(io.BytesIO(file_lines), json.ReadOptions(use_threads=False, block_size=8 << 20), options)
        for batch in table.to_batches():
            path = batch.column("path")
            kind = pc.list_element(pc.split_pattern(path, "/", max_splits=1), 0)
            build = pa.array([self.build] * len(path), pa.string())
            columns = [build, path, kind, batch.column("size"), batch.column("used"), batch.column("digest")]
            yield pa.RecordBatch.from_arrays(columns, schema=FILES.arrow)


def _lines(reader: files.Reader, low: int, high: int, size: int) -> Iterator[list[bytes]]:
    """Yield the whole lines that begin in [low, high), some at a time."""
    # The line with the byte before ``low`` began earlier.
    at, open_line, skip = max(0, low - 1), b"", low > 0
    begin = at
    while begin < high and at < size:
        piece = reader.read(at, min(_PIECE, size - at))
        at += len(piece)
        *whole, open_line = (open_line + piece).split(b"\n")
        if at == size and open_line:
            whole, open_line = [*whole, open_line], b""
        taken = []
        for line in whole:
            if begin >= high:
                break
            if not skip:
                taken.append(line)
            skip = False
            begin += len(line) + 1
        yield taken
