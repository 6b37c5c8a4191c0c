"""The table of names that a task has met: what the record loop needs to know of each."""

import fnmatch
import zlib
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.kernels.java_text import java_hash
from rocketmq_reindex.storage_format.kernels.jit import inlined
from rocketmq_reindex.storage_format.kernels.raw_bytes import byte_at, int32_at
from rocketmq_reindex.storage_format.layouts import UINT32_MAX, java_text
from rocketmq_reindex.storage_format.topics import (
    BATCH,
    DISPATCHES,
    INCLUDED,
    LMQ,
    LMQ_PREFIX,
    PLAIN,
    RETRY_PREFIX,
    SCHEDULE,
    SCHEDULE_TOPIC,
    SEEN,
    SLASH,
    SYSTEM_PREFIX,
    TOPIC,
    UNUSUAL,
    is_usual,
    path_component,
)
from rocketmq_reindex.storage_format.versions import RULES

_SPREAD: Final = 0x2545F491
"""An odd factor below 2**31, so that the product of 32 bits and it fits into an int64"""


class NameArrays(NamedTuple):
    """The table as the record loop sees it: a hash table with open addressing over ``slots`` (a power of two of them, -1
    empty).

    Entry k is the name ``raw[start[k]:end[k]]``, its text is that of entry ``canonical[k]``; ``flags`` are those of ``names``,
    and ``hash`` is Java's hash of the name and ``#``.
    """

    slots: npt.NDArray[np.int32]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    raw: npt.NDArray[np.uint8]
    canonical: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int64]
    hash: npt.NDArray[np.int64]


@inlined
def _slot_hash(data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    h, at = np.int64(end - start), start
    while at + 4 <= end:
        h = ((h ^ (int32_at(data, at) & UINT32_MAX)) * _SPREAD) & UINT32_MAX
        h ^= h >> 16
        at += 4
    while at < end:
        h = ((h ^ byte_at(data, at)) * _SPREAD) & UINT32_MAX
        at += 1
    h = ((h ^ (h >> 16)) * _SPREAD) & UINT32_MAX
    return int(h ^ (h >> 20))


@inlined
def find_name(names: NameArrays, data: npt.NDArray[np.uint8], start: int, end: int) -> int:
    """Return the entry of the raw name ``data[start:end]``, or -1 when it has not been met."""
    mask = len(names.slots) - 1
    slot = _slot_hash(data, start, end) & mask
    length = end - start
    while True:
        entry = names.slots[slot]
        if entry < 0:
            return -1
        first = names.start[entry]
        if names.end[entry] - first == length:
            k = 0
            while k + 4 <= length and int32_at(names.raw, first + k) == int32_at(data, start + k):
                k += 4
            while k < length and byte_at(names.raw, first + k) == byte_at(data, start + k):
                k += 1
            if k == length:
                return int(entry)
        slot = (slot + 1) & mask


class NameTable:
    """The names that a task has met. Byte strings that Java decodes to the same text share one canonical entry.

    ``include`` and ``exclude`` are globs of topics; ``batch`` are the topics whose queues are batch ConsumeQueues.
    """

    def __init__(
        self, broker_version: str, include: tuple[str, ...], exclude: tuple[str, ...], batch: tuple[str, ...] = ()
    ) -> None:
        self._exclusions_of_lmq = RULES[broker_version].lmq_by_topic
        self._include = include
        self._exclude = exclude
        self._batch = frozenset(batch)
        self._by_text: dict[str, int] = {}
        self.texts: list[str] = []
        """the decoded name of each entry"""
        self.crc = np.zeros(64, dtype=np.uint32)
        """CRC-32 of each entry's decoded name: where its queues go does not depend on who met it first"""
        self.arrays = NameArrays(
            np.full(128, -1, np.int32),
            np.zeros(64, np.int64),
            np.zeros(64, np.int64),
            np.zeros(4096, np.uint8),
            np.zeros(64, np.int32),
            np.zeros(64, np.int64),
            np.zeros(64, np.int64),
        )
        self._used = 0

    def _flags(self, name: str) -> int:
        flags = PLAIN if path_component(name) is not None else 0
        flags |= 0 if is_usual(name) else UNUSUAL
        flags |= SLASH if "/" in name else 0
        flags |= SCHEDULE if name == SCHEDULE_TOPIC else 0
        flags |= LMQ if name.startswith(LMQ_PREFIX) else 0
        # MultiDispatchUtils.isNeedHandleMultiDispatch; 4.9 asks nothing of the topic. BatchConsumeQueue dispatches to no LMQ.
        kept_out = name.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) or name == SCHEDULE_TOPIC
        flags |= 0 if (kept_out and self._exclusions_of_lmq) or name in self._batch else DISPATCHES
        flags |= BATCH if name in self._batch else 0
        wanted = not self._include or any(fnmatch.fnmatchcase(name, glob) for glob in self._include)
        if wanted and not any(fnmatch.fnmatchcase(name, glob) for glob in self._exclude):
            flags |= INCLUDED
        return flags

    def _grow(self) -> None:
        a = self.arrays
        count = len(self.texts)
        if count == len(a.start):
            a = a._replace(
                **{f: np.concatenate([getattr(a, f), np.zeros_like(getattr(a, f))]) for f in a._fields[1:3]},
                **{f: np.concatenate([getattr(a, f), np.zeros_like(getattr(a, f))]) for f in a._fields[4:]},
                slots=np.full(2 * len(a.slots), -1, np.int32),
            )
            self.crc = np.concatenate([self.crc, np.zeros_like(self.crc)])
            self.arrays = a
            for entry in range(count):
                self._place(entry)

    def forget_seen(self) -> None:
        """Forget which names the range before met: a new one begins."""
        self.arrays.flags[:] &= ~(SEEN | TOPIC)

    def topics(self) -> npt.NDArray[np.int64]:
        """Return the canonical entries that are topics of the range's records."""
        count = len(self.texts)
        topics: npt.NDArray[np.int64] = np.unique(self.arrays.canonical[:count][self.arrays.flags[:count] & TOPIC > 0])
        return topics

    def raw(self, entry: int) -> bytes:
        """Return the bytes of a name as the log has them."""
        a = self.arrays
        return a.raw[a.start[entry] : a.end[entry]].tobytes()

    def seen_unusual(self, limit: int) -> list[str]:
        """Return the first unusual names, in their order, that the range's records were dispatched to."""
        wanted = UNUSUAL | SEEN
        entries = np.flatnonzero((self.arrays.flags[: len(self.texts)] & wanted) == wanted)
        return sorted({self.texts[k] for k in entries})[:limit]

    def _place(self, entry: int) -> None:
        a = self.arrays
        mask = len(a.slots) - 1
        slot = _slot_hash(a.raw, int(a.start[entry]), int(a.end[entry])) & mask
        while a.slots[slot] >= 0:
            slot = (slot + 1) & mask
        a.slots[slot] = entry

    def add(self, raw: bytes) -> int:
        """Enter a raw name; return its entry."""
        self._grow()
        a = self.arrays
        if self._used + len(raw) > len(a.raw):
            a = a._replace(raw=np.concatenate([a.raw, np.zeros(len(a.raw) + len(raw), np.uint8)]))
            self.arrays = a
        entry = len(self.texts)
        text = java_text(raw)
        a.start[entry] = self._used
        a.end[entry] = self._used + len(raw)
        a.raw[self._used : self._used + len(raw)] = np.frombuffer(raw, np.uint8)
        self._used += len(raw)
        a.canonical[entry] = self._by_text.setdefault(text, entry)
        a.flags[entry] = self._flags(text)
        hashed = np.frombuffer(raw + b"#", np.uint8)
        a.hash[entry] = java_hash(hashed, 0, len(hashed), 0)
        self.crc[entry] = zlib.crc32(text.encode("utf-8"))
        self.texts.append(text)
        self._place(entry)
        return entry
