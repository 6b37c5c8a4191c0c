"""A Delta table of messages, by the library deltalake and without a JVM: its log is written behind an export, and read for an
import. The files are those of ``sinks.ParquetSink``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape, listed
from rocketmq_reindex.udfs.exporting.sinks import TOPIC, ParquetSink, WrittenFile

LOG: Final = "_delta_log"
"""the folder of a table's log"""
DAY: Final = "day"
"""the column by which a table is parted, beside TOPIC"""
_MISSING: Final = "Delta tables are written and read with deltalake: pip install 'rocketmq-reindex[deltalake]'"
_BOUNDED: Final = ("commitLogOffset", "consumeQueueOffset", "storeTimestamp", "bornTimestamp")
"""columns of numbers whose least and greatest value stand in the table's log, so that readers pass over files"""
_HARMLESS: Final = frozenset({"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""what a table may ask of its readers: nothing of it changes which rows of a file count, or how its columns are called"""


def library() -> Any:
    """Return deltalake. Raises InputError where it is not installed."""
    try:
        import deltalake.transaction
    except ImportError:
        raise InputError(_MISSING) from None
    return deltalake


def _first_line(error: Exception) -> str:
    """Return what the library says, without the calls in it that led there."""
    return escape(str(error).partition("\n")[0], 200)


@contextlib.contextmanager
def _log_of(folder: str, what: str) -> Iterator[str]:
    """Yield an empty folder for the log of a table, and raise InputError for what the library says of it.

    The library takes ``%41`` in the path of a table for ``A``, so the log lies here while it works. It raises
    exceptions of many kinds, also plain ones.
    """
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-delta-") as place:
        try:
            yield place
        except Exception as error:
            raise InputError(f"{escape(folder)}: the log of this Delta table {what}: {_first_line(error)}") from error


def write_log(root: str, schema: pa.Schema, written: Iterable[WrittenFile]) -> None:
    """Make a table of files below ``root``, whose rows have the columns of ``schema`` without the topic."""
    delta = library()
    parted = [pa.field(TOPIC, pa.string()), pa.field(DAY, pa.date32())]
    columns = pa.schema([*parted, *(field for field in schema if field.name != TOPIC)])
    actions = [_action(delta, root, file) for file in written]
    with _log_of(root, "cannot be written") as place:
        delta.transaction.create_table_with_add_actions(
            place, delta.Schema.from_arrow(columns), actions, mode="error", partition_by=[TOPIC, DAY]
        )
        shutil.move(os.path.join(place, LOG), os.path.join(root, LOG))


def _action(delta: Any, root: str, file: WrittenFile) -> Any:
    status = os.stat(file.path)
    return delta.transaction.AddAction(
        path=os.path.relpath(file.path, root),  # it is quoted there
        size=status.st_size,
        partition_values={TOPIC: file.topic, DAY: file.day},
        modification_time=int(status.st_mtime * 1000),
        data_change=True,
        stats=json.dumps(_statistics(pq.read_metadata(file.path))),
    )


def _statistics(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return the number of rows of a file, and the bounds of some columns, as the log of a table has them."""
    low, high = dict[str, int](), dict[str, int]()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            name, known = column.path_in_schema, column.statistics
            if name in _BOUNDED and known is not None and known.has_min_max:
                low[name] = min(low.get(name, known.min), known.min)
                high[name] = max(high.get(name, known.max), known.max)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high}


class DeltaSink(ParquetSink):
    """Writes the files of ``ParquetSink``, and the log of a Delta table that names them: with the whole topic, and the day."""

    def __init__(self, root: str, schema: pa.Schema) -> None:
        """Raises InputError where the library of Delta tables is missing: before the log is read."""
        super().__init__(root)
        library()
        self._schema = schema

    def finish(self) -> list[str]:
        """Write all rows that wait, close the files, and make them a table. Return nothing odd: its log has whole topics."""
        super().finish()
        write_log(self._root, self._schema, self._written)
        return []


def table_files(folder: str) -> list[WrittenFile]:
    """Return the files that the newest version of a table names, by path.

    Raises InputError for a table that is parted otherwise, or whose log says more of its rows than which files they are in.
    """
    delta = library()
    with _log_of(folder, "cannot be read") as place:
        shutil.copytree(os.path.join(folder, LOG), os.path.join(place, LOG))
        table = delta.DeltaTable(place)
        asked = sorted({*(table.protocol().reader_features or [])} - _HARMLESS)
        parted = table.metadata().partition_columns
        actions = pa.table(table.get_add_actions(flatten=False)).to_pylist()
    if asked:
        raise InputError(
            f"{escape(folder)}: is a Delta table with {escape(listed(asked))}: write it anew without, or as Parquet"
        )
    if TOPIC not in parted or not {*parted} <= {TOPIC, DAY}:
        # What a table is parted by need not be a column of its files.
        by = escape(listed(parted), 200) or "nothing"
        raise InputError(
            f"{escape(folder)}: is a Delta table parted by {by}, not by topic and day: write it anew, or as Parquet"
        )
    files = []
    for action in actions:
        path = os.path.normpath(os.path.join(folder, urllib.parse.unquote(action["path"])))
        if os.path.commonpath([os.path.abspath(path), os.path.abspath(folder)]) != os.path.abspath(folder):
            raise InputError(f"{escape(folder)}: its log names {escape(action['path'], 200)}, which lies elsewhere")
        values = action["partition"]
        if values[TOPIC] is None:
            raise InputError(f"{escape(path)}: the table's log names no topic for its rows")
        files.append(WrittenFile(path, values[TOPIC], str(values[DAY]) if values.get(DAY) is not None else None))
    return sorted(files)
