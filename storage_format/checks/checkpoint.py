"""Compare a checkpoint with the rest of its store. What a broker itself leaves is no difference."""

from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.storage_format.checkpoints import CHECKPOINT_LAYOUT, SIZE, Checkpoint, read_checkpoint
from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.errors import Finding
from rocketmq_reindex.storage_format.versions import VersionRules

WHERE: Final = "checkpoint"
FIELDS: Final = CHECKPOINT_LAYOUT.names
_AT: Final = CHECKPOINT_LAYOUT.at
A_DAY: Final = 86_400_000
"""A crash or a rollback may leave one field later than the log by what was lost. No broker loses a whole day that way."""
FARTHEST: Final = 1 << 50
"""So many bytes a replica may lie behind its master, at most: more than any broker's disks hold."""


@dataclass(frozen=True)
class IndexEnd:
    """What counts of one IndexFile: endTimestamp (milliseconds), items, and whether the broker takes it for full."""

    name: str
    end_time: int
    items: int
    full: bool
    sealed: bool
    """full by its header alone, as a build leaves the last one"""
    end_place: int = 0


@dataclass(frozen=True)
class LogBounds:
    """What counts of the log: absolute offsets of its first byte and its end, store times in milliseconds, and how many
    records.

    The times are those of the last record, of the last record with a unit, and the latest of all, which is another one where
    the clock was set back.
    """

    log_start: int
    log_end: int
    last_time: int
    last_unit_time: int
    records: int
    unit_records: int
    latest_time: int = 0
    last_record: int = 0
    """absolute offset of the last record"""
    in_rocksdb: bool = False
    """whether the queues are in RocksDB: a start then asks these how far the log is dispatched, and not the checkpoint's times
    (``CommitLog.isMappedFileMatchedRecover``, 5.3.3)"""


def compare_checkpoint(
    data: bytes, store: LogBounds, index: list[IndexEnd], rules: VersionRules
) -> tuple[Checkpoint, Tally, int]:
    """Return (The checkpoint, its differences, the items of the last IndexFile where the next crash deletes it, as with any
    broker).

    ``index`` is in the order of the log. What is no difference, as brokers leave it: physic 0, after a rebuild to which nothing
    was added (``CommitLog`` sets it as it flushes new records): a crash then dispatches all again. physic alone behind the
    last record: the flush of a clean stop does not set it (``CommitLog.FlushRealTimeService``). confirmPhyOffset before the
    log's first byte: only a start sets it (``CommitLog.recoverNormally``), and segments expire after that. In 5.5 both logics
    fields may lie far behind the last unit: they move once a minute, and what a crash dispatches again begins there.
    """
    checkpoint, findings = read_checkpoint(data)
    tally = Tally()
    for finding in findings:
        if finding.code == "checkpoint-negative":
            _negative(checkpoint, store, tally)
            continue
        kind = "checkpoint-size" if finding.code == "checkpoint-size" else "checkpoint-bytes"
        tally.add(kind, finding.count, WHERE, finding.at, _text(finding, data))
    _times(checkpoint, store, rules, tally)
    if checkpoint.logics_offset > store.last_record and rules.checkpoint_fields == len(FIELDS):
        text = f"logicsPhysicalOffset {checkpoint.logics_offset}, the last record begins at {store.last_record}"
        tally.add("checkpoint-offset-ahead", 1, WHERE, _AT["logics_offset"], text)
    if checkpoint.master_flushed > store.log_end + FARTHEST:
        text = f"masterFlushedOffset {checkpoint.master_flushed}, the log ends at {store.log_end}"
        tally.add("checkpoint-master", 1, WHERE, _AT["master_flushed"], text)
    if checkpoint.confirm_offset > store.log_end:
        text = f"confirmPhyOffset {checkpoint.confirm_offset}, the log ends at {store.log_end}"
        tally.add("checkpoint-confirm", 1, WHERE, _AT["confirm_offset"], text)
    usual = 0
    with_items = [file for file in index if file.items]
    for number, file in enumerate(with_items):
        if file.end_time <= checkpoint.index:
            continue
        last = number == len(with_items) - 1
        # IndexService.getAndCreateLastIndexFile moves it when a full file gets a successor: the last one is always above.
        if last and not file.sealed and not (file.full and index[-1].name != file.name):
            usual = file.items
            continue
        text = f"{file.name} ends at {file.end_time}, indexMsgTimestamp is {checkpoint.index}"
        tally.add("checkpoint-index", 1, WHERE, _AT["index"], text)
    _index_ahead(checkpoint, store, with_items, tally)
    return checkpoint, tally, usual


def _text(finding: Finding, data: bytes) -> str:
    if finding.code == "checkpoint-size":
        return f"{len(data)} bytes instead of {SIZE}"
    return f"byte {finding.at}: {data[finding.at]} instead of 0"


def _negative(checkpoint: Checkpoint, store: LogBounds, tally: Tally) -> None:
    """Count negative fields, but not a time where the log ends with negative store times: each broker before 5.5 leaves it.

    A start takes such a time for 0 (``StoreCheckpoint.getMinTimestamp``).
    """
    usual = ("physic", "logics") if min(store.last_time, store.last_unit_time) < 0 else ()
    negative = [column for column, value in vars(checkpoint).items() if value < 0 and column not in usual]
    if negative:
        at = _AT[negative[0]]
        text = f"{FIELDS[at // 8]} {getattr(checkpoint, negative[0])}: negative"
        tally.add("checkpoint-bytes", len(negative), WHERE, at, text)


def _index_ahead(checkpoint: Checkpoint, store: LogBounds, index: list[IndexEnd], tally: Tally) -> None:
    """Check that indexMsgTimestamp is not later than it may be: it is the endTimestamp of a full file (``IndexService.flush``),
    or 0.

    After a crash ``IndexService.load`` keeps each IndexFile that ends at or before it, torn or not. No broker puts the items
    that the crash cost such a file there again.
    """
    ends = [file.end_time for file in index if file.full]
    latest = max([0, store.latest_time, *(file.end_time for file in index)])
    filling = index[-1] if index and not index[-1].full else None
    if filling and checkpoint.index > max(0, filling.end_time) and checkpoint.index not in ends:
        text = f"indexMsgTimestamp {checkpoint.index}, {filling.name}, which is not full, ends at {filling.end_time}"
    elif checkpoint.index > latest + A_DAY:
        text = f"indexMsgTimestamp {checkpoint.index}, the latest record is of {latest}"
    else:
        return
    tally.add("checkpoint-index-ahead", 1, WHERE, _AT["index"], text)


def _times(checkpoint: Checkpoint, store: LogBounds, rules: VersionRules, tally: Tally) -> None:
    """Check physic and logics. The broker's own rebuild leaves physic 0; a start dispatches again from the lower of both."""
    if store.in_rocksdb:
        return
    # Where the clock jumps back the last record may be older than the last one with a unit. Below 0 all times are alike.
    log_time = max(0, min(store.last_time, store.last_unit_time)) if store.unit_records else 0
    if 0 < checkpoint.physic < log_time and checkpoint.logics < log_time and not rules.thorough_flush:
        tally.add(
            "checkpoint-stale", 1, WHERE, _AT["physic"], f"physicMsgTimestamp {checkpoint.physic}, the log ends at {log_time}"
        )
    if max(0, checkpoint.logics) < log_time and not rules.thorough_flush:
        tally.add(
            "checkpoint-stale", 1, WHERE, _AT["logics"], f"logicsMsgTimestamp {checkpoint.logics}, the log ends at {log_time}"
        )
    newest = max(0, store.last_time, store.last_unit_time) if store.records else 0
    if min(checkpoint.physic, checkpoint.logics) > newest:
        text = (
            f"physicMsgTimestamp {checkpoint.physic} and logicsMsgTimestamp {checkpoint.logics}, the last record is of {newest}"
        )
        tally.add("checkpoint-ahead", 1, WHERE, _AT["physic"], text)
        return
    # One of them alone says nothing to a broker, which takes the lower, until the other is written, too.
    latest = max(newest, store.latest_time)
    for number, value in enumerate((checkpoint.physic, checkpoint.logics)):
        if value > latest + A_DAY:
            text = f"{FIELDS[number]} {value}, the latest record is of {latest}"
            tally.add("checkpoint-ahead", 1, WHERE, 8 * number, text)
