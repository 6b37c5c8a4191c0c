"""The record of what earlier fetches did to a store, and folders that are held by handles while a fetch works in them."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.owner import give
from rocketmq_reindex.storage_format import digest, errors, layouts, showing

# ----------------------------------------------------------------------------------------------------------------------- pinned
# A folder held by a handle: who may write around it can put a link in its place, and what is done here still happens in it.

_HANDLES: Final = "/proc/self/fd"
_OF_HANDLE: Final = re.compile(rf"{_HANDLES}/([0-9]+)(.*)", re.DOTALL)


class Pinned:
    """The folder at ``name``, whose last part is no link. ``path`` leads to it whatever becomes of the name.

    Raises InputError for a link and for what is no folder, OSError where it cannot be opened. Without /proc ``path`` is the
    name.
    """

    def __init__(self, name: str, at: str = "") -> None:
        self.name = name
        try:
            self._handle = os.open(at or name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise errors.InputError(
                f"{showing.escape(name)}: is a link, or no folder: fetch writes through no link: remove it"
            ) from None
        self.path = f"{_HANDLES}/{self._handle}" if os.path.isdir(_HANDLES) else at or name

    @contextlib.contextmanager
    def inner(self, name: str) -> Iterator[Pinned]:
        """Yield the folder ``name`` in this one, while a block runs; this one for "". Raises as ``Pinned``."""
        if not name:
            yield self
            return
        inner = Pinned(os.path.join(self.name, name), os.path.join(self.path, name))
        try:
            yield inner
        finally:
            inner.close()

    def status(self) -> os.stat_result:
        """Return owner, mode and inode of the folder."""
        return os.fstat(self._handle)

    def sync(self) -> None:
        """Make durable what was written to the folder's file system, with its failures since this was made. Raises OSError."""
        files.sync(self.path, self._handle)

    def is_mine(self) -> bool:
        """Return whether this user made it, and nobody else may write to it."""
        status = self.status()
        return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def close(self) -> None:
        """Let go of the handle. ``path`` leads nowhere then."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Have the errors of a block name files as they are named outside of this process. The handles are still open."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and (match := _OF_HANDLE.fullmatch(error.filename)):
            with contextlib.suppress(OSError):
                error.filename = os.readlink(f"{_HANDLES}/{match[1]}") + match[2]
        raise


# ----------------------------------------------------------------------------------------------------------------------- record
# What earlier fetches did to a store: which build its parts are of, and which copies of older parts are theirs.
#
# STORE/.rmq-reindex-fetched holds it. Only what it names is ever removed, and only while that is still what fetch put there: a
# folder that somebody made, copied or renamed by hand has another inode or another time of change.

RECORD: Final = ".rmq-reindex-fetched"
RECORD_MAX: Final = 1 << 20
_FORMAT: Final = 1
_FETCHES_MAX: Final = 1 << 53
_COPY: Final = ("inode", "changed", "fetch")


@dataclass(frozen=True)
class Laid:
    """A part as a fetch laid it out: the build by its manifest's digest, and a digest of its files' names, sizes and times.

    ``kind`` is that of the latter (``storage_format.layouts``).
    """

    build: str
    files: str
    kind: str = layouts.KIND


@dataclass(frozen=True)
class Copy:
    """A store's own part where a fetch put it: ``inode``, the time of change in nanoseconds, and the number of the fetch."""

    inode: int
    changed: int
    fetch: int

    @classmethod
    def of(cls, path: str, fetch: int) -> Copy | None:
        """Return what lies at ``path`` now. None for nothing, and for a symbolic link: what it leads to is not fetch's."""
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        return None if stat.S_ISLNK(status.st_mode) else cls(status.st_ino, status.st_ctime_ns, fetch)


@dataclass
class Record:
    """``laid`` by part, ``copies`` by name in the store."""

    laid: dict[str, Laid] = field(default_factory=dict)
    copies: dict[str, Copy] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, store: str) -> Record:
        """Return the record in ``store``; an empty one where there is none, and, with a note, where it cannot be read."""
        path = os.path.join(store, RECORD)
        if not os.path.lexists(path):
            return cls()
        try:
            if os.path.islink(path):
                raise ValueError("of no fetch")
            content = json.loads(files.read_bytes(path, RECORD_MAX))
            if content["format"] != _FORMAT:
                raise ValueError("of another format")
            laid = {str(part): _laid(entry) for part, entry in content["laid"].items()}
            copies = {str(name): Copy(*(int(entry[key]) for key in _COPY)) for name, entry in content["copies"].items()}
            if any(not 0 < copy.fetch < _FETCHES_MAX for copy in copies.values()):
                raise ValueError("of no fetch")
        except (errors.InputError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
            return cls(notes=[f"{showing.escape(path)}: is no record of a fetch: what earlier fetches kept is not removed"])
        return cls(laid, copies)

    def write(self, store: str, temporary: str) -> None:
        """Write the record; ``temporary`` is a folder on the same file system, of this user alone. Raises OSError."""
        fields: dict[str, Any] = {
            "format": _FORMAT,
            "laid": {
                part: {"build": laid.build, "files": laid.files, "digest": laid.kind}
                for part, laid in sorted(self.laid.items())
            },
            "copies": {name: asdict(copy) for name, copy in sorted(self.copies.items())},
        }
        made = os.path.join(temporary, "record")
        files.write_bytes(temporary, made, [json.dumps(fields).encode()])
        give(made, store)
        os.replace(made, os.path.join(store, RECORD))

    def is_copy(self, store: str, name: str) -> bool:
        """Return whether ``name`` in ``store``, whose path has no links, is still what a fetch put there.

        What lies behind a link is not in the store.
        """
        known, path = self.copies.get(name), os.path.join(store, name)
        if known is None or os.path.realpath(os.path.dirname(path)) != os.path.dirname(path):
            return False
        return Copy.of(path, known.fetch) == known

    def is_laid(self, store: str, parts: list[str], build: str) -> bool:
        """Return whether ``store`` has ``parts`` as a fetch of ``build`` laid them out: no name, size or time differs."""
        places = {part: os.path.join(store, part) for part in parts}
        return all(os.path.lexists(place) and _is_as_laid(self.laid.get(part), build, place) for part, place in places.items())


def _laid(content: Any) -> Laid:
    """Raise KeyError, TypeError, AttributeError for what is none. A record without a kind is older than xxh3."""
    return Laid(str(content["build"]), str(content["files"]), str(content.get("digest", layouts.EARLIER_KIND)))


def _is_as_laid(laid: Laid | None, build: str, place: str) -> bool:
    if laid is None or laid.build != build or laid.kind not in digest.KINDS:
        return False
    return files_of(place, laid.kind) == laid.files


def files_of(place: str, kind: str = layouts.KIND) -> str:
    """Return a digest of what lies at ``place``: the name, kind, size and time of each file below it, in a certain order.

    ``kind`` is one of ``storage_format.digest.KINDS``.
    """
    hasher, waiting = digest.new_digest(kind=kind), [""]
    while waiting:
        path = waiting.pop()
        status = os.lstat(place + path)
        size, time = (status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else (0, 0)
        hasher.update(f"{path}\0{stat.S_IFMT(status.st_mode)} {size} {time}\n".encode("utf-8", "surrogateescape"))
        if stat.S_ISDIR(status.st_mode):
            waiting += sorted(f"{path}/{name}" for name in os.listdir(place + path))
    return hasher.digest().hex()
