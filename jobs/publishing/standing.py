"""Whether the files of the build in DIR, from which an incremental build starts, are still as that build left them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.publishing.layout import CONFIG
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest

CHECKPOINT: Final = "checkpoint"
LISTED_AT_ONCE: Final = 50_000
"""Files that one listing may return. Where there are more, each topic is listed by itself, which bounds the memory."""
_REQUESTS_AT_ONCE: Final = 16
_READS_AT_ONCE: Final = 4
_READ_BYTES: Final = 16 << 20
_SECOND: Final = 10**9
Entry = dict[str, Any]
"""of a manifest, with the time (``modified``) that its file had when the build was made"""


class _Found(NamedTuple):
    """A file of the build; the defaults stand for one that is not there."""

    size: int = -1
    modified: int = 0
    """in nanoseconds since 1970"""


class StandingFiles:
    """The files of a build in ``folder`` as this run would leave them: one that is stored in another size is none of them.

    ``trim``: behind a URI files end with their last byte used. ``recheck``: bytes are compared with the manifest's digests;
    ``hash_slots`` are those of its IndexFiles. ``count``: about how many files there are.
    """

    def __init__(self, folder: str, trim: bool, recheck: bool, hash_slots: int, count: int) -> None:
        self._folder, self._recheck, self._slots = folder, recheck, hash_slots
        self._behind_uri = files.no_rename(folder)
        self._trim = trim and self._behind_uri
        self._depth = 1 if count <= LISTED_AT_ONCE else 2
        self._listed: dict[str, dict[str, _Found]] = {}

    def damaged(self, entries: list[Entry]) -> list[bool]:
        """Return for each entry whether its file has changed or is gone. Cheapest in the order of paths."""
        found = self._find(entries)
        if not self._recheck:
            return [not self._seems_whole(*pair) for pair in zip(entries, found, strict=True)]
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="recheck") as pool:
            return list(pool.map(lambda *pair: not (self._seems_whole(*pair) and self._has_digest(*pair)), entries, found))

    def times(self, entries: list[Entry]) -> list[int]:
        """Return when the file of each entry was written by its file system (ns). Cheapest in the order of paths."""
        return [found.modified for found in self._find(entries)]

    def _find(self, entries: list[Entry]) -> list[_Found]:
        return self._list(entries) if self._behind_uri else [_look(self._path(entry)) for entry in entries]

    def _path(self, entry: Entry) -> str:
        return files.join(self._folder, _path_of(entry))

    def _seems_whole(self, entry: Entry, found: _Found) -> bool:
        """Whether size and time are as they were. Whether a time is older says nothing, since a clock may have been set.

        A bucket gives times in seconds in one answer and in milliseconds in another.
        """
        grain = _SECOND if self._behind_uri else 1
        return found.size == self._stored(entry) and found.modified // grain == entry["modified"] // grain

    def _stored(self, entry: Entry) -> int:
        always_whole = _path_of(entry).partition("/")[0] in (CHECKPOINT, CONFIG)
        return int(entry["used"] if self._trim and not always_whole else entry["size"])

    # -- many files behind a URI ----------------------------------------------------------------------------------------

    def _list(self, entries: list[Entry]) -> list[_Found]:
        """Find files by listings, of a thousand each: a request for each file would take hours where there are many."""
        groups = [_group(_path_of(entry), self._depth) for entry in entries]
        wanted = sorted(set(groups) - self._listed.keys() - {""})
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="list") as pool:
            self._listed.update(zip(wanted, pool.map(self._listing, wanted), strict=True))
        found = [
            self._listed[group].get(_path_of(entry), _Found()) if group else _look(self._path(entry))
            for group, entry in zip(groups, entries, strict=True)
        ]
        # More of the last one may follow.
        self._listed = {group: listed for group, listed in self._listed.items() if group and group == groups[-1]}
        return found

    def _listing(self, group: str) -> dict[str, _Found]:
        there = files.below(files.join(self._folder, group))
        return {f"{group}/{entry.name}": _Found(entry.size, entry.modified) for entry in there}

    # -- bytes ----------------------------------------------------------------------------------------------------------

    def _has_digest(self, entry: Entry, found: _Found) -> bool:
        path = self._path(entry)
        if not entry["path"].startswith("index/"):
            return bool(file_digest(path, entry["used"]) == entry["digest"])
        hasher = new_digest()
        for piece in self._index_bytes(path, entry["used"], found.size):
            hasher.update(piece)
        return bool(hasher.digest().hex() == entry["digest"])

    def _index_bytes(self, path: str, used: int, stored: int) -> Iterator[bytes]:
        """Yields the bytes that the writer's digest covers: without item 0, which is never used. Bytes not stored are zeros."""
        items = ix.HEADER_SIZE + self._slots * ix.SLOT_SIZE
        with files.Reader(path) as reader:
            for low, high in ((0, items), (items + ix.ITEM_SIZE, max(used, items + ix.ITEM_SIZE))):
                for at in range(low, high, _READ_BYTES):
                    count = min(_READ_BYTES, high - at)
                    there = max(0, min(count, stored - at))
                    yield reader.read(at, there)
                    yield bytes(count - there)


def _path_of(entry: Entry) -> str:
    """Returns the path of a file in its build's folder."""
    return str(entry.get("at", entry["path"]))


def _group(path: str, depth: int) -> str:
    """Returns the folder that is listed for a file; "" for files of the driver, which are looked at one by one."""
    top, *rest = path.split("/")
    return "" if top in (CHECKPOINT, CONFIG) else "/".join([top, *rest[: min(depth, len(rest)) - 1]])


def _look(path: str) -> _Found:
    found = files.entry_of(path)
    return _Found(found.size, found.modified) if found.kind == files.FILE else _Found()
