"""Is a checkpoint what the rest of the store wants it to be? What a broker itself leaves is no difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage_format.checkpoint import Checkpoint, read_checkpoint
from storage_format.differences import Tally

WHERE: Final = "checkpoint"


@dataclass(frozen=True)
class IndexEnd:
    """What a checkpoint has to do with one IndexFile: endTimestamp (ms), items, and whether the broker takes it for full."""

    name: str
    end_time: int
    items: int
    full: bool
    sealed: bool
    """full by its header alone, as a build leaves the last one"""


@dataclass(frozen=True)
class StoreTimes:
    """Offsets of the log's first byte and its end, store times of its last record and of the last one with a unit."""

    log_start: int
    log_end: int
    last_time: int
    last_unit_time: int
    records: int
    unit_records: int


def compare_checkpoint(data: bytes, store: StoreTimes, index: list[IndexEnd]) -> tuple[Checkpoint, Tally, int]:
    """The checkpoint, its differences, and the items of the IndexFile that the next crash deletes as with any broker."""
    found, findings = read_checkpoint(data)
    tally = Tally()
    for finding in findings:
        kind = "checkpoint-size" if finding.code == "checkpoint-size" else "checkpoint-bytes"
        tally.add(kind, finding.count, WHERE, finding.at, finding.text)
    _times(found, store, tally)
    if found.confirm_offset and not store.log_start <= found.confirm_offset <= store.log_end:
        text = f"{found.confirm_offset} where the log is {store.log_start} to {store.log_end}"
        tally.add("checkpoint-confirm", 1, WHERE, 32, text)
    usual = 0
    with_items = [file for file in index if file.items]
    for number, file in enumerate(with_items):
        if file.end_time <= found.index:
            continue
        last = number == len(with_items) - 1
        # IndexService.getAndCreateLastIndexFile moves it when a full file gets a successor: the last one is always above.
        if last and not file.sealed and not (file.full and index[-1].name != file.name):
            usual = file.items
            continue
        text = f"{file.name} ends at {file.end_time}, indexMsgTimestamp is {found.index}"
        tally.add("checkpoint-index", 1, WHERE, 16, text)
    return found, tally, usual


def _times(found: Checkpoint, store: StoreTimes, tally: Tally) -> None:
    """physic and logics. The broker's own rebuild leaves physic 0; what it dispatches again from counts both."""
    # Where the clock jumps back the last record may be older than the last one with a unit.
    wanted = min(store.last_time, store.last_unit_time) if store.unit_records else 0
    if 0 < found.physic < wanted:
        tally.add("checkpoint-stale", 1, WHERE, 0, f"physicMsgTimestamp {found.physic}, the log's end is of {wanted}")
    if found.logics < wanted:
        tally.add("checkpoint-stale", 1, WHERE, 8, f"logicsMsgTimestamp {found.logics}, the log's end is of {wanted}")
    newest = max(store.last_time, store.last_unit_time) if store.records else 0
    if min(found.physic, found.logics) > newest:
        text = f"physic and logics are {min(found.physic, found.logics)} or later, the last record is of {newest}"
        tally.add("checkpoint-ahead", 1, WHERE, 0, text)
