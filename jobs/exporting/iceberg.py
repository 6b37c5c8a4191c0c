"""An Iceberg table of messages, by the library pyiceberg, without a catalog and without a JVM: its metadata are written behind
an export, and read for an import. The files are those of ``sinks.ParquetSink``, and have the topic as a column.

Iceberg names files by their whole paths, so a table says where it will lie, not where it is made.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import types
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_reindex.jobs.exporting import delta
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, listed
from rocketmq_reindex.udfs.exporting import sinks

METADATA: Final = "metadata"
"""the folder of what describes a table"""
ENDING: Final = ".metadata.json"
"""how the names of files end that each describe one version of a table"""
_FIRST: Final = f"v1{ENDING}"
"""as readers without a catalog call the first version"""
_HINT: Final = "version-hint.text"
"""names the version that such readers take"""
_MISSING: Final = "Iceberg tables are written and read with pyiceberg: pip install 'rocketmq-reindex[iceberg]'"
_BOUNDED: Final = ("commitLogOffset", "consumeQueueOffset", "storeTimestamp", "bornTimestamp")
"""columns whose least and greatest value stand in the metadata, so that readers pass over files"""
_FIELD_ID: Final = b"PARQUET:field_id"
_EPOCH: Final = datetime.date(1970, 1, 1)
_SHOWN: Final = 3


def library() -> Any:
    """Return pyiceberg. Raises InputError where it is not installed."""
    try:
        import pyiceberg.io.pyarrow
        import pyiceberg.serializers
        import pyiceberg.table.sorting
        import pyiceberg.table.update
    except ImportError:
        raise InputError(_MISSING) from None
    return pyiceberg


@contextlib.contextmanager
def _told(folder: str, what: str) -> Iterator[None]:
    """Raise InputError for what the library says of a table: it raises exceptions of many kinds, also plain ones."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        reason = escape(str(error).partition("\n")[0] or type(error).__name__, 200)
        raise InputError(f"{escape(folder)}: the metadata of this Iceberg table {what}: {reason}") from error


# ---------------------------------------------------------------------------------------------------------------------- writing


def check_place(target: str) -> None:
    """Raise UsageError for a path that readers take for another one: names of files are URIs in such a table."""
    if odd := [character for character in "?#" if character in target]:
        raise UsageError(f"--to {escape(target)}: readers of Iceberg end a path at {listed(odd)}: name another folder")
    if not {"\t", "\n", "\r"}.isdisjoint(target):
        raise UsageError(f"--to {escape(target)}: readers of Iceberg drop tabs and line ends of a path: name another folder")


class NewTable:
    """A table that is made below ``root``, and will lie at ``target``. ``columns`` are those of its rows."""

    def __init__(self, root: str, target: str, columns: pa.Schema) -> None:
        """Raises InputError where the library is missing, UsageError where no table can lie."""
        self._library = library()
        check_place(target)
        self._root, self._location = root, f"file://{target}"
        with _told(target, "cannot be written"):
            self._described = self._describe(columns)
        ids = self._described.schema()
        self.schema = pa.schema([_with_ids(field, ids) for field in columns])
        """the columns of the files, with the numbers that a table knows them by"""

    def _describe(self, columns: pa.Schema) -> Any:
        ice = self._library
        counter = iter(range(len(columns) + 1, 3 * len(columns) + 1))
        fields = [
            ice.types.NestedField(number, field.name, _kind(ice.types, field.type, counter), required=False)
            for number, field in enumerate(columns, 1)
        ]
        number = {field.name: field.field_id for field in fields}
        transforms = ice.transforms
        parts = [
            ice.partitioning.PartitionField(source_id=number[source], field_id=at, transform=transform, name=name)
            for at, (name, source, transform) in enumerate((
                (sinks.TOPIC, sinks.TOPIC, transforms.IdentityTransform()), (delta.DAY, "storeTime", transforms.DayTransform()),
            ), 1000)
        ]  # fmt: skip
        properties = {"format-version": "2", "write.metadata.metrics.default": "counts"}
        properties |= {f"write.metadata.metrics.column.{name}": "full" for name in _BOUNDED}
        return ice.table.metadata.new_table_metadata(
            ice.schema.Schema(*fields), ice.partitioning.PartitionSpec(*parts), ice.table.sorting.UNSORTED_SORT_ORDER,
            self._location, properties,
        )  # fmt: skip

    def _file(self, name: str) -> Any:
        """Return a file of the metadata: where it is, under the name that it will have."""
        inner = f"{METADATA}/{name}"
        system = pa.fs.LocalFileSystem()
        return self._library.io.pyarrow.PyArrowFile(f"{self._location}/{inner}", os.path.join(self._root, inner), system)

    def write(self, written: Iterable[sinks.WrittenFile]) -> None:
        """Describe the table: its first and only version has the files ``written``."""
        with _told(self._location.removeprefix("file://"), "cannot be written"):
            self._write(sorted(written))

    def _write(self, written: list[sinks.WrittenFile]) -> None:
        ice, described = self._library, self._described
        os.mkdir(os.path.join(self._root, METADATA))
        update, snapshots = ice.table.update, ice.table.snapshots
        snapshot_id = described.new_snapshot_id()
        rows, manifests = 0, []
        if written:
            place = self._file("files.avro")
            kept = ice.manifest.write_manifest(2, described.spec(), described.schema(), place, snapshot_id, "deflate")
            added = {"status": ice.manifest.ManifestEntryStatus.ADDED, "snapshot_id": snapshot_id}
            with kept as entries:
                for data_file in map(self._data_file, written):
                    rows += data_file.record_count
                    entries.add_entry(ice.manifest.ManifestEntry.from_args(**added, data_file=data_file))
            manifests = [kept.to_manifest_file()]
        list_file = self._file("manifests.avro")
        with ice.manifest.write_manifest_list(2, list_file, snapshot_id, None, 1, "deflate") as names:
            names.add_manifests(manifests)
        counts = {"data-files": len(written), "records": rows}
        told = {f"{when}-{name}": str(count) for when in ("added", "total") for name, count in counts.items()}
        snapshot = snapshots.Snapshot(
            snapshot_id=snapshot_id, sequence_number=1, manifest_list=list_file.location, schema_id=described.current_schema_id,
            summary=snapshots.Summary(snapshots.Operation.APPEND, **told),
        )  # fmt: skip
        changes = (
            update.AddSnapshotUpdate(snapshot=snapshot),
            update.SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),
        )
        described = update.update_table_metadata(described, changes)
        ice.serializers.ToOutputFile.table_metadata(described, self._file(_FIRST))
        with open(os.path.join(self._root, METADATA, _HINT), "x", encoding="ascii") as file:
            file.write("1")

    def _data_file(self, file: sinks.WrittenFile) -> Any:
        ice, described, footer = self._library, self._described, pq.read_metadata(file.path)
        arrow = ice.io.pyarrow
        known = arrow.data_file_statistics_from_parquet_metadata(
            footer,
            arrow.compute_statistics_plan(described.schema(), described.properties),
            arrow.parquet_path_to_id_mapping(described.schema()),
        )
        day = None if file.day is None else (datetime.date.fromisoformat(file.day) - _EPOCH).days
        return ice.manifest.DataFile.from_args(
            content=ice.manifest.DataFileContent.DATA, file_path=f"{self._location}/{os.path.relpath(file.path, self._root)}",
            file_format=ice.manifest.FileFormat.PARQUET, partition=ice.typedef.Record(file.topic, day),
            file_size_in_bytes=os.stat(file.path).st_size, sort_order_id=None, spec_id=described.default_spec_id,
            equality_ids=None, key_metadata=None, **known.to_serialized_dict(),
        )  # fmt: skip


def _kind(kinds: Any, kind: pa.DataType, numbers: Iterator[int]) -> Any:
    """Return the type that a column has in a table."""
    if pa.types.is_map(kind):
        key, value = _kind(kinds, kind.key_type, numbers), _kind(kinds, kind.item_type, numbers)
        return kinds.MapType(next(numbers), key, next(numbers), value, value_required=False)
    names = {pa.int32(): "Integer", pa.int64(): "Long", pa.string(): "String", pa.binary(): "Binary"}
    return getattr(kinds, f"{names.get(kind, 'Timestamptz')}Type")()


def _with_ids(field: pa.Field, schema: Any) -> pa.Field:
    """Return a column with its number in a table, and those of what it is made of."""
    known = schema.find_field(field.name)

    def numbered(made: pa.Field, number: int) -> pa.Field:
        return made.with_metadata({_FIELD_ID: str(number).encode()})

    if pa.types.is_map(field.type):
        key = numbered(field.type.key_field, known.field_type.key_id)
        field = field.with_type(pa.map_(key, numbered(field.type.item_field, known.field_type.value_id)))
    return numbered(field, known.field_id)


class IcebergSink(sinks.ParquetSink):
    """Writes the files of ``ParquetSink``, with the topic as a column, and the metadata of an Iceberg table that has them."""

    def __init__(self, root: str, schema: pa.Schema, target: str) -> None:
        """Raises InputError where the library of Iceberg tables is missing: before the log is read."""
        self._new = NewTable(root, target, schema)
        super().__init__(root, self._new.schema, sinks.DATA)

    def finish(self) -> list[str]:
        """Write all rows that wait, close the files, and make them a table. Return nothing odd: its rows have whole topics."""
        super().finish()
        self._new.write(self._written)
        return []


# ---------------------------------------------------------------------------------------------------------------------- reading


def is_table(folder: str) -> bool:
    """Return whether a folder is an Iceberg table, whole or not."""
    place = os.path.join(folder, METADATA)
    return os.path.isdir(place) and any(name.endswith(ENDING) or name == _HINT for name in os.listdir(place))


def table_files(folder: str) -> list[str]:
    """Return the files of a table as an export wrote it, by path.

    Raises InputError for one that was changed since: without its catalog nobody knows which version of it counts.
    """
    ice = library()
    versions = sorted(name for name in os.listdir(os.path.join(folder, METADATA)) if ENDING in name)
    if len(versions) != 1:
        raise _changed(folder, f"its metadata have {counted(len(versions), 'version')}, not one")
    with _told(folder, "cannot be read"):
        named = _named(ice, folder, versions[0])
    found = dict(_found(folder))
    for what, names in (("lacks", named.keys() - found.keys()), ("also has", found.keys() - named.keys())):
        if names:
            shown = listed([escape(name, 120) for name in sorted(names)[:_SHOWN]])
            raise _changed(folder, f"it {what} {counted(len(names), 'file')}: {shown}{' …' if len(names) > _SHOWN else ''}")
    for name, size in named.items():
        if size != found[name]:
            raise _changed(folder, f"{escape(name, 120)} has {counted(found[name], 'byte')}, not {size:,}")
    return sorted(os.path.join(folder, name) for name in named)


def _changed(folder: str, how: str) -> InputError:
    return InputError(
        f"{escape(folder)}: is an Iceberg table that was changed since it was exported: {how}: write its rows anew as Parquet"
    )


def _named(ice: Any, folder: str, version: str) -> dict[str, int]:
    """Return the files that the only version of a table names, from its folder on, and their bytes."""
    system, location = pa.fs.LocalFileSystem(), ""

    def opened(name: str) -> Any:
        return ice.io.pyarrow.PyArrowFile(name, _regular(os.path.join(folder, inner(name))), system)

    def inner(name: str) -> str:
        path = os.path.normpath(name.removeprefix(location).lstrip("/"))
        if not name.startswith(f"{location}/") or path.split(os.sep)[0] == os.pardir:
            raise InputError(f"{escape(folder)}: its metadata name {escape(name, 200)}, which lies elsewhere")
        return path

    described = ice.serializers.FromInputFile.table_metadata(
        ice.io.pyarrow.PyArrowFile(version, _regular(os.path.join(folder, METADATA, version)), system)
    )
    location = described.location.rstrip("/")
    if described.format_version > 2 or (len(described.schemas), len(described.partition_specs)) != (1, 1):
        raise _changed(folder, "it has another form")
    if len(described.snapshots) != 1 or described.current_snapshot() is None:
        raise _changed(folder, f"it has {counted(len(described.snapshots), 'snapshot')}, not one")
    named = dict[str, int]()
    for manifest in ice.manifest.read_manifest_list(opened(described.current_snapshot().manifest_list)):
        if manifest.content != ice.manifest.ManifestContent.DATA:
            raise _changed(folder, "rows of it were deleted")
        for entry in manifest.fetch_manifest_entry(types.SimpleNamespace(new_input=opened), discard_deleted=True):
            named[inner(entry.data_file.file_path)] = entry.data_file.file_size_in_bytes
    return named


def _found(folder: str) -> Iterator[tuple[str, int]]:
    """Yield the files of a table, from its folder on, and their bytes, but for those of its metadata. A link counts as one."""

    def unread(error: OSError) -> None:
        raise InputError(f"{escape(str(error.filename))}: {error.strerror}")

    for root, folders, names in os.walk(folder, onerror=unread):
        if root == folder:
            folders.remove(METADATA)
        for path in (os.path.join(root, name) for name in (*names, *folders)):
            if not os.path.isdir(path) or os.path.islink(path):
                yield os.path.relpath(path, folder), os.stat(_regular(path)).st_size


def _regular(path: str) -> str:
    """Return a path. Raises InputError for what is neither file nor folder: a FIFO is read for ever."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{escape(path)}: is no regular file")
    return path
