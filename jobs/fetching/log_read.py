"""What a manifest says of the log that its build read: its segments, and stretches of bytes with their digests."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.jobs.building.log_samples import spread
from rocketmq_reindex.jobs.building.settings import PARTS
from rocketmq_reindex.jobs.building.summary import is_lost
from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.storage_format.digest import CHUNK, new_digest
from rocketmq_reindex.storage_format.file_names import FIRST_BYTE_MAX, first_byte
from rocketmq_reindex.storage_format.names import escape

_DIGEST: Final = re.compile(r"[0-9a-f]{32}")
_SAMPLES_MAX: Final = 256
_ASKED: Final = 8
"""So many chunks are read where the manifest has no samples of what is there."""


@dataclass(frozen=True)
class Stretch:
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
    ``chunks`` are stretches of 64 MiB that are not all zeros. ``kind`` is that of the digests.
    """

    segments: tuple[ReadSegment, ...]
    end: int
    samples: tuple[Stretch, ...]
    chunks: tuple[Stretch, ...]
    kind: str
    records: int
    repaired: bool
    left_out: tuple[str, ...]
    """what the build was asked to leave out, in words; empty for a build of the whole log"""

    def stretches(self, there: Collection[int]) -> list[Stretch]:
        """Return what a store must have that has segments which start at ``there``; empty where nothing is known.

        Only stretches of segments that are there are told.
        """
        sizes = {segment.start: segment.size for segment in self.segments if segment.start in there}

        def common(stretches: tuple[Stretch, ...]) -> list[Stretch]:
            return [one for one in stretches if any(start <= one.low < start + size for start, size in sizes.items())]

        if found := common(self.samples):
            return found
        chunks = [chunk for chunk in self.chunks if self.end < 0 or chunk.high <= self.end]
        if self.end < 0 and len(chunks) > 1 and common(tuple(chunks[:-1])):
            # A broker may have written on in the last one. Where it is all there is, it shows an unchanged log at least.
            chunks.pop()
        whole = common(tuple(chunks))
        return [whole[k] for k in spread(len(whole) - 1, _ASKED)] if whole else []


def read_log(manifest: Mapping[str, Any], kind: str) -> ReadLog:
    """Return what a manifest says of its log. Raises ValueError, KeyError, TypeError, AttributeError for what is none."""
    log, repaired = manifest.get("log"), "repair" in manifest
    segments = [ReadSegment(str(one["segment"]), _start(one), _number(one["size"])) for one in manifest["inputs"]]
    if repaired:
        # The repair's own log, not the damaged one.
        own = [(str(entry["path"]).partition("/"), _number(entry["size"])) for entry in manifest["files"]]
        segments = [ReadSegment(name, _start({"segment": name}), size) for (top, _, name), size in own if top == "commitlog"]
    samples = [_sample(one) for one in log["samples"][: _SAMPLES_MAX + 1]] if log else []
    if len(samples) > _SAMPLES_MAX:
        raise ValueError(f"has more than {_SAMPLES_MAX} samples of the log")
    return ReadLog(
        tuple(sorted(segments, key=lambda segment: segment.start)),
        _number(log["end"]) if log else -1,
        tuple(samples),
        () if repaired else tuple(_chunks(manifest["inputs"], kind)),
        kind,
        _number(manifest["counts"]["records"]),
        repaired,
        tuple(_left_out(manifest, max((one.start + one.size for one in segments), default=0))),
    )


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= FIRST_BYTE_MAX:
        raise ValueError(f"has {str(value)[:40]} where an offset or a size belongs")
    return value


def _start(entry: Mapping[str, Any]) -> int:
    start = first_byte(str(entry["segment"]))
    if start is None:
        raise ValueError(f"names a segment {str(entry['segment'])[:40]}")
    return start


def _digest_of(value: Any) -> str:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ValueError("has no digest of a stretch of the log")
    return value


def _sample(entry: Mapping[str, Any]) -> Stretch:
    low, length = _number(entry["offset"]), _number(entry["length"])
    if not 0 < length <= CHUNK:
        raise ValueError(f"has a sample of {length} bytes")
    return Stretch(low, low + length, _digest_of(entry["digest"]))


def _chunks(inputs: list[Mapping[str, Any]], kind: str) -> list[Stretch]:
    """The chunks with a digest that are not all zeros: those of a segment that is made ahead are the same in every store."""
    found, zeros = list[Stretch](), dict[int, str]()
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
                found.append(Stretch(low, high, digest))
    return sorted(found, key=lambda chunk: chunk.low)


def _left_out(manifest: Mapping[str, Any], end: int) -> list[str]:
    """What a build was asked to leave out of a log whose segments end at ``end``, as words for people."""
    settings = manifest["settings"]
    only = [part for part in PARTS if part in settings["only"]]
    found = [f"only {', '.join(only)}"] if len(only) < len(PARTS) else []
    for name, what in (("include_topics", "only topics"), ("exclude_topics", "no topics")):
        if globs := settings.get(name):
            found.append(f"{what} {', '.join(escape(str(glob), 80) for glob in globs[:5])}{' ...' if len(globs) > 5 else ''}")
    if (offset := settings.get("until_offset")) is not None and _number(offset) < end:
        found.append(f"up to offset {offset}")
    if (time := settings.get("until_time")) is not None:
        found.append(f"up to time {show_time(int(time))}")
    lost = list(filter(is_lost, manifest.get("damage", ())))
    if settings.get("on_damage") == "stop" and lost:
        found.append(f"up to damage at offset {_number(lost[0]['offset'])}")
    return found
