"""The names of what a run leaves in DIR, and small files behind a URI: which builds are visible, which runs are alive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import checkpoints, errors, layouts, showing
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.udfs.staging import StagingFolder

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
PUBLISHED: Final = (
    layouts.QUEUES, layouts.SEPARATE, layouts.BATCH_QUEUES, layouts.EXT_QUEUES, layouts.INDEX, layouts.CHECKPOINT, *TIMERS,
    layouts.CONFIG, MANIFEST,
)  # fmt: skip
"""Names a build writes in DIR; ``--overwrite`` replaces them in a folder that has the manifest."""
OR_OVERWRITE: Final = ", or give --overwrite"
"""ends the error on a DIR that is not empty, for commands with that option"""
REPAIRED: Final = (layouts.COMMITLOG, checkpoints.FILE, "quarantine", layouts.MOVED)
"""Names that a repair writes besides: the last one of them with --to-plain alone, the two before it never then."""
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
    """Raise InputError for a place on a disk inside of a broker's store, whichever that is, or among files of a build or a log.

    A broker may not start on these then, or takes what is new for its own. ``where`` names the place in the error.
    """
    if path and not files.is_remote(path) and (around := _store_around(os.path.realpath(path))):
        raise errors.InputError(f"{where}: lies inside {around}: name a {kind} apart from it")


_PARTS: Final = (layouts.COMMITLOG, *layouts.FOLDERS, "timerlog")
"""the folders of a store: what else lies beside a commitlog may be anybody's"""
_BY_OFFSET: Final = re.compile(r"[0-9]{20}")


def _store_around(path: str) -> str:
    """Return the store or build that a new path would be a part of, with what it is; "" for none, or beside a build's parts."""
    above, part = os.path.split(path)
    folder = above
    # As in consumequeue/TOPIC/QUEUE.
    for _ in range(4):
        if (part in _PARTS or above == folder) and os.path.isdir(os.path.join(above, layouts.COMMITLOG)):
            return f"{escape(above)}, a broker's store"
        signs = (MANIFEST,) if above == folder else (MANIFEST, layouts.QUEUES)  # a build itself may be named "index"
        if part in PUBLISHED[:-1] and any(os.path.lexists(os.path.join(above, name)) for name in signs):
            return f"{escape(above)}, where files of a build or a store lie"
        above, part = os.path.split(above)
    with contextlib.suppress(OSError), os.scandir(folder) as beside:
        if any(_BY_OFFSET.fullmatch(entry.name) and not entry.is_dir() for entry in beside):  # a folder may have any name
            return f"{escape(folder)}, where segments of a log lie"
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
# A store may refuse to remove what it let somebody write. What was built is good, and the next run tries to remove it again.

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


# --------------------------------------------------------------------------------------------------------------------- pointers
# What was published behind a URI: the small files that make builds visible, and the folders they lead to. Little is imported:
# ``query`` asks here, and starts in a fraction of a second.

BUILDS, POINTERS, WORK = "builds", "published", "work"
BUILD: Final = re.compile(r"[0-9a-f]{32}")
"""names of builds"""
_POINTER: Final = re.compile(r"([0-9]{10})-([0-9a-f]{32})\.json")
_POINTER_MAX: Final = 1 << 16
"""bytes: what is longer is none"""


@dataclass(frozen=True, order=True)
class Pointer:
    """One published build. ``digest`` is its manifest's, of this ``kind`` (``storage_format.layouts``)."""

    number: int
    build: str
    digest: str = ""
    kind: str = layouts.KIND

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.number:010d}-{self.build}.json"


def pointers(out: str) -> list[Pointer]:
    """Return what was published; the last one counts. A file that is still being written is left out."""
    folder = files.join(out, POINTERS)
    if files.entry_of(folder).kind != files.FOLDER:
        return []
    published = []
    for entry in files.listing(folder):
        matched = _POINTER.fullmatch(entry.name)
        if matched and entry.kind == files.FILE:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, errors.InputError, FileNotFoundError):
                fields = json.loads(files.read_bytes(entry.path, _POINTER_MAX))
                digest = str(fields["manifest"])
                published.append(Pointer(int(matched[1]), matched[2], digest, str(fields.get("digest", layouts.EARLIER_KIND))))
    return sorted(published)


def build_folder(out: str, build: str) -> str:
    """Return the folder of a build in OUT."""
    return files.join(out, BUILDS, build)


def is_work(place: str, out: str) -> bool:
    """Return whether ``place`` is the folder in which runs to OUT hand on what they keep for a while."""
    if not files.no_rename(out) or files.canonical(place) != files.canonical(files.join(out, WORK)):
        return False
    return bool(identity(out))


def check_laid_out(store: str) -> None:
    """Raise InputError for a folder of builds behind a URI: only ``fetch`` and ``verify`` know their files."""
    if identity(store):
        raise errors.InputError(
            f"{showing.escape(store)}: holds builds as behind a URI: `rmq-reindex fetch` lays one out on a disk"
        )


def identity(folder: str) -> str | None:
    """Return the name of the build whose folder this is, or of the one that counts in an output; None for other folders."""
    with contextlib.suppress(OSError, errors.InputError):
        if files.base(files.parent(folder)) == BUILDS and BUILD.fullmatch(files.base(folder)):
            return files.base(folder)
        published = pointers(folder)
        return published[-1].build if published else None
    return None


# ------------------------------------------------------------------------------------------------------------------------ alive
# Signs of life of runs that hold no lock: each leaves a new small file every minute, with its store's time.

_ALIVE: Final = "alive-"
VERIFY: Final = "rmq-reindex-verify-"
"""how the names of folders begin that verifies work in"""
VERIFY_NAME: Final = re.compile(f"{VERIFY}[0-9a-f]{{32}}")
"""names of those in which verifies leave signs of life"""
BEAT_SECONDS: Final = 60.0


class Alive:
    """Writes a sign of life of a run every BEAT_SECONDS."""

    def __init__(self, staging: StagingFolder) -> None:
        self._staging, self._end = staging, threading.Event()
        self._thread = threading.Thread(target=self._run, name="alive", daemon=True)
        self._count = 0

    def beat(self) -> None:
        """Write a new file before the old one is removed, so that there is one at every moment."""
        files.write_bytes(self._staging.temporary, files.join(self._staging.root, f"{_ALIVE}{self._count + 1}"), [b"alive\n"])
        files.remove_tree(files.join(self._staging.root, f"{_ALIVE}{self._count}"))
        self._count += 1

    def _run(self) -> None:
        while not self._end.wait(BEAT_SECONDS):
            # The next one may get through.
            with contextlib.suppress(OSError):
                if not self.known():
                    return
                self.beat()

    def known(self) -> bool:
        """Return whether the last file is still there: a run that was taken for dead must not go on."""
        return files.entry_of(files.join(self._staging.root, f"{_ALIVE}{self._count}")).kind != files.ABSENT

    def __enter__(self) -> Alive:
        files.make_folder(self._staging.temporary)
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def last_beat(work: str) -> int:
    """Return the time of a run's last sign of life, by the store's clock in nanoseconds; 0 for none."""
    if files.entry_of(work).kind != files.FOLDER:
        return 0
    beats = [entry.modified for entry in files.listing(work) if entry.kind == files.FILE and entry.name.startswith(_ALIVE)]
    return max(beats, default=0)
