"""What a store says of its log beside it: epochs of a controller group, by themselves, and with the checkpoint against a
replica's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing.layout import TIMER_CHECK, TIMERS
from rocketmq_reindex.jobs.store import contents, group
from rocketmq_reindex.jobs.verifying.summary import PartFindings
from rocketmq_reindex.storage_format import epochs, layouts
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.storage_format.timer import layout as timer_layout
from rocketmq_reindex.storage_format.timer.files import beyond

_UNITS_READ: Final = 20_000
"""units of timerlog that are read at a time: 1 MB"""
_UNIT: Final = timer_layout.LOG_LAYOUT.size


def _wrong(epoch: epochs.Epoch, log: contents.StoreLog, log_end: int) -> str:
    """Return what is wrong with the place where an epoch begins; "" for a record, the log's end, and what has expired."""
    if not log.start <= epoch.start < log_end:
        return "" if epoch.start <= log_end else f"which lies behind the log's end at {log_end}"
    found = log.message(epoch.start)
    is_record = not isinstance(found, str) or found in (contents.FILLER, contents.LOST)
    return "" if is_record else f"where no record begins: {found}"


def check_epochs(store: str, roots: Sequence[str]) -> PartFindings:
    """Return what is wrong with the epochs of a store whose log is in ``roots``. Raises OSError, and InputError."""
    findings = PartFindings()
    read = group.read_epoch_file(store)
    if read is None and group.read_epoch_file(store, epochs.BACKUP) is None:
        return findings
    taken, name, stops = group.taken(store)
    so = "a broker does not start" if stops else f"a broker takes {name or 'no epoch'}"
    if read is None:
        findings.tally.add("epoch-file", 1, epochs.FILE, 0, f"is not there: {so}")
    for finding in read.findings if read is not None else ():
        findings.tally.add("epoch-file", finding.count, epochs.FILE, max(0, finding.at), f"{group.in_words(finding)}: {so}")
    with group.opened(roots) as log:
        log_end = group.log_end(log)
        for epoch in taken:
            wrong = _wrong(epoch, log, log_end)
            if wrong:
                text = f"epoch {epoch.epoch} begins at offset {epoch.start}, {wrong}"
                findings.tally.add("epoch-offset", 1, name, epoch.start, text)
        suspected = group.told_of(group.suspect_tail(store, log, log_end)) if taken else []
    if taken:
        last = epochs.in_order(taken)[-1]
        text = f"{name}: {counted(len(taken), 'epoch')}, the last one is {last.epoch}, from offset {last.start} on"
        findings.notes.append(text)
    findings.notes += suspected
    return findings


def check_timers(store: str, roots: Sequence[str]) -> PartFindings:
    """Return which units of ``timerlog`` lead behind the end of the log in ``roots``, as where that was cut, and they were not.

    Of units that a broker has read nothing is said, nor of those that lead to other records by now. Raises OSError, and
    InputError.
    """
    findings, folder = PartFindings(), files.join(store, TIMERS[0])
    if files.entry_of(folder).kind != files.FOLDER:
        return findings
    path = files.join(store, TIMER_CHECK)
    check = timer_layout.TimerCheckpoint()
    if files.entry_of(path).kind == files.FILE:
        check = timer_layout.TimerCheckpoint.from_bytes(files.head(path, timer_layout.SIZE))
    with group.opened(roots) as log:
        log_end = group.log_end(log)
    for name in sorted(files.names(folder)):
        shown = f"{TIMERS[0]}/{name}"
        if layouts.first_byte(name) is None or files.entry_of(files.join(folder, name)).kind != files.FILE:
            continue
        with files.Reader(files.join(folder, name)) as reader:
            at, asked, read = 0, 1, 1
            # Behind the last unit lie zeros, or a blank unit that closes the file.
            while asked and read == asked:
                asked = min(_UNITS_READ, (reader.size() - at) // _UNIT)
                read, found = beyond(reader.read(at, asked * _UNIT), log_end, check.read_time)
                if len(found):
                    text = f"{counted(len(found), 'unit')} of messages behind the log's end at {log_end}"
                    findings.tally.add("timer-beyond-log", len(found), shown, at + int(found[0]) * _UNIT, text)
                at += read * _UNIT
    return findings


def compare_epochs(stores: Sequence[str], roots: Sequence[Sequence[str]]) -> list[str]:
    """Return notes on two stores of a controller group: up to where their logs are the same by their epochs.

    Raises OSError, and InputError.
    """
    (mine, _, _), (other, _, _) = map(group.taken, stores)
    if not mine and not other:
        return []
    if not (mine and other):
        return [f"only {'A' if mine else 'B'} has epochs of a controller group"]
    ends = list[int]()
    for folders in roots:
        with group.opened(folders) as log:
            ends.append(group.log_end(log))
    same = epochs.same_up_to(mine, ends[0], other, ends[1])
    if same < 0:
        return ["epochs: the stores have none in common: a slave with the one log does not join a master with the other"]
    behind = [name for name, end in zip("AB", ends, strict=True) if end > same]
    cut = f"a slave cuts what it has behind that, here {' and '.join(behind)}" if behind else "where both end"
    return [f"epochs: the two logs are the same up to offset {same}, {cut}"]


def compare_checkpoints(stores: Sequence[str]) -> list[str]:
    """Return notes on where checkpoints differ. They say when each store was flushed, so that is no difference."""
    paths = [files.join(store, layouts.CHECKPOINT) for store in stores]
    there = [files.entry_of(path).kind == files.FILE for path in paths]
    if all(there):
        a, b = (files.head(path, CHECKPOINT_LAYOUT.size) for path in paths)
        return ["the checkpoints differ, as those of two brokers do"] if a != b else []
    return ["only one of the stores has a checkpoint"] if any(there) else []
