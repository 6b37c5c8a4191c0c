"""The owner of a store, the lock that a running broker holds, and the times of its checkpoint."""

import contextlib
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.files.entries import open_regular
from rocketmq_reindex.storage_format import errors, showing
from rocketmq_reindex.storage_format.checkpoint import SIZE as CHECKPOINT_SIZE, Checkpoint

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
