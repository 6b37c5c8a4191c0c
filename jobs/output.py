"""Where a run writes: a staging folder beside DIR, and one rename that publishes all of it or nothing."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import re
import uuid
from collections.abc import Iterator

from storage_format.errors import InputError
from storage_format.names import escape
from udfs import files
from udfs.stage import Stage

MANIFEST = "reindex.json"
PUBLISHED = ("consumequeue", "index", "checkpoint", MANIFEST)
"""Names a build writes in DIR; ``--overwrite`` replaces a folder that holds nothing else, and the manifest."""
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def _check_target(target: str, out: str, overwrite: bool) -> None:
    """Raises InputError when what stands at DIR may not be replaced. Asked at the start, and again before publishing."""
    if os.path.lexists(target) and not os.path.isdir(target):
        raise InputError(f"{escape(out)}: is not a folder: name another")
    if os.path.isdir(target):
        names = sorted(os.listdir(target))
        foreign = [name for name in names if name not in PUBLISHED]
        if foreign:
            raise InputError(f"{escape(out)}: holds {escape(foreign[0])}, which no build writes: name an empty folder")
        if names and not overwrite:
            raise InputError(f"{escape(out)}: is not empty: name another folder, or give --overwrite")
        if names and MANIFEST not in names:
            raise InputError(f"{escape(out)}: was not written by a build (it has no {MANIFEST}): name another folder")
        if os.path.ismount(target):
            raise InputError(f"{escape(out)}: is a mount point and cannot be replaced as a whole: name a folder below it")


def check_places(inputs: list[str], out: str, overwrite: bool) -> str:
    """The real path of DIR. Raises InputError when it may not be written: inside an input or around it, or not empty."""
    target = os.path.realpath(out)
    if target == "/":
        raise InputError(f"{escape(out)}: is the root folder: name a folder of its own")
    for place in inputs:
        real = os.path.realpath(place)
        if os.path.commonpath([real, target]) in (real, target):
            raise InputError(f"{escape(out)}: lies inside {escape(place)} or around it: name a folder apart from the input")
    _check_target(target, out, overwrite)
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise InputError(f"{escape(parent)}: is not a folder: make it first")
    return target


def _prefix(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.rmq-reindex")


@contextlib.contextmanager
def locked(target: str) -> Iterator[None]:
    """Hold DIR for one run: a second one is refused. A killed run's hold ends with its process."""
    path = f"{_prefix(target)}.lock"
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InputError(f"{escape(target)}: another build is writing there: wait for it to end") from None
        # The run before may have removed the file between our open and our lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        os.close(handle)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(handle)


@contextlib.contextmanager
def staging(target: str) -> Iterator[Stage]:
    """A fresh staging folder; what earlier runs left is swept first, and this one's is removed whatever happens."""
    folder, prefix = os.path.dirname(target), os.path.basename(_prefix(target)) + "-"
    for name in os.listdir(folder):
        # The exact form: a neighbour's DIR may have a name that begins like this one's.
        if re.fullmatch(re.escape(prefix) + "[0-9a-f]{12}", name):
            files.remove_tree(os.path.join(folder, name))
    stage = Stage(os.path.join(folder, f"{prefix}{uuid.uuid4().hex[:12]}"))
    try:
        stage.make()
        yield stage
    finally:
        files.remove_tree(stage.root)


def _exchange(one: str, other: str) -> bool:
    """Swap two names in one step; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def publish(stage: Stage, target: str, overwrite: bool) -> None:
    """Make the tree durable and give it its final name, in one step. Raises InputError when DIR has been filled meanwhile."""
    files.sync(stage.tree)
    _check_target(target, target, overwrite)
    if os.path.isdir(target) and os.listdir(target):
        if not _exchange(stage.tree, target):
            aside = os.path.join(stage.root, "replaced")
            os.rename(target, aside)
            try:
                os.rename(stage.tree, target)
            except BaseException:
                os.rename(aside, target)
                raise
    else:
        os.rename(stage.tree, target)


def settle(target: str) -> None:
    """Make the rename itself durable."""
    handle = os.open(os.path.dirname(target), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
