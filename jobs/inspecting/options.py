"""``inspect``: its options, its run, the kinds of files, what is found in one, and how that is shown.

The start of inspect imports no other command.
"""

from __future__ import annotations

import copy
import struct
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, get_args

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command.option import FileKind, parse_delay_levels
from rocketmq_reindex.jobs.command.option_table import default_of
from rocketmq_reindex.jobs.command.options import reader
from rocketmq_reindex.jobs.command.results import Output, OutputError, Result
from rocketmq_reindex.jobs.querying.shown import to_json
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.jobs.watching.watch import Stages
from rocketmq_reindex.storage_format import checkpoints, errors, layouts, showing
from rocketmq_reindex.storage_format.checkpoints import read_checkpoint
from rocketmq_reindex.storage_format.errors import ExitStatus, Finding, ReindexError, error_lines
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, IndexHeader
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import has_entry
from rocketmq_reindex.udfs.scan.segments import is_of_dledger
from rocketmq_reindex.udfs.times import show_time

# -------------------------------------------------------------------------------------------------------------------- inspected
# What ``inspect`` finds in a file.

Row = dict[str, Any]
NOT_TOLD: Final = "notTold"
"""the field of a summary that says which part of a file is not told, and why"""


class InspectedRows:
    """The records, units or items of a file. They are made one at a time, again for each iteration."""

    def __init__(self, make: Callable[[], Iterator[Row]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Row]:
        return self._make()


class Inspected(NamedTuple):
    """The summary of a file, and a row for each record, unit or item in it."""

    summary: dict[str, Any]
    rows: InspectedRows


# ------------------------------------------------------------------------------------------------------------------------ kinds
# The kind of a file of a store: by its folders, its name, and at last by its first bytes.

SEGMENT: Final = "segment"
QUEUE: Final = layouts.QUEUES
BATCH: Final = layouts.BATCH_QUEUES
EXT: Final = layouts.EXT_QUEUES
INDEX: Final = "index"
CHECKPOINT: Final = "checkpoint"
EPOCHS: Final = checkpoints.FILE
TIMER_CHECK: Final = "timercheck"
TIMER_LOG: Final = "timerlog"
TIMER_WHEEL: Final = "timerwheel"
ROCKSDB: Final = "rocksdb"
"""the one kind that is a folder"""
_MAGICS: Final = (r.MAGIC_V1, r.MAGIC_V2, r.MAGIC_BLANK)


def kind_of(path: str) -> str:
    """Return the kind. Raises InputError where it is not known, OSError where it cannot be read."""
    full = files.absolute(path)
    name, folder = files.base(full), files.parent(full)
    above = files.base(files.parent(files.parent(folder)))
    if files.base(folder) == "index":
        return INDEX
    if above in (QUEUE, BATCH, EXT):
        return above
    if files.base(folder) == layouts.COMMITLOG or is_of_dledger(folder):
        return SEGMENT
    if files.base(folder) == TIMER_LOG:
        return TIMER_LOG
    if name in (CHECKPOINT, TIMER_CHECK, EPOCHS):
        return name
    if name == checkpoints.BACKUP:
        return EPOCHS
    # With timerWheelSnapshotFlush there are copies with a position of timerlog in their names.
    if name == TIMER_WHEEL or name.startswith(f"{TIMER_WHEEL}."):
        return TIMER_WHEEL
    kind = _by_content(path, name)
    if kind is None:
        raise errors.InputError(f"{showing.escape(path)}: cannot tell its kind: give --kind {'|'.join(get_args(FileKind))}")
    return kind


def _by_content(path: str, name: str) -> str | None:
    pages = files.Pages(path)
    try:
        head, size = pages.read(0, max(HEADER_SIZE, r.ENTRY_HEAD)), pages.size
    finally:
        pages.close()
    if len(head) < HEADER_SIZE:
        return None
    if struct.unpack_from(">i", head, 4)[0] in _MAGICS or has_entry(head):
        return SEGMENT
    if layouts.first_byte(name) is not None:
        # A queue's file: a unit's size stands at its byte 8; a batch unit begins with the same fields.
        length = struct.unpack_from(">i", head, 8)[0]
        if length > 0 and (size % UNIT_SIZE == 0) != (size % BATCH_UNIT_SIZE == 0):
            return QUEUE if size % UNIT_SIZE == 0 else BATCH
        return None
    header = IndexHeader.from_bytes(head)
    if (
        len(name) == 17
        and layouts.is_index_file(name)
        and 0 <= header.begin_place <= header.end_place
        and header.index_count >= 0
    ):
        return INDEX
    return None


# ---------------------------------------------------------------------------------------------------------------------- options
# The options of ``rmq-reindex inspect``, and what they ask for.


@dataclass(frozen=True)
class Inspection:
    """Which files are inspected, and how. Sizes and offsets are in bytes; None: taken from the file."""

    files: tuple[str, ...]
    kind: str | None = None
    records: bool = False
    json: bool = False
    hash_slots: int | None = None
    index_items: int | None = None
    first_offset: int | None = None
    segment_size: int | None = None
    delay_levels: str = default_of("delay_levels")

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Slots and items of an IndexFile, where they are given."""
        return None if self.hash_slots is None or self.index_items is None else (self.hash_slots, self.index_items)

    def check(self) -> Inspection:
        """Return this inspection. Raises UsageError for values that no file can have."""
        if not all(self.files):
            raise errors.UsageError("rmq-reindex inspect: a FILE has no name: see --help")
        if (self.hash_slots is None) != (self.index_items is None):
            raise errors.UsageError("rmq-reindex inspect: --hash-slots and --index-items go together: see --help")
        for name in ("hash_slots", "index_items", "segment_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise errors.UsageError(f"rmq-reindex inspect: --{name.replace('_', '-')} takes a number above 0: see --help")
        if self.first_offset is not None and (len(self.files) > 1 or not 0 <= self.first_offset <= layouts.INT64_MAX):
            raise errors.UsageError("rmq-reindex inspect: --first-offset takes a number from 0 on, and one FILE: see --help")
        parse_delay_levels(self.delay_levels)
        return self


def inspection(given: Mapping[str, Any]) -> Inspection:
    """Return what options ask for, by the names of the parser. Raises UsageError."""
    return Inspection(**{**given, "files": tuple(given["files"])}).check()


parse_inspection: Final = reader("inspect", inspection)
"""Return what the words behind ``inspect`` ask for. Raises UsageError."""


# ------------------------------------------------------------------------------------------------------------------------- look
# One file of a store: its kind, and what it holds.


@dataclass(repr=False)
class InspectResult(Result):
    """What one file of a store holds. ``summary`` has the fields of its kind: ``result["units"]``."""

    file: str
    """its path, without a password"""
    kind: str
    """``segment``, ``consumequeue``, ``consumequeue_ext``, ``batchconsumequeue``, ``index``, ``checkpoint``, ``timercheck``,
    ``timerlog``, ``timerwheel`` or ``epochFileCheckpoint``; ``rocksdb`` for the folder of a database"""
    summary: Mapping[str, Any]
    records: Iterable[dict[str, Any]]
    """with ``records=True`` every record, unit or item, one at a time and again for each iteration; else empty"""

    def __getitem__(self, name: str) -> Any:
        return self.summary[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``rmq-reindex inspect --json`` prints of the file. It has no records."""
        return {"file": self.file, "kind": self.kind, **copy.deepcopy(dict(self.summary))}

    def _facts(self) -> dict[str, str]:
        plain = {name: str(value) for name, value in self.summary.items() if isinstance(value, int | str)}
        return {"file": self.file, "kind": self.kind, **dict(list(plain.items())[:6])}


def look(path: str, asked: Inspection, told: errors.ProgressListener | None = None) -> InspectResult:
    """Return what one file holds; ``told`` is told how far the reading is.

    Raises InputError and UnreadableError for a file that is none of a store, and OSError.
    """
    entry = files.entry_of(path)
    if entry.kind == files.FOLDER and asked.kind is None and _is_database(path):
        from rocketmq_reindex.jobs.inspecting.derived_files import database

        inspected = database(path)
        return InspectResult(showing.redacted(path), ROCKSDB, inspected.summary, inspected.rows if asked.records else ())
    if entry.kind != files.FILE:
        what, hint = "is no file", "; rmq-reindex info looks at a whole one"
        if entry.kind == files.ABSENT:
            what, hint = "is not there", ""
        raise errors.InputError(f"{showing.escape(path)}: {what}: give files of a store{hint}")
    kind = asked.kind or kind_of(path)
    inspected = _inspect(kind, path, asked, told or errors.NoListener())
    return InspectResult(showing.redacted(path), kind, inspected.summary, inspected.rows if asked.records else ())


def _is_database(folder: str) -> bool:
    """Return whether a folder holds RocksDB's files."""
    return bool(layouts.rocksdb_files(entry.name for entry in files.listing(folder) if entry.kind == files.FILE))


def _inspect(kind: str, path: str, asked: Inspection, told: errors.ProgressListener) -> Inspected:
    """Modules that compile are imported for their own kind alone."""
    if kind == "segment":
        from rocketmq_reindex.jobs.inspecting.segment import segment

        return segment(path, asked.segment_size, asked.first_offset, parse_delay_levels(asked.delay_levels), told)
    if kind == "index":
        from rocketmq_reindex.jobs.inspecting.index import index

        return index(path, asked.sizes, told)
    if kind in (CHECKPOINT, EPOCHS):
        return (_checkpoint if kind == CHECKPOINT else _epochs)(path)
    if kind in (TIMER_CHECK, TIMER_LOG, TIMER_WHEEL):
        from rocketmq_reindex.jobs.inspecting.derived_files import timer_check, timer_log, timer_wheel

        return {TIMER_CHECK: timer_check, TIMER_LOG: timer_log, TIMER_WHEEL: timer_wheel}[kind](path)
    from rocketmq_reindex.jobs.inspecting.derived_files import batch_queue, ext_queue, queue

    return {QUEUE: queue, EXT: ext_queue, BATCH: batch_queue}[kind](path, asked.first_offset)


# ------------------------------------------------------------------------------------------------------------------------- show
# How inspect shows a file: a summary of its fields, and rows of what it holds.


def show_summary(summary: dict[str, Any], as_json: bool) -> None:
    """Print the fields of a file."""
    from rocketmq_reindex.jobs.querying.shown import terminal_width

    print(to_json(summary) if as_json else summary_text(summary, terminal_width()))


def summary_text(summary: dict[str, Any], width: int | None = None) -> str:
    """Return the fields of a file as a text; lists of records (dicts) become tables of their own."""
    from rocketmq_reindex.jobs.querying.shown import cell, record_lines, row_lines

    lists = {name: value for name, value in summary.items() if isinstance(value, list) and value}
    tables = {name: value for name, value in lists.items() if isinstance(value[0], dict)}
    fields: list[tuple[str, str]] = []
    for name, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(part)}" for key, part in value.items()) or "-"
        elif isinstance(value, list) and not value:
            value = "none"
        if name not in tables:
            fields.append((name, cell(value)))
    lines = record_lines(fields)
    for name, rows in tables.items():
        lines += ["", f"{name}:", "", *row_lines(rows, width=width)]
    return "\n".join(lines)


def show_rows(rows: Iterable[Row], as_json: bool) -> None:
    """One line a row, as it comes: a file may hold millions."""
    for row in rows:
        print(to_json(row) if as_json else "  ".join(f"{name}={_text(value)}" for name, value in row.items()))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_text(part) for part in value) or "-"
    if isinstance(value, dict):
        return ",".join(f"{_text(key)}:{_text(part)}" for key, part in value.items()) or "-"
    return "-" if value is None else showing.printable(str(value))


# ------------------------------------------------------------------------------------------------------------------- checkpoint
# A checkpoint, and the epochs of a controller group, are shown without numpy.

_CHECKPOINT_MOST: Final = 1 << 20
"""bytes that are read at most: a broker's checkpoint has 4,096, and some 20 for each epoch"""


def _checkpoint(path: str) -> Inspected:
    """Return what a checkpoint holds, with a row for each field."""
    data = files.read_bytes(path, _CHECKPOINT_MOST)
    fields, findings = read_checkpoint(data)
    times = {"physicMsgTimestamp": fields.physic, "logicsMsgTimestamp": fields.logics, "indexMsgTimestamp": fields.index}
    offsets = {
        "masterFlushedOffset": fields.master_flushed,
        "confirmPhyOffset": fields.confirm_offset,
        "logicsPhysicalOffset": fields.logics_offset,
    }
    summary: dict[str, Any] = {"bytes": len(data)}
    for name, value in times.items():
        summary[name] = value
        summary[name.replace("Timestamp", "Time")] = show_time(value) if value else None
    summary |= offsets
    summary["findings"] = _shown(findings)
    rows = [{"field": name, "value": value} for name, value in (times | offsets).items()]
    return Inspected(summary, InspectedRows(lambda: iter(rows)))


def _shown(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [{"code": finding.code, "at": finding.at, "count": finding.count, "text": finding.text} for finding in findings]


def _epochs(path: str) -> Inspected:
    """Return what a file of epochs holds, with a row for each."""
    data = files.read_bytes(path, _CHECKPOINT_MOST)
    file = checkpoints.read_epochs(data)
    ends = [entry.start for entry in file.entries[1:]]
    rows = [
        {"epoch": entry.epoch, "startOffset": entry.start, "endOffset": ends[number] if number < len(ends) else None}
        for number, entry in enumerate(file.entries)
    ]
    summary: dict[str, Any] = {"bytes": len(data), "epochs": len(rows), "isRead": file.is_read}
    summary |= {"first": rows[0] if rows else None, "last": rows[-1] if rows else None, "findings": _shown(file.findings)}
    return Inspected(summary, InspectedRows(lambda: iter(rows)))


# ------------------------------------------------------------------------------------------------------------------ the command


def inspect(arguments: Sequence[str]) -> int:
    """Inspect every file in turn. Return the exit status: 1 where a file could not be read, or not be told whole."""
    with Output() as output:
        asked = parse_inspection(arguments)
        shown = 0
        for path in asked.files:
            failed = _show(path, asked, apart=shown > 0 and not asked.json)
            shown += not failed
            output.status = max(output.status, failed)
    return output.status


def _show(path: str, asked: Inspection, apart: bool) -> int:
    """Print one file, ``apart`` from the one before it by an empty line. Return the exit status."""
    try:
        with failures_as_errors(path):
            with Stages(quiet=False, loop=watch.SCAN_LOOP, loops={"read": "", "check": watch.INDEX_LOOP}) as told:
                inspected = look(path, asked, told)
            if apart:
                print()
            show_summary(inspected.to_dict(), asked.json)
            if asked.records:
                if not asked.json:
                    print()
                show_rows(inspected.records, asked.json)
            sys.stdout.flush()
            if why := inspected.summary.get(NOT_TOLD):
                raise errors.InputError(f"{showing.escape(path)}: {why}")
    except OutputError:
        raise
    except ReindexError as error:
        print(error_lines(str(error)), file=sys.stderr)
        return ExitStatus.FAILED
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(inspect(sys.argv[1:]))
