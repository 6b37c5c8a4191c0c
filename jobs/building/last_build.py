"""The build before, as the scan store keeps it: its ranges, settings and files; and whether these stand as it left them."""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.store_signs import old_checkpoint
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.index.layout import EarlierFiles
from rocketmq_reindex.storage_format.layouts import CHECKPOINT, CONFIG
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore, read_sealed, sealed
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.version import __version__

# --------------------------------------------------------------------------------------------------------------- standing files
# Whether the files of the build in DIR, from which an incremental build starts, are still as that build left them.

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
        standing = self._find(entries)
        if not self._recheck:
            return [not self._seems_whole(*pair) for pair in zip(entries, standing, strict=True)]
        with ThreadPoolExecutor(_READS_AT_ONCE, thread_name_prefix="recheck") as pool:
            return list(pool.map(lambda *pair: not (self._seems_whole(*pair) and self._has_digest(*pair)), entries, standing))

    def times(self, entries: list[Entry]) -> list[int]:
        """Return when the file of each entry was written by its file system (ns). Cheapest in the order of paths."""
        return [standing.modified for standing in self._find(entries)]

    def _find(self, entries: list[Entry]) -> list[_Found]:
        return self._list(entries) if self._behind_uri else [_look(self._path(entry)) for entry in entries]

    def _path(self, entry: Entry) -> str:
        return files.join(self._folder, _path_of(entry))

    def _seems_whole(self, entry: Entry, standing: _Found) -> bool:
        """Return whether size and time are as they were. Whether a time is older says nothing, since a clock may have been set.

        A bucket gives times in seconds in one answer and in milliseconds in another.
        """
        grain = _SECOND if self._behind_uri else 1
        return standing.size == self._stored(entry) and standing.modified // grain == entry["modified"] // grain

    def _stored(self, entry: Entry) -> int:
        always_whole = _path_of(entry).partition("/")[0] in (CHECKPOINT, CONFIG)
        return int(entry["used"] if self._trim and not always_whole else entry["size"])

    # -- many files behind a URI ----------------------------------------------------------------------------------------

    def _list(self, entries: list[Entry]) -> list[_Found]:
        """Find files by listings, of a thousand each: a request for each file would take hours where there are many."""
        groups = [_group(_path_of(entry), self._depth) for entry in entries]
        unlisted = sorted(set(groups) - self._listed.keys() - {""})
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE, thread_name_prefix="list") as pool:
            self._listed.update(zip(unlisted, pool.map(self._listing, unlisted), strict=True))
        standing = [
            self._listed[group].get(_path_of(entry), _Found()) if group else _look(self._path(entry))
            for group, entry in zip(groups, entries, strict=True)
        ]
        # More of the last one may follow.
        self._listed = {group: listed for group, listed in self._listed.items() if group and group == groups[-1]}
        return standing

    def _listing(self, group: str) -> dict[str, _Found]:
        entries = files.below(files.join(self._folder, group))
        return {f"{group}/{entry.name}": _Found(entry.size, entry.modified) for entry in entries}

    # -- bytes ----------------------------------------------------------------------------------------------------------

    def _has_digest(self, entry: Entry, standing: _Found) -> bool:
        path = self._path(entry)
        if not entry["path"].startswith("index/"):
            return bool(file_digest(path, entry["used"]) == entry["digest"])
        hasher = new_digest()
        for piece in self._index_bytes(path, entry["used"], standing.size):
            hasher.update(piece)
        return bool(hasher.digest().hex() == entry["digest"])

    def _index_bytes(self, path: str, used: int, stored: int) -> Iterator[bytes]:
        """Yield the bytes that the writer's digest covers: without item 0, which is never used. Bytes not stored are zeros."""
        items = ix.HEADER_SIZE + self._slots * ix.SLOT_SIZE
        with files.Reader(path) as reader:
            for low, high in ((0, items), (items + ix.ITEM_SIZE, max(used, items + ix.ITEM_SIZE))):
                for at in range(low, high, _READ_BYTES):
                    count = min(_READ_BYTES, high - at)
                    stored_count = max(0, min(count, stored - at))
                    yield reader.read(at, stored_count)
                    yield bytes(count - stored_count)


def _path_of(entry: Entry) -> str:
    """Return the path of a file in its build's folder."""
    return str(entry.get("at", entry["path"]))


def _group(path: str, depth: int) -> str:
    """Return the folder that is listed for a file; "" for files of the driver, which are looked at one by one."""
    top, *names = path.split("/")
    return "" if top in (CHECKPOINT, CONFIG) else "/".join([top, *names[: min(depth, len(names)) - 1]])


def _look(path: str) -> _Found:
    entry = files.entry_of(path)
    return _Found(entry.size, entry.modified) if entry.kind == files.FILE else _Found()


# ----------------------------------------------------------------------------------------------------------------- build before
# What the scan store knows of a build: ranges, settings, files. Found again by the digest of the manifest that stands in DIR.
#
# builds/DIGEST           sealed JSON, the fields of ``LastBuild`` builds/DIGEST.files     each ConsumeQueue file, in the order
# of paths: a line of the manifest, its units, its time (ns), by tabs builds/DIGEST.manifest  a copy of its manifest, where DIR
# is a local folder (``lost_manifest``) builds/DIGEST.owed      there while rows of the build are missing in the Delta tables
# builds/DIGEST.odd       each queue out of order, in their order: [topic, queue id, batch, digest of where its units went]

FORMAT: Final = 5
"""Goes up when builds have other fields or lines. Ranges that were scanned stay known then."""
LINES: Final = (".files", ".odd")
MANIFEST_COPY: Final = ".manifest"
_ROWS_MISSING: Final = ".owed"
KEPT_BUILDS: Final = 2
"""What no build of the last so many used is removed from the store."""


class IndexFile(NamedTuple):
    """One IndexFile of a build."""

    fingerprint: str
    """of the plan (``carrying.fingerprints``)"""
    path: str
    entry: dict[str, Any]
    """the writer's result, and the entry of the manifest with the file's time"""


@dataclass
class LastBuild:
    """One build as the scan store keeps it."""

    fingerprint: str
    """of what decides a scan"""
    settings: dict[str, Any]
    version: str
    segments: list[list[Any]]
    """name and bytes of each"""
    digest: str = ""
    """of its manifest"""
    before: str = ""
    """digest of the build before in the same DIR, if it was known"""
    ranges: list[ScanEntry] = field(default_factory=list)
    """all that were scanned, in the order of their numbers"""
    accepted: list[int] = field(default_factory=list)
    """the numbers of those that it was built from, in order"""
    expired: list[ScanEntry] = field(default_factory=list)
    """ranges of expired segments, of which the remaining IndexFiles still hold items; in order"""
    start: EarlierFiles = field(default_factory=EarlierFiles)
    """where the first IndexFile starts in the first range"""
    index: list[IndexFile] = field(default_factory=list)
    """its IndexFiles, in order"""
    own: list[dict[str, Any]] = field(default_factory=list)
    """entries of the manifest for other files that the driver writes: checkpoint, topics; with the files' times"""
    old_checkpoint: list[int] | None = None
    """times and offset of STORE's checkpoint, where the built one says no more than they (``building.store_signs``)"""
    summary: dict[str, Any] = field(default_factory=dict)
    """the figures, lists and warnings of the run's summary"""
    lines: list[str] = field(default_factory=list)
    """digests of its files of LINES"""
    messages: bool = False
    """whether its messages are in the Delta tables as well"""

    @property
    def built_from(self) -> list[ScanEntry]:
        """The accepted ranges, in order."""
        return [self.ranges[number] for number in self.accepted]

    def save(self, store: ScanStore) -> None:
        """Store the build. Its files of LINES are there already."""
        self.lines = [file_digest(files.join(store.builds, f"{self.digest}{ending}")) for ending in LINES]
        text = json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, separators=(",", ":"))
        files.write_bytes(store.temporary, files.join(store.builds, self.digest), sealed(text.encode()))


def of_log(log: Commitlog, settings: BuildSettings, fingerprint: str) -> LastBuild:
    """Return what is known of a build before it is made; ``fingerprint`` is that of its scan."""
    return LastBuild(
        fingerprint=fingerprint,
        settings=settings.for_manifest(),
        version=__version__,
        segments=sizes(log),
        old_checkpoint=times(old_checkpoint(settings)),
        messages=settings.messages_table,
    )


def sizes(log: Commitlog) -> list[list[Any]]:
    """Return the name and bytes of each segment."""
    return [[segment.name, segment.data_end - segment.start] for segment in log.segments]


def times(checkpoint: Checkpoint | None) -> list[int] | None:
    """Return what a checkpoint vouches for, as JSON holds it."""
    return None if checkpoint is None else [checkpoint.physic, checkpoint.logics, checkpoint.index, checkpoint.logics_offset]


def is_new(store: ScanStore, digest: str, log: Commitlog) -> bool:
    """Return whether the log surely has something that this build was not made from, as far as names, sizes and times tell.

    Raises OSError where the stored build cannot be read now.
    """
    try:
        fields = _fields(store, digest)
        if fields["segments"] != sizes(log):
            return True
        if not log.segments:
            return False
        newest = log.segments[-1]
        newest_file = files.entry_of(newest.path)
        known = [(entry["size"], entry["modified"]) for entry in fields["ranges"] if entry["segment"] == newest.name]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        # The build is not known.
        return True
    return any(size_and_time != (newest_file.size, newest_file.modified) for size_and_time in known)


def _fields(store: ScanStore, digest: str) -> Any:
    """Return the fields of a stored build, whatever they are. Raises OSError, and ValueError for a file that was changed."""
    return json.loads(read_sealed(files.join(store.builds, digest)))


def load(store: ScanStore, digest: str, recheck: bool = False) -> LastBuild | None:
    """Return the build whose manifest has this digest; None when the store does not know it, or not all of it is whole.

    ``recheck``: the data of its ranges is read as well, and compared with its digests. Raises OSError where the store cannot be
    read now: that says nothing about the build, and a later run may read it.
    """
    paths = [files.join(store.builds, f"{digest}{ending}") for ending in ("", *LINES)]
    if any(files.entry_of(path).kind != files.FILE for path in paths):
        return None
    try:
        fields = _fields(store, digest)
        if fields.pop("format") != FORMAT or fields["lines"] != [file_digest(path) for path in paths[1:]]:
            return None
        for name in ("ranges", "expired"):
            fields[name] = [ScanEntry(**entry) for entry in fields[name]]
        fields["start"] = EarlierFiles(**fields["start"])
        fields["index"] = [IndexFile(*file) for file in fields["index"]]
        build = LastBuild(**fields)
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        # Another run removed it, or a crash of the machine spoilt it.
        return None
    used = [*build.expired, *build.built_from]
    # One request lists a thousand files.
    sizes = {entry.name: entry.size for entry in files.listing(store.data) if entry.kind == files.FILE}
    are_stored = all(sizes.get(name) == size for entry in used for name, size, _ in entry.data.values())
    return build if are_stored and (not recheck or all(store.is_sound(entry) for entry in used)) else None


def mark_rows_missing(store: ScanStore, build: LastBuild) -> None:
    """From now on rows of the build are missing in the Delta tables: no later run finds nothing to do."""
    files.write_bytes(store.temporary, _rows_mark(store, build), [b"owed\n"])


def are_rows_missing(store: ScanStore, build: LastBuild) -> bool:
    """Return whether a run that published or confirmed the build ended before all of its rows were written."""
    return files.entry_of(_rows_mark(store, build)).kind != files.ABSENT


def mark_rows_written(store: ScanStore, build: LastBuild, leftovers: Leftovers) -> None:
    """All rows of the build are in the Delta tables. Where the mark cannot be removed, the next run writes them again."""
    leftovers.remove(_rows_mark(store, build))


def _rows_mark(store: ScanStore, build: LastBuild) -> str:
    return files.join(store.builds, f"{build.digest}{_ROWS_MISSING}")


def names(store: ScanStore) -> list[str]:
    """Return all that the store holds, as paths in it."""
    folders = (store.entries, store.data, store.builds, store.temporary)
    return [f"{files.base(folder)}/{name}" for folder in folders for name in sorted(files.names(folder))]


def needed(store: ScanStore, newest: LastBuild, kept_digests: Iterable[str]) -> set[str]:
    """Return the paths that ``newest`` uses, the builds before it that are kept, and builds by their manifests
    (``kept_digests``)."""
    kept, build = {newest.digest: newest}, newest
    while len(kept) < KEPT_BUILDS and build.before and build.before not in kept:
        older = load(store, build.before)
        if older is None:
            break
        kept[older.digest] = build = older
    for digest in set(kept_digests) - kept.keys():
        stored = load(store, digest)
        kept |= {digest: stored} if stored else {}
    used = {f"builds/{digest}{ending}" for digest in kept for ending in ("", *LINES, MANIFEST_COPY, _ROWS_MISSING)}
    for build in kept.values():
        used |= {f"entries/{entry.key}" for entry in build.ranges}
        used |= {f"data/{name}" for entry in (*build.ranges, *build.expired) for name, _, _ in entry.data.values()}
    return used
