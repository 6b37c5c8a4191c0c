"""Find a build, locally or behind a URI, and read its manifest: nothing in it is believed before it is checked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.fetching.log_read import ReadLog, read_log
from rocketmq_reindex.jobs.publishing import pointers
from rocketmq_reindex.jobs.publishing.layout import CONFIGS, MANIFEST, MANIFEST_MAX, REPAIRED, SIZES, TIMERS, TOPICS
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KINDS, new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.integers import INT32_MAX
from rocketmq_reindex.storage_format.names import escape, path_component
from rocketmq_reindex.udfs import files

_QUEUE_FILE: Final = re.compile(r"(?:batch)?consumequeue/([^/]+)/([0-9]{1,10})/[0-9]{20}")
_INDEX_FILE: Final = re.compile(r"index/[0-9]{17,19}")
_TIMER_FILE: Final = re.compile(r"timerlog/[0-9]{20}|timerwheel")
_AT: Final = re.compile(r"index/[0-9]{1,10}-[0-9a-f]{32}")


@dataclass(frozen=True)
class Wanted:
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
    wanted: tuple[Wanted, ...]
    own: frozenset[str]
    """names in its folder of what no fetch lays out: the log of a repair, and what it kept of damage"""
    log: ReadLog
    sizes: Mapping[str, int]
    kind: str


def find_build(place: str) -> FoundBuild:
    """The build in the folder ``place``, or the one that counts of those published there. Raises InputError."""
    if files.entry_of(files.join(place, MANIFEST)).kind == files.FILE:
        return _read(place)
    published = pointers.pointers(place)
    if not published:
        if files.entry_of(place).kind == files.ABSENT:
            raise InputError(f"{escape(place)}: is not there: name what --out of a build was")
        raise InputError(f"{escape(place)}: holds no build (neither {MANIFEST} nor {pointers.POINTERS}/): name what --out was")
    return _read(pointers.build_folder(place, published[-1].build), published[-1])


def _read(folder: str, pointer: pointers.Pointer | None = None) -> FoundBuild:
    path = files.join(folder, MANIFEST)
    data = files.read_bytes(path, MANIFEST_MAX)
    if pointer and (found := _digest(data, pointer.kind, path)) != pointer.digest:
        raise InputError(f"{escape(path)}: has digest {found} instead of {pointer.digest}: fetch again, or build again")
    try:
        manifest = json.loads(data)
        if manifest["format"] not in (1, 2):
            raise InputError(f"{escape(path)}: is of format {escape(str(manifest['format']))}: take a newer rmq-reindex")
        kind = str(manifest.get("digest", EARLIER_KIND))
        # By its own kind: so a fetch knows a build again that one of before xxh3 laid out.
        name = _digest(data, kind, path)
        sizes = {name: _number(manifest["settings"][name], INT32_MAX) for name in SIZES}
        repaired = REPAIRED if "repair" in manifest else ()
        listed = [(entry, str(entry["path"]).partition("/")[0]) for entry in manifest["files"]]
        own = frozenset(name for _, name in listed if name in repaired)
        wanted = tuple(_wanted(entry, sizes["hash_slots"]) for entry, name in listed if name not in own)
        parts = [part for part in manifest["settings"]["only"] if part in ("consumequeue", "index", "checkpoint")]
        log = read_log(manifest, kind)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # Of the entry at fault, not of Python.
        what = str(error) if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError) else "is broken"
        raise InputError(f"{escape(path)}: {escape(what)}: build again") from None
    if len({file.path for file in wanted}) != len(wanted):
        raise InputError(f"{escape(path)}: names a file twice: build again")
    if any(file.path.startswith("batchconsumequeue/") for file in wanted):
        parts.append("batchconsumequeue")
    there = {file.path for file in wanted}
    parts += [name for name in CONFIGS if name in there]
    parts += [name for name in TIMERS if any(path == name or path.startswith(f"{name}/") for path in there)]
    if "checkpoint" in parts and not any(file.path == "checkpoint" for file in wanted):
        raise InputError(f"{escape(path)}: lacks the checkpoint that it says to have: build again")
    return FoundBuild(folder, name, tuple(parts), wanted, own, log, sizes, kind)


def _digest(manifest: bytes, kind: str, path: str) -> str:
    """The digest of a manifest. Raises InputError for a kind that is not known."""
    if kind not in KINDS:
        raise InputError(f"{escape(path)}: has digests of kind {escape(kind)[:40]}: take a newer rmq-reindex")
    return new_digest([manifest], kind).digest().hex()


def _number(value: Any, largest: int) -> int:
    if type(value) is not int or not 0 <= value <= largest:
        raise ValueError(f"has {str(value)[:40]} where a number up to {largest} belongs")
    return value


def _wanted(entry: dict[str, Any], slots: int) -> Wanted:
    path, digest = entry["path"], entry["digest"]
    at = entry.get("at", path)
    if not (isinstance(path, str) and isinstance(at, str) and isinstance(digest, str)):
        raise ValueError("has a file without a name")
    queue, index = _QUEUE_FILE.fullmatch(path), _INDEX_FILE.fullmatch(path)
    timer = _TIMER_FILE.fullmatch(path)
    known = path in ("checkpoint", *CONFIGS) or timer or index or (queue and path_component(queue[1]) == queue[1])
    if not known or not (at == path or (index and _AT.fullmatch(at))):
        raise ValueError(f"names {path[:200]}, which no build writes")
    if not re.fullmatch(r"[0-9a-f]{32}", digest):
        raise ValueError(f"has no digest of {path[:200]}")
    size = _number(entry["size"], 2**40 if path == TOPICS else INT32_MAX)
    used = _number(entry["used"], size)
    gap = HEADER_SIZE + slots * SLOT_SIZE if index else 0
    if index and (size < gap + ITEM_SIZE or (used != HEADER_SIZE and used < gap + ITEM_SIZE)):
        raise ValueError(f"has sizes of {path[:200]} that fit no IndexFile of {slots} slots")
    return Wanted(path, at, size, used, digest, gap)
