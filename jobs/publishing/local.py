"""Publish in a local folder: a staging folder beside DIR, and one rename that publishes all of it or nothing."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import stat
import uuid
from collections.abc import Iterator

from rocketmq_reindex.jobs.publishing.layout import MANIFEST, Standing
from rocketmq_reindex.jobs.publishing.places import check_target, strangers
from rocketmq_reindex.jobs.publishing.whole_file import copy_whole
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest
from rocketmq_reindex.udfs.staging import StagingFolder

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_RUN_DIGITS = 12
"""A staging folder is named after DIR and so many random hexadecimal digits."""


def _prefix(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.rmq-reindex")


@contextlib.contextmanager
def locked(target: str) -> Iterator[None]:
    """Lock DIR for one run: a second one is refused. A killed run's lock ends with its process, and what it left is cleared."""
    path = f"{_prefix(target)}.lock"
    handle = _lock(path, target)
    try:
        _sweep(target)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


def _lock(path: str, target: str) -> int:
    """A handle that holds the lock which stands at ``path`` now."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
        try:
            with files.naming(path):
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise InputError(f"{escape(path)}: is no regular file, as a lock would be: remove it")
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The run before may have removed the file between our open and our lock.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.lstat(path)):
                        return handle
        except BlockingIOError:
            os.close(handle)
            raise InputError(f"{escape(target)}: another build is writing there: wait for it to end") from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _clear(left: StagingFolder, target: str) -> None:
    """Remove the staging folder of a run to DIR, whose lock is held; an earlier build that it moved away is put back."""
    if os.path.isdir(left.replaced) and not os.path.islink(left.root):
        # The run ended between its two renames, or the second one failed.
        if not os.path.lexists(target):
            os.rename(left.replaced, target)
        elif os.path.isdir(left.sealed):
            return  # somebody else made DIR meanwhile: the earlier build is still the only one
    if not all(_give_back(tree, left, target) for tree in (left.sealed, left.replaced)):
        return
    # A task of a killed run may go on for a while: under another name it finds the folder no more.
    gone = left.root[:-_RUN_DIGITS] + _new_run()
    with contextlib.suppress(OSError):
        os.rename(left.root, gone)
        left = StagingFolder(gone)
    for tree in (left.replaced, left.sealed):
        with contextlib.suppress(OSError):
            # What is half removed must never be put back, and a repaired log without its manifest looks like a broker's.
            os.rename(tree, f"{tree}-gone")
    files.remove_tree(left.root)


def _give_back(tree: str, left: StagingFolder, target: str) -> bool:
    """Move what is no build's out of a tree that may have been DIR, into the build that replaced it.

    Returns whether nothing of it is left there. Each name is moved in one step, so a run that dies here loses nothing.
    """
    if os.path.islink(left.root) or os.path.islink(tree) or not os.path.isdir(tree):
        return True
    with contextlib.suppress(OSError):
        for name in strangers(tree, sorted(os.listdir(tree))):
            if not os.path.lexists(os.path.join(target, name)):
                os.rename(os.path.join(tree, name), os.path.join(target, name))
        return not strangers(tree, os.listdir(tree))
    return False


def put_back(target: str, manifest: str) -> None:
    """Copy the manifest of the build in DIR, whose lock is held, from the file ``manifest`` to where it was."""
    left = StagingFolder(f"{_prefix(target)}-{_new_run()}")
    files.make_folder(left.temporary, below=os.path.dirname(target))
    try:
        copy_whole(left.temporary, manifest, files.join(target, MANIFEST))
    finally:
        files.remove_tree(left.root)


def _sweep(target: str) -> None:
    """Clear what runs to DIR left, this one as well; its lock is held."""
    folder, prefix = os.path.split(_prefix(target))
    for name in os.listdir(folder):
        # The exact form: a neighbour's DIR may have a name that begins like this one's.
        if re.fullmatch(f"{re.escape(prefix)}-[0-9a-f]{{{_RUN_DIGITS}}}", name):
            _clear(StagingFolder(os.path.join(folder, name)), target)


def _new_run() -> str:
    return uuid.uuid4().hex[:_RUN_DIGITS]


@contextlib.contextmanager
def staging(target: str, overwrite: bool = True) -> Iterator[StagingFolder]:
    """Make a new staging folder, which is removed whatever happens. DIR is locked.

    Raises InputError when DIR may not be replaced: another run may have published there since it was checked.
    """
    check_target(target, target, overwrite)
    staging = StagingFolder(f"{_prefix(target)}-{_new_run()}")
    try:
        staging.make()
        yield staging
    finally:
        # What cannot be removed now, the next run removes. An interrupt does not keep the second from being tried.
        try:
            with contextlib.suppress(OSError):
                _clear(staging, target)
        finally:
            with contextlib.suppress(OSError):
                _sweep(target)


def _exchange(one: str, other: str) -> bool:
    """Swap two names in one step; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def publish(staging: StagingFolder, target: str, overwrite: bool) -> None:
    """Make the tree durable and give it its final name, in one step. Raises InputError when DIR has been filled meanwhile."""
    # First of all: what a late attempt of a task renamed into the tree behind sync would not be durable.
    os.rename(staging.tree, staging.sealed)
    files.sync(staging.sealed)
    check_target(target, target, overwrite)
    if os.path.isdir(target) and os.listdir(target):
        if not _exchange(staging.sealed, target):
            os.rename(target, staging.replaced)
            try:
                os.rename(staging.sealed, target)
            except BaseException:
                os.rename(staging.replaced, target)
                raise
    else:
        os.rename(staging.sealed, target)


def standing(target: str) -> Standing | None:
    """Return the build in DIR, if it has a manifest, which is written last."""
    manifest = files.join(target, MANIFEST)
    return Standing(target, file_digest(manifest)) if files.entry_of(manifest).kind == files.FILE else None


def identity(folder: str) -> tuple[int, int] | None:
    """Return device and inode of a folder, which identify it whatever its name; None when they cannot be known."""
    with contextlib.suppress(OSError):
        found = os.lstat(folder)
        return found.st_dev, found.st_ino
    return None


def settle(target: str) -> None:
    """Make the rename itself durable."""
    folder = os.path.dirname(target)
    with files.naming(folder):
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
