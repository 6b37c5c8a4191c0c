"""Find a build, locally or behind a URI, and read its manifest: nothing in it is believed before it is checked."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import store_signs, summary
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.publishing.layout import CONFIGS, MANIFEST, MANIFEST_MAX, REPAIRED, SIZES, TIMERS, TOPICS
from rocketmq_reindex.storage_format import errors, layouts, showing, topics
from rocketmq_reindex.storage_format.digest import CHUNK, EARLIER_KIND, KINDS, new_digest
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.udfs.times import show_time

# --------------------------------------------------------------------------------------------------------------------- log_read
# What a manifest says of the log that its build read: its segments, and stretches of bytes with their digests.

_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_SAMPLES_MAX: Final = 256
_ASKED: Final = 8
"""So many chunks are read where the manifest has no samples of what is there."""


@dataclass(frozen=True)
class DigestedBytes:
    """Bytes [low, high) of the log, absolute offsets, and their digest in hex."""

    low: int
    high: int
    digest: str


@dataclass(frozen=True)
class ReadSegment:
    """One segment that a build read: absolute offset of its first byte, bytes."""

    name: str
    start: int
    size: int


@dataclass(frozen=True)
class ReadLog:
    """The log that a build read.

    ``end`` is the offset behind its last record, -1 where an older manifest does not say it; ``samples`` lie before it.
    ``chunks`` are stretches of 64 MiB that are not all zeros, ``mended`` those that a repair has changed. ``kind`` is that of
    the digests.
    """

    segments: tuple[ReadSegment, ...]
    end: int
    samples: tuple[DigestedBytes, ...]
    chunks: tuple[DigestedBytes, ...]
    kind: str
    records: int
    repaired: bool
    left_out: tuple[str, ...]
    """what the build was asked to leave out, in words; empty for a build of the whole log"""
    mended: tuple[DigestedBytes, ...] = ()
    salvaged: int = -1
    """offset of the first damage that the build has passed over, since it was asked to; -1 for none"""

    def stretches(self, there: Collection[int]) -> list[DigestedBytes]:
        """Return what a store must have that has segments which start at ``there``; empty where nothing is known.

        Only stretches of segments that are there are told.
        """
        sizes = {segment.start: segment.size for segment in self.segments if segment.start in there}

        def common(stretches: tuple[DigestedBytes, ...]) -> list[DigestedBytes]:
            return [
                stretch for stretch in stretches if any(start <= stretch.low < start + size for start, size in sizes.items())
            ]

        if samples := common(self.samples):
            mended = common(self.mended)
            return [*samples, *(mended[k] for k in store_signs.spread(len(mended) - 1, _ASKED) if mended)]
        chunks = [chunk for chunk in self.chunks if self.end < 0 or chunk.high <= self.end]
        if self.end < 0 and len(chunks) > 1 and common(tuple(chunks[:-1])):
            # A broker may have written on in the last one. Where it is all there is, it shows an unchanged log at least.
            chunks.pop()
        whole = common(tuple(chunks))
        return [whole[k] for k in store_signs.spread(len(whole) - 1, _ASKED)] if whole else []


def read_log(manifest: Mapping[str, Any], kind: str) -> ReadLog:
    """Return what a manifest says of its log. Raises ValueError, KeyError, TypeError, AttributeError for what is none."""
    log, repaired = manifest.get("log"), "repair" in manifest
    segments = [ReadSegment(str(entry["segment"]), _start(entry), _number(entry["size"])) for entry in manifest["inputs"]]
    if repaired:
        # The repair's own log, not the damaged one.
        own = [(str(entry["path"]).partition("/"), _number(entry["size"])) for entry in manifest["files"]]
        segments = [
            ReadSegment(name, _start({"segment": name}), size) for (top, _, name), size in own if top == layouts.COMMITLOG
        ]
    samples = [_sample(entry) for entry in log["samples"][: _SAMPLES_MAX + 1]] if log else []
    if len(samples) > _SAMPLES_MAX:
        raise ValueError(f"has more than {_SAMPLES_MAX} samples of the log")
    lost = () if repaired else _lost(manifest)
    return ReadLog(
        tuple(sorted(segments, key=lambda segment: segment.start)),
        _number(log["end"]) if log else -1,
        tuple(samples),
        () if repaired else tuple(_chunks(manifest["inputs"], kind)),
        kind,
        _number(manifest["counts"]["records"]),
        repaired,
        tuple(_left_out(manifest, max((segment.start + segment.size for segment in segments), default=0))),
        tuple(_mended(manifest["repair"]["ranges"])) if repaired else (),
        _number(lost[0]["offset"]) if lost and manifest["settings"].get("on_damage") == "salvage" else -1,
    )


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= layouts.FIRST_BYTE_MAX:
        raise ValueError(f"has {str(value)[:40]} where an offset or a size belongs")
    return value


def _start(entry: Mapping[str, Any]) -> int:
    start = layouts.first_byte(str(entry["segment"]))
    if start is None:
        raise ValueError(f"names a segment {str(entry['segment'])[:40]}")
    return start


def _digest_of(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("has no digest of a stretch of the log")
    return value


def _sample(entry: Mapping[str, Any]) -> DigestedBytes:
    low, length = _number(entry["offset"]), _number(entry["length"])
    if not 0 < length <= CHUNK:
        raise ValueError(f"has a sample of {length} bytes")
    return DigestedBytes(low, low + length, _digest_of(entry["digest"]))


def _mended(ranges: list[Mapping[str, Any]]) -> list[DigestedBytes]:
    """Return what a repair has put in the place of damage: what is up to a chunk long, or the shortest where all are longer."""
    stretches = list[DigestedBytes]()
    for entry in ranges:
        low, length, digest = _number(entry["offset"]), _number(entry["length"]), entry["new"]
        if digest and length:
            stretches.append(DigestedBytes(low, low + length, _digest_of(digest)))
    by_length = sorted(stretches, key=lambda stretch: stretch.high - stretch.low)
    return [stretch for stretch in stretches if stretch.high - stretch.low <= CHUNK] or by_length[:1]


def _chunks(inputs: list[Mapping[str, Any]], kind: str) -> list[DigestedBytes]:
    """Return the chunks with a digest that are not all zeros: zeros of a segment made ahead are the same in every store."""
    chunks, zeros = list[DigestedBytes](), dict[int, str]()
    for entry in inputs:
        start, size = _start(entry), _number(entry["size"])
        for number, digest in enumerate(entry["digests"]):
            low = start + number * CHUNK
            high = min(low + CHUNK, start + size)
            if digest is None or high <= low:
                continue
            if high - low not in zeros:
                zeros[high - low] = new_digest([bytes(high - low)], kind).digest().hex()
            if _digest_of(digest) != zeros[high - low]:
                chunks.append(DigestedBytes(low, high, digest))
    return sorted(chunks, key=lambda chunk: chunk.low)


def _lost(manifest: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return list(filter(summary.is_lost, manifest.get("damage", ())))


def _left_out(manifest: Mapping[str, Any], end: int) -> list[str]:
    """Return what a build was asked to leave out of a log whose segments end at ``end``, as words for people."""
    settings = manifest["settings"]
    only = [part for part in option.PARTS if part in settings["only"]]
    left_out = [f"only {', '.join(only)}"] if len(only) < len(option.PARTS) else []
    for name, what in (("include_topics", "only topics"), ("exclude_topics", "no topics")):
        if globs := settings.get(name):
            left_out.append(
                f"{what} {', '.join(showing.escape(str(glob), 80) for glob in globs[:5])}{' ...' if len(globs) > 5 else ''}"
            )
    if (offset := settings.get("until_offset")) is not None and _number(offset) < end:
        left_out.append(f"up to offset {offset}")
    if (time := settings.get("until_time")) is not None:
        left_out.append(f"up to time {show_time(int(time))}")
    if settings.get("on_damage") == "stop" and (lost := _lost(manifest)):
        left_out.append(f"up to damage at offset {_number(lost[0]['offset'])}")
    return left_out


# ------------------------------------------------------------------------------------------------------------------------ build

_QUEUE_FILE: Final = re.compile(r"(?:consumequeue|batchconsumequeue|consumequeue_ext)/([^/]+)/([0-9]{1,10})/[0-9]{20}")
_DATABASE_FILE: Final = re.compile(rf"({layouts.QUEUES}|{layouts.SEPARATE})/([^/]+)")
_INDEX_FILE: Final = re.compile(r"index/[0-9]{17,19}")
_TIMER_FILE: Final = re.compile(r"timerlog/[0-9]{20}|timerwheel")
_AT: Final = re.compile(r"index/[0-9]{1,10}-[0-9a-f]{32}")


@dataclass(frozen=True)
class BuildFile:
    """One file of a build. Bytes from ``used`` up to ``size`` are zeros."""

    path: str
    at: str
    """where it lies in the build's folder"""
    size: int
    used: int
    digest: str
    gap: int = 0
    """where an IndexFile's item 0 stands, which no digest covers; 0 for other files"""


@dataclass(frozen=True)
class FoundBuild:
    """A build: ``name`` is its manifest's digest, ``parts`` are those of its settings, ``sizes`` those of a store.

    ``kind`` is that of its digests, and of its name (``storage_format.digest``).
    """

    folder: str
    name: str
    parts: tuple[str, ...]
    wanted: tuple[BuildFile, ...]
    own: frozenset[str]
    """names in its folder of what no fetch lays out: the log of a repair, and what it kept of damage"""
    log: ReadLog
    sizes: Mapping[str, int]
    kind: str
    database: str
    """the folder of its RocksDB database in a store; "" for a build without one"""

    @property
    def database_alone(self) -> bool:
        """Whether it has a database, and no ConsumeQueue file."""
        return bool(self.database) and not any(re.match(rf"{layouts.QUEUES}/.+/", file.path) for file in self.wanted)


def find_build(place: str) -> FoundBuild:
    """Return the build in the folder ``place``, or the one that counts of those published there. Raises InputError."""
    if files.entry_of(files.join(place, MANIFEST)).kind == files.FILE:
        return _read(place)
    published = layout.pointers(place)
    if not published:
        if files.entry_of(place).kind == files.ABSENT:
            raise errors.InputError(f"{showing.escape(place)}: is not there: name what --out of a build was")
        raise errors.InputError(
            f"{showing.escape(place)}: holds no build (neither {MANIFEST} nor {layout.POINTERS}/): name what --out was"
        )
    return _read(layout.build_folder(place, published[-1].build), published[-1])


def _read(folder: str, pointer: layout.Pointer | None = None) -> FoundBuild:
    path = files.join(folder, MANIFEST)
    data = files.read_bytes(path, MANIFEST_MAX)
    if pointer and (actual := _digest(data, pointer.kind, path)) != pointer.digest:
        raise errors.InputError(
            f"{showing.escape(path)}: has digest {actual} instead of {pointer.digest}: fetch again, or build again"
        )
    try:
        manifest = json.loads(data)
        if manifest["format"] not in (1, 2):
            raise errors.InputError(
                f"{showing.escape(path)}: is of format {showing.escape(str(manifest['format']))}: take a newer rmq-reindex"
            )
        kind = str(manifest.get("digest", EARLIER_KIND))
        # By its own kind: so a fetch knows a build again that one of before xxh3 laid out.
        name = _digest(data, kind, path)
        sizes = {name: _number_up_to(manifest["settings"][name], layouts.INT32_MAX) for name in SIZES}
        repaired = REPAIRED if "repair" in manifest else ()
        listed = [(entry, str(entry["path"]).partition("/")[0]) for entry in manifest["files"]]
        own = frozenset(name for _, name in listed if name in repaired)
        wanted = tuple(_wanted(entry, sizes["hash_slots"]) for entry, name in listed if name not in own)
        parts = [part for part in manifest["settings"]["only"] if part in (layouts.QUEUES, layouts.INDEX, layouts.CHECKPOINT)]
        log = read_log(manifest, kind)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # Of the entry at fault, not of Python.
        what = str(error) if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError) else "is broken"
        raise errors.InputError(f"{showing.escape(path)}: {showing.escape(what)}: build again") from None
    if len({file.path for file in wanted}) != len(wanted):
        raise errors.InputError(f"{showing.escape(path)}: names a file twice: build again")
    more = layouts.BATCH_QUEUES, layouts.EXT_QUEUES, layouts.SEPARATE
    parts += [part for part in more if any(file.path.startswith(f"{part}/") for file in wanted)]
    database = next((files.parent(file.path) for file in wanted if _is_of_database(file.path)), "")
    if database == layouts.SEPARATE and manifest["settings"].get("consumequeue_type") == "rocksdb":
        parts.remove(layouts.QUEUES)
    there = {file.path for file in wanted}
    parts += [name for name in CONFIGS if name in there]
    parts += [name for name in TIMERS if any(path == name or path.startswith(f"{name}/") for path in there)]
    if layouts.CHECKPOINT in parts and not any(file.path == layouts.CHECKPOINT for file in wanted):
        raise errors.InputError(f"{showing.escape(path)}: lacks the checkpoint that it says to have: build again")
    return FoundBuild(folder, name, tuple(parts), wanted, own, log, sizes, kind, database)


def _is_of_database(path: str) -> bool:
    """Return whether it is the path of a file that RocksDB names."""
    match = _DATABASE_FILE.fullmatch(path)
    return match is not None and bool(layouts.rocksdb_files([match[2]]))


def _digest(manifest: bytes, kind: str, path: str) -> str:
    """Return the digest of a manifest. Raises InputError for a kind that is not known."""
    if kind not in KINDS:
        raise errors.InputError(
            f"{showing.escape(path)}: has digests of kind {showing.escape(kind)[:40]}: take a newer rmq-reindex"
        )
    return new_digest([manifest], kind).digest().hex()


def _number_up_to(value: Any, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"has {str(value)[:40]} where a number up to {largest} belongs")
    return value


def _wanted(entry: dict[str, Any], slots: int) -> BuildFile:
    path, digest = entry["path"], entry["digest"]
    at = entry.get("at", path)
    if not (isinstance(path, str) and isinstance(at, str) and isinstance(digest, str)):
        raise ValueError("has a file without a name")
    queue, index = _QUEUE_FILE.fullmatch(path), _INDEX_FILE.fullmatch(path)
    timer = _TIMER_FILE.fullmatch(path)
    known = (
        path in (layouts.CHECKPOINT, *CONFIGS)
        or timer
        or index
        or _is_of_database(path)
        or (queue and topics.path_component(queue[1]) == queue[1])
    )
    if not known or not (at == path or (index and _AT.fullmatch(at))):
        raise ValueError(f"names {path[:200]}, which no build writes")
    if not re.fullmatch(r"[0-9a-f]{32}", digest):
        raise ValueError(f"has no digest of {path[:200]}")
    size = _number_up_to(entry["size"], 2**40 if path == TOPICS else layouts.INT32_MAX)
    used = _number_up_to(entry["used"], size)
    gap = HEADER_SIZE + slots * SLOT_SIZE if index else 0
    if index and (size < gap + ITEM_SIZE or (used != HEADER_SIZE and used < gap + ITEM_SIZE)):
        raise ValueError(f"has sizes of {path[:200]} that fit no IndexFile of {slots} slots")
    return BuildFile(path, at, size, used, digest, gap)
