"""What a store says of its log beside it: epochs of a controller group, by themselves, and with the checkpoint against a
replica's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.verifying.summary import PartFindings
from rocketmq_reindex.storage_format import epochs, layouts
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.epochs import Epoch, EpochFile
from rocketmq_reindex.storage_format.showing import counted

_MOST: Final = 1 << 20
"""bytes that are read at most: a broker's has some 20 for each epoch"""


def read_epoch_file(store: str, name: str = epochs.FILE) -> EpochFile | None:
    """Return the epochs of a store; None without such a file. Raises OSError, and InputError."""
    path = files.join(store, name)
    return epochs.read_epochs(files.read_bytes(path, _MOST)) if files.entry_of(path).kind == files.FILE else None


def _taken(store: str) -> tuple[Sequence[Epoch], str]:
    """Return the epochs that a broker has when it starts, and from which file: "" where neither is taken."""
    for name in (epochs.FILE, epochs.BACKUP):
        read = read_epoch_file(store, name)
        if read is not None and read.stops:
            return (), ""
        if read is not None and read.is_read and read.entries:
            return read.entries, name
    return (), ""


def _log_end(log: contents.StoreLog) -> int:
    """Return the offset behind the log's last record (``CommitLog.getMaxOffset`` of a broker that has started)."""
    record = contents.last_record(log)
    return log.start if record is None else record.phy_offset + record.size


def _wrong(epoch: Epoch, log: contents.StoreLog, log_end: int) -> str:
    """Return what is wrong with the place where an epoch begins; "" for a record, the log's end, and what has expired."""
    if not log.start <= epoch.start < log_end:
        return "" if epoch.start <= log_end else f"which lies behind the log's end at {log_end}"
    found = log.message(epoch.start)
    is_record = not isinstance(found, str) or found in (contents.FILLER, contents.LOST)
    return "" if is_record else f"where no record begins: {found}"


def check_epochs(store: str, roots: Sequence[str]) -> PartFindings:
    """Return what is wrong with the epochs of a store whose log is in ``roots``. Raises OSError, and InputError."""
    findings = PartFindings()
    read = read_epoch_file(store)
    if read is None and read_epoch_file(store, epochs.BACKUP) is None:
        return findings
    taken, name = _taken(store)
    if read is None:
        findings.tally.add("epoch-file", 1, epochs.FILE, 0, f"is not there: a broker takes {name or 'no epoch'}")
    for finding in read.findings if read is not None else ():
        so = "a broker does not start" if read is not None and read.stops else f"a broker takes {name or 'no epoch'}"
        text = f"line {finding.at}: {finding.text}" if finding.at >= 0 else finding.text
        findings.tally.add("epoch-file", finding.count, epochs.FILE, max(0, finding.at), f"{text}: {so}")
    with contextlib.closing(contents.StoreLog(roots, Notes.silent())) as log:
        log_end = _log_end(log)
        for epoch in taken:
            wrong = _wrong(epoch, log, log_end)
            if wrong:
                text = f"epoch {epoch.epoch} begins at offset {epoch.start}, {wrong}"
                findings.tally.add("epoch-offset", 1, name, epoch.start, text)
    if taken:
        last = taken[-1]
        text = f"{name}: {counted(len(taken), 'epoch')}, the last one is {last.epoch}, from offset {last.start} on"
        findings.notes.append(text)
    return findings


def compare_epochs(stores: Sequence[str], roots: Sequence[Sequence[str]]) -> list[str]:
    """Return notes on two stores of a controller group: up to where their logs are the same by their epochs.

    Raises OSError, and InputError.
    """
    (mine, my_name), (other, other_name) = map(_taken, stores)
    if not my_name and not other_name:
        return []
    if not (my_name and other_name):
        return [f"only {'A' if my_name else 'B'} has epochs of a controller group"]
    ends = list[int]()
    for folders in roots:
        with contextlib.closing(contents.StoreLog(folders, Notes.silent())) as log:
            ends.append(_log_end(log))
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
