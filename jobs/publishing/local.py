"""Publish in a local folder: which folder may be DIR, a staging folder beside it, and one rename."""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.publishing.layout import (
    CONFIGS,
    MANIFEST,
    MANIFEST_MAX,
    OF_BROKERS,
    OR_OVERWRITE,
    PUBLISHED,
    REPAIRED,
    TOPICS,
    Standing,
    copy_whole,
)
from rocketmq_reindex.storage_format import errors
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KINDS
from rocketmq_reindex.storage_format.layouts import CONFIG
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.staging import StagingFolder

# ----------------------------------------------------------------------------------------------------------------------- places
# Which local folders may be DIR, and what in them is no build's.


def check_target(target: str, out: str, overwrite: bool | None, *, may_lack_manifest: bool = False) -> None:
    """Raise InputError when what stands at DIR may not be replaced. Asked at the start, and again before publishing.

    What else lies beside a build stays in DIR (``local``), unless it may be a broker's, or cannot be moved.
    """
    if os.path.lexists(target) and not os.path.isdir(target):
        raise errors.InputError(f"{escape(out)}: is not a folder: name another")
    if os.path.isdir(target):
        names = sorted(os.listdir(target))
        if is_repaired(target):
            raise errors.InputError(f"{escape(out)}: holds a repaired log, which nothing replaces: name another folder")
        if names and overwrite is None:
            # Of a command that replaces nothing, whatever wrote it.
            raise errors.InputError(f"{escape(out)}: is not empty: name another folder")
        foreign_names = strangers(target, names)
        is_build = MANIFEST in names or (may_lack_manifest and bool(names))
        if overwrite and is_build:
            foreign_names = [name for name in foreign_names if not _may_stay(target, name)]
        if foreign_names:
            advice = "move it away, or name an empty folder" if is_build else "name an empty folder"
            raise errors.InputError(f"{escape(out)}: holds {escape(foreign_names[0])}, which no build writes: {advice}")
        if names and not overwrite:
            raise errors.InputError(f"{escape(out)}: is not empty: name another folder{OR_OVERWRITE}")
        if names and not is_build:
            raise errors.InputError(
                f"{escape(out)}: was not written by a build (it has no {MANIFEST}): name another folder, or move this one away"
            )
        if CONFIG in names and MANIFEST in names and (changed := _changed(target)):
            raise errors.InputError(
                f"{escape(out)}: {changed} is not as a build drafted it: move {CONFIG} away to keep what was changed"
            )
        if os.path.ismount(target):
            raise errors.InputError(
                f"{escape(out)}: is a mount point and cannot be replaced as a whole: name a folder below it"
            )


def strangers(target: str, names: list[str]) -> list[str]:
    """Return which of ``names`` no build writes. What a build did not write in config/ is a broker's."""
    foreign_names = [name for name in names if name not in PUBLISHED]
    # A build's manifest is not read for it.
    if set(foreign_names) & set(REPAIRED) and is_repaired(target):
        foreign_names = [name for name in foreign_names if name not in REPAIRED]
    config = os.path.join(target, CONFIG)
    if CONFIG in names and (os.path.islink(config) or not os.path.isdir(config)):
        foreign_names.append(CONFIG)
    elif CONFIG in names:
        written = {TOPICS, *(_entries(os.path.join(target, MANIFEST))[1] if MANIFEST in names else CONFIGS)}
        foreign_names += [inner for name in sorted(os.listdir(config)) if (inner := f"{CONFIG}/{name}") not in written]
    return foreign_names


def is_repaired(target: str) -> bool:
    """Return whether a folder, local or behind a URI, holds what a repair wrote.

    Its commitlog/ is then no broker's, unless one has run there.
    """
    path = files.join(target, MANIFEST)
    if files.entry_of(path).kind != files.FILE:
        return False
    # The manifest may be long: the key stands before the list of files.
    for line in files.lines(path):
        if line.startswith((b' "repair": ', b' "files": ')):
            return line.startswith(b' "repair": ')
    return False


def _may_stay(target: str, name: str) -> bool:
    """Return whether what no build writes can be moved into the new DIR."""
    return name.partition("/")[0] not in OF_BROKERS and not os.path.ismount(os.path.join(target, name))


def _changed(target: str) -> str:
    """Return the first file of config/ that is not as the manifest says: what somebody edited must not be lost. "" for none."""
    drafted = [name for name in CONFIGS if os.path.lexists(os.path.join(target, name))]
    if not drafted:
        return TOPICS
    kind, entries = _entries(os.path.join(target, MANIFEST))
    for name in drafted:
        path = os.path.join(target, name)
        if os.path.getsize(path) > MANIFEST_MAX:
            return name
        digest = file_digest(path, kind=kind) if kind in KINDS else None
        if entries.get(name, {}).get("digest") != digest or digest is None:
            return name
    return ""


def _entries(manifest: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the kind of a manifest's digests, and its entries of config/. A manifest may be long: it is read by lines."""
    kind, head, line, entries = EARLIER_KIND, b' "digest": ', b'  {"path": "%s/' % CONFIG.encode(), dict[str, dict[str, Any]]()
    with open(manifest, "rb") as lines:
        for text in lines:
            if text.startswith(head):
                kind = str(json.loads(text[len(head) :].strip(b" ,\n")))
            elif text.startswith(line):
                entry = json.loads(text.strip(b" ,\n"))
                entries[str(entry["path"])] = entry
            elif entries:
                break  # the files are sorted by path
    return kind, entries


def check_place(out: str, overwrite: bool | None, *, may_lack_manifest: bool = False) -> str:
    """Return the real path of DIR. Raises InputError when it may not be written.

    ``may_lack_manifest``: a folder without one may be a build's all the same, which is found out later (``put_back``).
    """
    target = real_path(out)
    if os.path.islink(out.rstrip("/")) and not os.path.exists(target):
        raise errors.InputError(f"{escape(out)}: is a link that leads nowhere: name the folder itself")
    check_target(target, out, overwrite, may_lack_manifest=may_lack_manifest)
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise errors.InputError(f"{escape(parent)}: is not a folder: make it first")
    if reason := files.refuses(parent):
        raise errors.InputError(f"{escape(out)}: nothing can be written in {escape(parent)} ({reason}): name another folder")
    return target


def real_path(out: str) -> str:
    """Return the real path of DIR. Raises InputError for the root folder."""
    target = os.path.realpath(out)
    if target == "/":
        raise errors.InputError(f"{escape(out)}: is the root folder: name a folder of its own")
    return target


def lacks_manifest(target: str) -> bool:
    """Return whether DIR is a folder that holds something, but nothing under the manifest's name."""
    return os.path.isdir(target) and bool(names := os.listdir(target)) and MANIFEST not in names


# ------------------------------------------------------------------------------------------------------------------------ local
# Publish in a local folder: a staging folder beside DIR, and one rename that publishes all of it or nothing.

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100
_RUN_DIGITS = 12
"""A staging folder is named after DIR and so many random hexadecimal digits."""
_REPLACES_NOTHING = "replaces-nothing"
"""in a staging folder: its run takes the place of no earlier build, so that all in its trees is its own, whatever the names"""
_SINCE: dict[str, int] = {}
"""of the root of each staging folder of this process a handle, opened before anything was written there (``files.sync``)"""


def _prefix(target: str) -> str:
    return os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.rmq-reindex")


def work_folder(target: str) -> str:
    """Return the folder beside DIR that keeps what is done of a run which may be stopped. No other run clears it."""
    return f"{_prefix(target)}-work"


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
    """Return a handle that holds the lock which stands at ``path`` now."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o644)
        try:
            with files.naming(path):
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise errors.InputError(f"{escape(path)}: is no regular file, as a lock would be: remove it")
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # The run before may have removed the file between our open and our lock.
                with contextlib.suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(handle), os.lstat(path)):
                        return handle
        except BlockingIOError:
            os.close(handle)
            raise errors.InputError(f"{escape(target)}: another build is writing there: wait for it to end") from None
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)


def _clear(remains: StagingFolder, target: str) -> None:
    """Remove the staging folder of a run to DIR, whose lock is held; an earlier build that it moved away is put back."""
    if os.path.isdir(remains.replaced) and not os.path.islink(remains.root):
        # The run ended between its two renames, or the second one failed.
        if not os.path.lexists(target):
            os.rename(remains.replaced, target)
        elif os.path.isdir(remains.sealed):
            return  # somebody else made DIR meanwhile: the earlier build is still the only one
    # An export's names are none of a build's: they would go into what somebody else made there, piece by piece.
    is_all_its_own = os.path.isdir(os.path.join(remains.root, _REPLACES_NOTHING))
    if not is_all_its_own and not all(_give_back(tree, remains, target) for tree in (remains.sealed, remains.replaced)):
        return
    # A task of a killed run may go on for a while: under another name it finds the folder no more.
    gone = remains.root[:-_RUN_DIGITS] + _new_run()
    with contextlib.suppress(OSError):
        os.rename(remains.root, gone)
        remains = StagingFolder(gone)
    for tree in (remains.replaced, remains.sealed):
        with contextlib.suppress(OSError):
            # What is half removed must never be put back, and a repaired log without its manifest looks like a broker's.
            os.rename(tree, f"{tree}-gone")
    files.remove_tree(remains.root)


def _give_back(tree: str, remains: StagingFolder, target: str) -> bool:
    """Move what is no build's out of a tree that may have been DIR, into the build that replaced it.

    Return whether nothing of it is left there. Each name is moved in one step, so a run that dies here loses nothing.
    """
    if os.path.islink(remains.root) or os.path.islink(tree) or not os.path.isdir(tree):
        return True
    with contextlib.suppress(OSError):
        for name in strangers(tree, sorted(os.listdir(tree))):
            if not os.path.lexists(os.path.join(target, name)):
                os.rename(os.path.join(tree, name), os.path.join(target, name))
        return not strangers(tree, os.listdir(tree))
    return False


def put_back(target: str, manifest: str) -> None:
    """Copy the manifest of the build in DIR, whose lock is held, from the file ``manifest`` to where it was."""
    staging = StagingFolder(f"{_prefix(target)}-{_new_run()}")
    files.make_folder(staging.temporary, below=os.path.dirname(target))
    try:
        copy_whole(staging.temporary, manifest, files.join(target, MANIFEST))
    finally:
        files.remove_tree(staging.root)


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
    """Yield a new staging folder, which is removed whatever happens. DIR is locked.

    Raises InputError when DIR may not be replaced: another run may have published there since it was checked.
    """
    check_target(target, target, overwrite)
    staging = StagingFolder(f"{_prefix(target)}-{_new_run()}")
    try:
        staging.make()
        _SINCE[staging.root] = os.open(staging.root, os.O_RDONLY | os.O_CLOEXEC)
        if not overwrite:
            os.mkdir(os.path.join(staging.root, _REPLACES_NOTHING))
        yield staging
    finally:
        # What cannot be removed now, the next run removes. An interrupt does not keep the second from being tried.
        try:
            with contextlib.suppress(OSError):
                _clear(staging, target)
        finally:
            with contextlib.suppress(OSError):
                _sweep(target)
            with contextlib.suppress(KeyError, OSError):
                os.close(_SINCE.pop(staging.root))


def _exchange(first: str, second: str) -> bool:
    """Swap two names in one step; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0)


def publish(staging: StagingFolder, target: str, overwrite: bool) -> None:
    """Make the tree durable and give it its final name, in one step. Raises InputError when DIR has been filled meanwhile."""
    # First of all: what a late attempt of a task renamed into the tree behind sync would not be durable.
    os.rename(staging.tree, staging.sealed)
    files.sync(staging.sealed, _SINCE.get(staging.root, -1))
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
        status = os.lstat(folder)
        return status.st_dev, status.st_ino
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
