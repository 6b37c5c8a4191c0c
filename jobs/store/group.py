"""A store of a controller group: its epochs as a broker takes them, and the records behind what the group has confirmed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store import contents, folders
from rocketmq_reindex.storage_format import epochs, layouts
from rocketmq_reindex.storage_format.checkpoint import CHECKPOINT_LAYOUT, read_checkpoint
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.findings import Finding
from rocketmq_reindex.storage_format.showing import counted, reason

_MOST: Final = 1 << 20
"""bytes of a file of epochs that are read at most: a broker's has some 20 for each epoch"""
COUNTED: Final = 20_000
"""records of a tail that are counted at most"""

SUSPECT: Final = (
    "a master may have cut them, and a kill brought them back: compare the store with the master's before it serves"
)


class Taken(NamedTuple):
    """What a broker has of epochs when it starts: ``name`` is the file that it takes, "" where it takes none.

    ``stops`` says why the start ends there, in words, and ``name`` is that file; "" where it does not.
    """

    entries: tuple[epochs.Epoch, ...] = ()
    name: str = ""
    stops: str = ""

    def behind(self, log_end: int) -> list[epochs.Epoch]:
        """Return the epochs that begin behind the end of the log."""
        return [epoch for epoch in self.entries if epoch.start > log_end]


def read_epoch_file(store: str, name: str = epochs.FILE) -> epochs.EpochFile | None:
    """Return the epochs of a store; None without such a file. Raises OSError, and InputError."""
    path = files.join(store, name)
    return epochs.read_epochs(files.read_bytes(path, _MOST)) if files.entry_of(path).kind == files.FILE else None


def taken(store: str, names: Sequence[str] = (epochs.FILE, epochs.BACKUP)) -> Taken:
    """Return the epochs that a broker has when it starts (``CheckpointFile.read``), of these files.

    Raises OSError, and InputError.
    """
    for name in names:
        read = read_epoch_file(store, name)
        if read is not None and read.stops:
            return Taken(name=name, stops=in_words(read.findings[0]))
        if read is not None and read.is_read and read.entries:
            return Taken(read.entries, name)
    return Taken()


def in_words(finding: Finding) -> str:
    """Return what is wrong with a file of epochs, with the line as an editor counts them, from 1 on."""
    text = finding.text.removesuffix(" (at: line)")
    return f"line {finding.at + 1}: {text}" if finding.at >= 0 else text


def opened(roots: Sequence[str]) -> contextlib.closing[contents.StoreLog]:
    """Return the log in ``roots`` as a context manager. Raises OSError, and InputError."""
    return contextlib.closing(contents.StoreLog(roots, folders.Notes.silent()))


def log_end(log: contents.StoreLog) -> int:
    """Return the offset behind the log's last record (``CommitLog.getMaxOffset`` of a broker that has started)."""
    record = contents.last_record(log)
    return log.start if record is None else record.phy_offset + record.size


class Tail(NamedTuple):
    """Records behind the offset that the group has confirmed: the first one begins at ``offset``.

    ``is_all`` is whether all ``records`` up to ``end`` were counted.
    """

    offset: int
    end: int
    records: int
    is_all: bool
    confirmed: int

    def __str__(self) -> str:
        count = counted(self.records, "record") if self.is_all else f"more than {counted(self.records, 'record')}"
        return f"{count} from offset {self.offset} on, which end behind the confirmed offset {self.confirmed}"


def suspect_tail(store: str, log: contents.StoreLog, end: int) -> Tail | None:
    """Return the sound records in front of ``end`` that are not confirmed (``confirmPhyOffset``); None without any.

    None also where the checkpoint has no such offset. A slave that was cut, and killed before it wrote over what stood there,
    has such records (apache/rocketmq 10666). So has any master that was killed, or whose slaves were behind. Raises OSError,
    and InputError.
    """
    path = files.join(store, layouts.CHECKPOINT)
    if files.entry_of(path).kind != files.FILE:
        return None
    confirmed = read_checkpoint(files.head(path, CHECKPOINT_LAYOUT.size))[0].confirm_offset
    if not 0 < confirmed < end:
        return None
    begin = max(confirmed, log.start)
    # A slave confirms bytes, not records: one that it has in part is dispatched when the rest is confirmed.
    if isinstance(log.message(begin), str):
        around = log.around(begin)
        begin = begin if around is None else around.phy_offset
    walk = contents.RecordWalk(log, begin, end, COUNTED)
    records = sum(1 for _ in walk)
    # A build, and a broker that was of no group, have there where the last record begins.
    if not records or (records == 1 and begin == confirmed):
        return None
    return Tail(begin, end, records, walk.at >= end or bool(walk.stop), confirmed)


def suspected(store: str, log: contents.StoreLog) -> list[str]:
    """Return what to say of records that are not confirmed in a store with epochs; none where there are none. Raises OSError,
    and InputError.
    """
    return told_of(suspect_tail(store, log, log_end(log))) if taken(store).entries else []


def told_of(tail: Tail | None) -> list[str]:
    """Return what to say of records that are not confirmed."""
    return [] if tail is None else [f"suspect: {tail}: {SUSPECT}"]


def problems(store: str, log: contents.StoreLog) -> list[str]:
    """Return the same, or why the epochs or the checkpoint cannot be read."""
    try:
        return suspected(store, log)
    except (OSError, InputError) as error:
        return [f"records that are not confirmed: not looked for: {reason(error)}"]
