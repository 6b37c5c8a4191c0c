"""Whose a store is: its owner, the lock that a running broker holds, the times of its checkpoint, and its controller group.

Of a group: its epochs as a broker takes them, and the records behind what the group has confirmed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.files.entries import open_regular
from rocketmq_reindex.jobs.store import contents, folders
from rocketmq_reindex.storage_format import checkpoints, errors, layouts, showing
from rocketmq_reindex.storage_format.checkpoints import CHECKPOINT_LAYOUT, SIZE as CHECKPOINT_SIZE, Checkpoint, read_checkpoint
from rocketmq_reindex.storage_format.errors import Finding, InputError
from rocketmq_reindex.storage_format.showing import counted, reason

# -------------------------------------------------------------------------------------------------------------------- ownership
# Root lays out files for a broker that seldom is root: what is new in a store gets the owner of the log in it.
#
# It is given by handles, never through a link, and before it comes to where the new owner may write: he could put a link to
# another file in its place meanwhile.


def give(place: str, store: str) -> None:
    """Give a file, or a folder and all in it, to the owner and group of STORE/commitlog, or else of STORE.

    Only root may; for anybody else what they write is theirs, as ever. ``place`` lies where only root may write.
    """
    if os.geteuid() != 0:
        return
    uid, gid = _owner(store)
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        os.chown(place, uid, gid, follow_symlinks=False)
        return
    # A folder after what is in it: who has it may change that.
    for _, _, names, handle in os.fwalk(place, topdown=False, follow_symlinks=False):
        for name in names:
            os.chown(name, uid, gid, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, uid, gid)


def give_handle(handle: int, store: str) -> None:
    """Give the file behind an open ``handle`` likewise."""
    if os.geteuid() == 0:
        os.fchown(handle, *_owner(store))


def _owner(store: str) -> tuple[int, int]:
    status = os.stat(store)
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(os.path.join(store, "commitlog"))
    return status.st_uid, status.st_gid


# ------------------------------------------------------------------------------------------------------------------------- lock
# The lock that a broker holds on its store while it runs.

LOCK: Final = "lock"
"""``StorePathConfigHelper.getLockFile``"""


_FLOCK: Final = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi4x")
"""``struct flock`` of fcntl(2)"""


def holder(store: str) -> int | None:
    """Return the process that holds a store's lock, as a running broker does; 0 for one on another machine, None for nobody.

    It only asks (F_GETLK): a broker that starts at the same moment gets its lock, and no file is made. Raises OSError or
    InputError for a lock that cannot be looked at.
    """
    path = os.path.join(store, LOCK)
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        return None
    try:
        with files.naming(path):
            request = (0, 1, 0, fcntl.F_WRLCK, 0) if sys.platform == "darwin" else (fcntl.F_WRLCK, 0, 0, 1, 0)
            answer = _FLOCK.unpack(fcntl.fcntl(handle, fcntl.F_GETLK, _FLOCK.pack(*request)))
    finally:
        os.close(handle)
    kind, process = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else max(0, process)


@contextlib.contextmanager
def store_locked(store: str) -> Iterator[Callable[[], None]]:
    """Lock the store as a broker does (``DefaultMessageStore.start``, 5.3: one byte of STORE/lock): none can start meanwhile.

    Yields a function that makes and locks the file of a store that no broker has ever opened. It is to be called before
    anything is written: a run that ends before leaves no file. Both raise InputError when a broker runs.
    """
    path = os.path.join(store, LOCK)
    is_there = os.path.lexists(path)
    with contextlib.ExitStack() as held:
        if is_there:
            held.enter_context(_held(store, path, is_new=False))

        def make() -> None:
            if not is_there:
                held.enter_context(_held(store, path, is_new=True))

        yield make


@contextlib.contextmanager
def _held(store: str, path: str, is_new: bool) -> Iterator[None]:
    # Not removed again: a broker may have it open by then, and another would lock a new one.
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | os.O_NOFOLLOW
    if os.path.islink(path):
        raise errors.InputError(f"{showing.escape(path)}: is a link, as no broker's lock is: remove it")
    try:
        handle = os.open(path, flags | (os.O_CREAT | os.O_EXCL if is_new else 0), 0o644)
    except FileExistsError:
        raise errors.InputError(
            f"{showing.escape(store)}: a broker was started on this store meanwhile (it made {LOCK}): stop it"
        ) from None
    try:
        if is_new:
            # A broker that may not write it does not start.
            give_handle(handle, store)
        with files.naming(path):
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise errors.InputError(f"{showing.escape(path)}: is no regular file, as a broker's lock would be")
            try:
                # Java's FileChannel.tryLock is fcntl's lock, not flock's.
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
            except (BlockingIOError, PermissionError):
                raise errors.InputError(
                    f"{showing.escape(store)}: a broker runs on this store (it holds {LOCK}): stop it first"
                ) from None
        yield
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------------------------------------------- checkpoint
# The fields of a store's checkpoint, for a caller that only wants to know up to where the store is flushed.


def read_times(path: str) -> Checkpoint:
    """Return the fields of a checkpoint, with 0 for a field that is missing or negative."""
    if files.entry_of(path).kind != files.FILE:
        return Checkpoint()
    with files.Reader(path) as reader:
        checkpoint = Checkpoint.from_bytes(reader.read(0, min(reader.size(), CHECKPOINT_SIZE)).ljust(CHECKPOINT_SIZE, b"\0"))
    return Checkpoint(*(max(0, value) for value in astuple(checkpoint)))


# ------------------------------------------------------------------------------------------------------------- controller group


_MOST: Final = 1 << 20
"""bytes of a file of epochs that are read at most: a broker's has some 20 for each epoch"""
COUNTED: Final = 20_000
"""records of a tail that are counted at most"""

SUSPECT: Final = (
    "a master may have cut them, and a kill brought them back: compare the store with the master's before it serves"
)


class TakenEpochs(NamedTuple):
    """What a broker has of epochs when it starts: ``name`` is the file that it takes, "" where it takes none.

    ``stops`` says why the start ends there, in words, and ``name`` is that file; "" where it does not.
    """

    entries: tuple[checkpoints.Epoch, ...] = ()
    name: str = ""
    stops: str = ""

    def behind(self, log_end: int) -> list[checkpoints.Epoch]:
        """Return the epochs that begin behind the end of the log."""
        return [epoch for epoch in self.entries if epoch.start > log_end]


def read_epoch_file(store: str, name: str = checkpoints.FILE) -> checkpoints.EpochFile | None:
    """Return the epochs of a store; None without such a file. Raises OSError, and InputError."""
    path = files.join(store, name)
    return checkpoints.read_epochs(files.read_bytes(path, _MOST)) if files.entry_of(path).kind == files.FILE else None


def taken_epochs(store: str, names: Sequence[str] = (checkpoints.FILE, checkpoints.BACKUP)) -> TakenEpochs:
    """Return the epochs that a broker has when it starts (``CheckpointFile.read``), of these files.

    Raises OSError, and InputError.
    """
    for name in names:
        read = read_epoch_file(store, name)
        if read is not None and read.stops:
            return TakenEpochs(name=name, stops=finding_in_words(read.findings[0]))
        if read is not None and read.is_read and read.entries:
            return TakenEpochs(read.entries, name)
    return TakenEpochs()


def finding_in_words(finding: Finding) -> str:
    """Return what is wrong with a file of epochs, with the line as an editor counts them, from 1 on."""
    text = finding.text.removesuffix(" (at: line)")
    return f"line {finding.at + 1}: {text}" if finding.at >= 0 else text


def opened_log(roots: Sequence[str]) -> contextlib.closing[contents.StoreLog]:
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
    return told_of(suspect_tail(store, log, log_end(log))) if taken_epochs(store).entries else []


def told_of(tail: Tail | None) -> list[str]:
    """Return what to say of records that are not confirmed."""
    return [] if tail is None else [f"suspect: {tail}: {SUSPECT}"]


def group_problems(store: str, log: contents.StoreLog) -> list[str]:
    """Return the same, or why the epochs or the checkpoint cannot be read."""
    try:
        return suspected(store, log)
    except (OSError, InputError) as error:
        return [f"records that are not confirmed: not looked for: {reason(error)}"]
