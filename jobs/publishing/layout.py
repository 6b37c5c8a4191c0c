"""The names of the files that a run leaves in DIR, and a list of what it could not remove."""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.showing import counted, escape, reason

# ----------------------------------------------------------------------------------------------------------------------- layout
# What a build leaves in DIR, by name, and the settings that its files' sizes come from.

MANIFEST: Final = "reindex.json"
MANIFEST_MAX: Final = 256 << 20
"""Bytes of a manifest that are read from where others may write: of 1.9 million files, which take four times as much memory."""
TOPICS: Final = f"{layouts.CONFIG}/topics.json"
DELAY_OFFSETS: Final = f"{layouts.CONFIG}/delayOffset.json"
CONSUMER_OFFSETS: Final = f"{layouts.CONFIG}/consumerOffset.json"
TIMER_CHECK: Final = f"{layouts.CONFIG}/timercheck"
CONFIGS: Final = (TOPICS, DELAY_OFFSETS, CONSUMER_OFFSETS, TIMER_CHECK)
"""What a build may write into config/."""
TIMERS: Final = ("timerlog", "timerwheel")
SIZES: Final = ("cq_file_size", "batch_cq_file_size", "hash_slots", "index_items")
"""The settings, as the manifest has them, that decide how large files are."""
PUBLISHED: Final = (layouts.QUEUES, layouts.BATCH_QUEUES, layouts.INDEX, layouts.CHECKPOINT, *TIMERS, layouts.CONFIG, MANIFEST)
"""Names a build writes in DIR; ``--overwrite`` replaces them in a folder that has the manifest."""
OR_OVERWRITE: Final = ", or give --overwrite"
"""ends the error on a DIR that is not empty, for commands with that option"""
REPAIRED: Final = (layouts.COMMITLOG, "quarantine")
"""Names that a repair writes besides."""
OF_BROKERS: Final = (layouts.COMMITLOG, layouts.ABORT, "lock", layouts.CONFIG)
"""Names that a broker's store has besides: a build never replaces anything in a folder that a broker may run on."""


@dataclass(frozen=True)
class Standing:
    """The build that counts in DIR: ``digest`` is that of the manifest in ``folder``."""

    folder: str
    digest: str


# ------------------------------------------------------------------------------------------------------------------- whole file
# Write a file whole or not at all.

_COPIED_BYTES: Final = 16 << 20


_LOOKED_AT: Final = 1 << 10


def check_writable(option: str, path: str, mark: bytes, kind: str) -> None:
    """Raise InputError for the file that an option names, where none of its ``kind`` can be written.

    ``mark`` is what such a file has near its begin.
    """
    if not path:
        raise errors.InputError(f"{option}: is empty: name a file")
    if os.path.isdir(path) or path.endswith("/"):
        raise errors.InputError(f"{option} {escape(path)}: is a folder: name a file")
    around = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(around):
        raise errors.InputError(f"{option} {escape(path)}: {escape(around)} is not a folder: make it first")
    if os.path.lexists(path) and not os.path.isfile(path):
        # A rename would take the place of a pipe or a device.
        raise errors.InputError(f"{option} {escape(path)}: is no regular file: name another")
    check_no_store_around(f"{option} {escape(path)}", path, "file")
    check_replaceable(option, path, mark, kind)
    if refusal := files.refuses(around):
        raise errors.InputError(
            f"{option} {escape(path)}: nothing can be written in {escape(around)} ({refusal}): name another file"
        )


def check_replaceable(option: str, path: str, mark: bytes, kind: str) -> None:
    """Raise InputError for a file that holds something else than a ``kind``, which ``mark`` near its begin shows.

    A wrong word would otherwise take the place of a broker.conf, or of the manifest of a build.
    """
    if not os.path.isfile(path):
        return
    try:
        with open(path, "rb") as file:
            begin = file.read(_LOOKED_AT)
    except OSError as error:
        raise errors.InputError(f"{option} {escape(path)}: {reason(error)}: name another file") from None
    if begin and mark not in begin:
        raise errors.InputError(f"{option} {escape(path)}: holds something else than {kind}: name another file, or remove it")


def check_no_store_around(where: str, path: str, kind: str = "folder") -> None:
    """Raise InputError for a place on a disk inside of a broker's store, whichever that is: a broker may not start on it then.

    ``where`` names the place in the error.
    """
    if path and not files.is_remote(path) and (store := _store_around(os.path.dirname(os.path.realpath(path)))):
        raise errors.InputError(f"{where}: lies inside {escape(store)}, a broker's store: name a {kind} apart from it")


_PARTS: Final = ("", layouts.COMMITLOG, *layouts.FOLDERS, "timerlog")
"""the folders of a store, and "" for the store itself: what else lies beside a commitlog may be anybody's"""


def _store_around(folder: str) -> str:
    """Return the store that a folder is, or is a part of; "" for none. The deepest part is ``consumequeue/TOPIC/QUEUE``."""
    part = ""
    for _ in range(4):
        if part in _PARTS and os.path.isdir(os.path.join(folder, layouts.COMMITLOG)):
            return folder
        folder, part = os.path.split(folder)
        if not part:
            break
    return ""


@contextlib.contextmanager
def _written_aside(path: str, text: str) -> Iterator[str]:
    """Yield a file with a text beside ``path``; it is gone at the end. OSError names ``path``."""
    aside = f"{path}.{os.getpid()}"
    try:
        with open(aside, "x", encoding="utf-8") as file:
            file.write(text)
        yield aside
    except OSError as error:
        error.filename = path
        raise
    finally:
        with contextlib.suppress(OSError):
            os.unlink(aside)


def write_whole(path: str, text: str) -> None:
    """Write a file beside ``path``, then rename it. Raises OSError that names ``path``; what was there is then as before."""
    with _written_aside(path, text) as aside:
        os.replace(aside, path)


def is_there(option: str, path: str) -> errors.InputError:
    """Return the error for a file that an option names, and that is there already."""
    return errors.InputError(f"{option} {escape(path)}: is there already, and is not written over: name a new file")


def write_new(option: str, path: str, text: str) -> None:
    """Write a file that must not be there yet. Raises InputError where it is, and OSError, with no file left."""
    with _written_aside(path, text) as aside:
        try:
            publish_new(aside, path)
        except FileExistsError:
            raise is_there(option, path) from None


def publish_new(file: str, path: str) -> None:
    """Give a finished file the name ``path`` on its disk. Raises FileExistsError where something has that name, and OSError."""
    try:
        os.link(file, path)
    except FileExistsError:
        raise
    except OSError:
        # No hard links there, as on some shares: the name is taken first, so that the file replaces nothing of others.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        try:
            os.rename(file, path)
        except BaseException:
            os.unlink(path)
            raise


def copy_whole(temporary: str, source: str, target: str) -> None:
    """Copy the file ``source`` to ``target`` by way of the folder ``temporary``. Raises OSError and InputError as a Reader."""
    with files.Reader(source) as reader, files.writing(temporary, target) as writer:
        size = reader.size()
        for at in range(0, size, _COPIED_BYTES):
            writer.append(reader.read(at, min(_COPIED_BYTES, size - at)))
        writer.finish()


# -------------------------------------------------------------------------------------------------------------------- leftovers
# What a run should have removed and could not: where it lies and how much it is, so that nobody keeps it unknowingly.
#
# A store may refuse to remove what it let somebody write. What was built is good all the same, and the next run that publishes
# tries to remove the same again.

_NAMES: Final = 3
"""names of one folder that a warning lists"""
_AT_ONCE: Final = 16


@dataclass(frozen=True)
class _Left:
    files: int
    bytes: int
    reason: str


class Leftovers:
    """Removes things for one run, and knows what stayed."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}

    def remove(self, path: str) -> bool:
        """Remove a folder or file. Return whether nothing of it is left; raises nothing."""
        reason = files.remove_tree(path)
        if reason:
            self.add(path, reason)
        else:
            # An attempt before this one may have failed.
            self._left.pop(path, None)
        return not reason

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove many files, several at a time."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remove") as pool:
            list(pool.map(self.remove, paths))

    def add(self, path: str, reason: str) -> None:
        """Note that something stays for a reason, which is one line."""
        try:
            entries = files.below(path) if files.entry_of(path).kind == files.FOLDER else [files.entry_of(path)]
        except OSError:
            entries = []
        self._left[path] = _Left(len(entries), sum(entry.size for entry in entries), reason)

    def entries(self) -> list[dict[str, Any]]:
        """Return an entry for each folder in which something stays: its path, the first names, files, bytes, a reason."""
        by_folder: dict[str, dict[str, Any]] = {}
        for path, leftover in sorted(self._left.items()):
            folder = escape(files.parent(path))
            entry = by_folder.setdefault(
                folder, {"folder": folder, "names": [], "count": 0, "files": 0, "bytes": 0, "reason": leftover.reason}
            )
            entry["count"] += 1
            entry["files"] += leftover.files
            entry["bytes"] += leftover.bytes
            if len(entry["names"]) < _NAMES:
                entry["names"].append(escape(files.base(path)))
        return list(by_folder.values())

    def warnings(self) -> list[str]:
        """Return a line for people about each of the ``entries``."""
        return [_warning(entry) for entry in self.entries()]


def files_in(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return how many files the ``entries`` have in all."""
    return sum(int(entry["files"]) for entry in entries)


def _warning(entry: dict[str, Any]) -> str:
    names, hidden = ", ".join(entry["names"]), entry["count"] - len(entry["names"])
    size = f"{counted(entry['files'], 'file')}, {counted(entry['bytes'], 'byte')}"
    names += f" and {hidden} more" if hidden else ""
    return f"{entry['folder']}: {names} could not be removed ({entry['reason']}): {size} stay there"
