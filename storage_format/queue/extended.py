"""``consumequeue_ext``: the files with the bit maps of filters beside ConsumeQueues, and what a broker sets bits by.

With ``enableConsumeQueueExt`` a unit's tagsCode is an address in these files (``ConsumeQueueExt``, 4.9 to 5.5). The unit there
has tagsCode, store time and, with ``enableCalcFilterBitMap``, the bits of the consumer groups whose SQL92 expression takes the
message (``CommitLogDispatcherCalcBitMap``).
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.errors import Finding, UnreadableError
from rocketmq_reindex.storage_format.kernels.jit import jit
from rocketmq_reindex.storage_format.kernels.raw_bytes import int16_at, int64_at
from rocketmq_reindex.storage_format.layouts import INT16_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.queue.units import END_BLANK, EXT_LAYOUT, EXT_SIZE_MIN
from rocketmq_reindex.storage_format.record.selector import Selector, SelectorError
from rocketmq_reindex.storage_format.showing import escape

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

# ------------------------------------------------------------------------------------------------------------------------ units
# A unit has a size of its own. One that does not fit into the rest of a file goes to the next: -1 stands where its size would.

END_MARK: Final = b"\xff\xff"
ADDRESS_MAX: Final = INT32_MIN - 1
"""``MAX_ADDR``: below all tagsCodes that are hashes"""
BIT_MAP_MAX: Final = INT16_MAX - EXT_SIZE_MIN
"""bytes of the longest bit map; a longer one gets no unit"""


def is_address(tags_code: Int64s) -> npt.NDArray[np.bool_]:
    """Return which tagsCodes of units are addresses: bool (n,)."""
    found: npt.NDArray[np.bool_] = tags_code <= ADDRESS_MAX
    return found


def address_of(offset: Int64s) -> Int64s:
    """Return the addresses of units at logical bytes of the queue's files, or the bytes of addresses: int64 (n,)."""
    turned: Int64s = offset ^ np.int64(INT64_MIN)
    return turned


class UnitPlaces(NamedTuple):
    """Where units of one size lie in files of ``file_size`` bytes."""

    file_size: int
    size: int

    @property
    def in_file(self) -> int:
        """How many units a file holds."""
        return (self.file_size - END_BLANK) // self.size

    def offsets(self, number: Int64s) -> Int64s:
        """Return the logical byte of each unit by its number in the queue, from 0 on."""
        return number // self.in_file * self.file_size + number % self.in_file * self.size


def ext_image(tags_code: Int64s, store_time: Int64s, bit_maps: Bytes) -> Bytes:
    """Return units as they stand in the file; ``bit_maps``: uint8 (n, bytes of a bit map)."""
    count, length = bit_maps.shape
    kind = np.dtype([*((name, EXT_LAYOUT.dtype[name]) for name in EXT_LAYOUT.columns), ("bits", "u1", (length,))])
    image = np.zeros(count, kind)
    image["size"], image["bit_map_size"] = EXT_SIZE_MIN + length, length
    image["tags_code"], image["store_time"], image["bits"] = tags_code, store_time, bit_maps
    return image.view(np.uint8)


# ----------------------------------------------------------------------------------------------------------------------- reader
# Read a file: its units as columns, and what is wrong with them.


@dataclass(frozen=True)
class ExtFile:
    """One file as columns with a row for each unit. ``at`` (byte in the file) and the fields are int64."""

    start: int
    """first logical byte, the file's name"""
    length: int
    """bytes of the file"""
    at: Int64s
    size: Int64s
    tags_code: Int64s
    store_time: Int64s
    bit_map_size: Int64s
    used: int
    """bytes up to the end of the last unit"""
    is_full: bool
    """whether -1 stands behind the last unit: the queue goes on in the next file"""
    findings: list[Finding]

    def bit_map(self, data: Bytes, row: int) -> bytes:
        """Return the bit map of a unit; ``data`` is the file."""
        at = int(self.at[row]) + EXT_SIZE_MIN
        return data[at : at + max(0, int(self.bit_map_size[row]))].tobytes()


@jit
def _units(data: Bytes, out: Int64s) -> tuple[int, int]:
    """Fill the columns at, size, tagsCode, store time and bit map size; return how many units there are, and where they end."""
    count, at = 0, 0
    while at + 2 <= len(data):
        size = int16_at(data, at)
        if size < EXT_SIZE_MIN or at + size > len(data):
            break
        out[0, count] = at
        out[1, count] = size
        out[2, count] = int64_at(data, at + 2)
        out[3, count] = int64_at(data, at + 10)
        out[4, count] = int16_at(data, at + 18)
        count += 1
        at += size
    return count, at


def read_ext_file(data: Bytes | bytes | memoryview, start: int) -> ExtFile:
    """Return the units of a whole file whose name says that its first logical byte is ``start``. Raises UnreadableError."""
    raw = np.frombuffer(data, np.uint8)
    if start < 0 or start > INT64_MAX - len(raw):
        raise UnreadableError(f"{start} is not the first logical byte of a file of consumequeue_ext")
    columns = np.zeros((5, len(raw) // EXT_SIZE_MIN + 1), np.int64)
    count, used = map(int, _units(raw, columns))
    columns = columns[:, :count]
    findings, rest = [], raw[used:]
    is_full = rest[:2].tobytes() == END_MARK
    if len(raw) and start % len(raw):
        findings.append(Finding("ext-name", start, 1))
    wrong = columns[4] != columns[1] - EXT_SIZE_MIN
    if wrong.any():
        findings.append(Finding("ext-bit-map", int(columns[0, np.argmax(wrong)]), int(np.count_nonzero(wrong))))
    if not is_full and rest[:2].any():
        findings.append(Finding("ext-unit", used, 1))
    elif rest[2:].any():
        findings.append(Finding("ext-stray", used + 2 + int(np.argmax(rest[2:] != 0)), 1))
    at, size, tags_code, store_time, bit_map_size = columns
    return ExtFile(start, len(raw), at, size, tags_code, store_time, bit_map_size, used, is_full, findings)


class UnitsAt(NamedTuple):
    """Units at some bytes of a file, as columns with a row for each."""

    there: npt.NDArray[np.bool_]
    """whether there is a unit; else nothing else is said"""
    tags_code: Int64s
    store_time: Int64s
    bit_map_size: Int64s


def units_at(data: Bytes, at: Int64s) -> UnitsAt:
    """Return the units at bytes of a file, as a broker reads them there (``ConsumeQueueExt.get``)."""
    there = (at >= 0) & (at + EXT_SIZE_MIN <= len(data))
    raw = np.zeros((len(at), EXT_SIZE_MIN), np.uint8)
    raw[there] = data[at[there, None] + np.arange(EXT_SIZE_MIN)]
    units = raw.view(EXT_LAYOUT.dtype).reshape(-1)
    length = units["bit_map_size"].astype(np.int64)
    there &= (units["size"] > 0) & (at + EXT_SIZE_MIN + length <= len(data))
    return UnitsAt(there, units["tags_code"].astype(np.int64), units["store_time"].astype(np.int64), length)


# ----------------------------------------------------------------------------------------------------------------- bloom filter
# The filter whose bits a message sets for a consumer group: ``BloomFilter`` of rocketmq-filter.


class BloomFilter(NamedTuple):
    """How many bits a group sets, and how many there are."""

    hashes: int
    bits: int

    @staticmethod
    def of(error_rate: int, consumers: int) -> "BloomFilter":
        """Return the filter for settings of a broker. Raises ValueError for such as no broker starts with."""
        if not 1 <= error_rate < 100 or consumers < 1:
            raise ValueError("maxErrorRateOfBloomFilter is 1 to 99, and expectConsumerNumUseFilter at least 1")
        rate = error_rate / 100.0
        hashes = math.ceil(math.log(rate) / math.log(0.5))
        bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
        return BloomFilter(hashes, 8 * math.ceil(bits / 8.0))


# -------------------------------------------------------------------------------------------------------- config/consumerFilter
# The registrations of consumer groups with an expression: what ``ConsumerFilterManager`` keeps in config/consumerFilter.json.


class Registration(NamedTuple):
    """One group's expression on a topic. ``positions`` are the bits that a message sets which it takes."""

    group: str
    expression: str
    positions: tuple[int, ...]
    born: int = 0
    """A broker trusts the bits of messages that were stored later than this (``ConsumerFilterData.isMsgInLive``)."""


class ConsumerFilters(NamedTuple):
    """The registrations by topic; a message of any other topic has no bit map. ``bits`` is the length of a bit map, 0 without
    registrations. ``notes`` are of those that cannot be as a broker has them."""

    bits: int = 0
    topics: Mapping[str, tuple[Registration, ...]] = {}
    notes: tuple[str, ...] = ()
    unasked: int = 0
    """of how many registrations no bits are asked for, since an old broker does not understand them"""

    @property
    def words(self) -> int:
        """How many numbers of 64 bits say which groups of one topic take a message."""
        return max((-(-len(groups) // 64) for groups in self.topics.values()), default=0)

    def bit_map_size(self, topic: str) -> int:
        """Return bytes of the bit map of each message of a topic."""
        return self.bits // 8 if topic in self.topics else 0

    def bit_maps(self, topic: str, taken: Int64s) -> Bytes:
        """Return the bit maps of messages, uint8 (n, bytes).

        ``taken``: int64 (words, n), bit i of word w for the group 64 * w + i of the topic.
        """
        groups = self.topics.get(topic, ())
        if not groups:
            return np.zeros((taken.shape[1], 0), np.uint8)
        different, which = np.unique(taken, axis=1, return_inverse=True)
        maps = np.zeros((different.shape[1], self.bits), np.uint8)
        for number, group in enumerate(groups):
            takes = (different[number // 64] >> (number % 64)) & 1 == 1
            maps[np.ix_(takes, group.positions)] = 1
        packed: Bytes = np.packbits(maps, axis=1, bitorder="little")
        return packed[which.reshape(-1)]

    def trusted(self, topic: str, taken: Int64s, store_time: Int64s) -> Int64s:
        """Return the words without groups that do not trust the bits of these messages, since they were registered later."""
        words: Int64s = taken.copy()
        for number, group in enumerate(self.topics.get(topic, ())):
            words[number // 64, store_time <= group.born] &= ~np.uint64(1 << number % 64).astype(np.int64)
        return words


NO_FILTERS: Final = ConsumerFilters()
_NEW_WORDS: Final = re.compile(r"\b(?:CONTAINS|STARTSWITH|ENDSWITH)\b", re.IGNORECASE)


def read_filters(text: str, bloom: BloomFilter | None = None, *, old: bool = False) -> ConsumerFilters:
    """Return the registrations in a consumerFilter.json. Raises ValueError where it is none.

    ``bloom`` is the broker's filter, by default the one that the file was written with. As a broker does, all are passed over
    where one is of another filter (``ConsumerFilterManager.decode``). ``old``: the broker is a 4.9, whose parser passes over
    what stands behind a word that 5.x added: of such groups no bits are asked for.
    """
    topics = json.loads(text).get("filterDataByTopic") or {}
    entries = [(topic, *entry) for topic, table in topics.items() for entry in _entries(table)]
    filters = {_bloom(entry) for _, _, entry in entries}
    if not entries:
        return ConsumerFilters()
    wanted = bloom or next(iter(filters))
    if filters != {wanted}:
        what = "registrations of more than one bloom filter" if bloom is None else "registrations of another bloom filter"
        return ConsumerFilters(notes=(f"{what}: a broker passes over all of them, so no unit has a bit map",))
    if wanted is None or not 0 < wanted.bits // 8 <= BIT_MAP_MAX or wanted.bits % 8:
        raise ValueError("has a bloomFilterData that no broker makes")
    found, notes, unasked = dict[str, list[Registration]](), list[str](), 0
    for topic, group, entry in entries:
        positions = tuple(entry["bloomFilterData"]["bitPos"])
        if not all(isinstance(bit, int) and 0 <= bit < wanted.bits for bit in positions):
            raise ValueError(f"bitPos of group {escape(group)} is not below {wanted.bits}")
        expression = entry.get("expression")
        expression = expression if isinstance(expression, str) else ""
        try:
            Selector(expression)
        except SelectorError as error:
            notes.append(
                f"expression of group {escape(group, 80)} on topic {escape(topic, 80)} is not understood "
                f"({escape(str(error))}): its bits are set for each message, so the broker filters by the log alone"
            )
            expression = "TRUE"
        born = _born(entry)
        if old and _NEW_WORDS.search(re.sub(r"'[^']*'", "", expression)):
            born, unasked = INT64_MAX, unasked + 1
        found.setdefault(topic, []).append(Registration(group, expression, positions, born))
    return ConsumerFilters(wanted.bits, {topic: tuple(groups) for topic, groups in found.items()}, tuple(notes), unasked)


def _entries(table: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for group, entry in (table or {}).get("groupFilterData", {}).items():
        if not isinstance(entry, dict):
            raise ValueError(f"group {escape(group)} has no registration")
        yield group, entry


def _born(entry: dict[str, Any]) -> int:
    born = entry.get("bornTime", 0)
    return born if isinstance(born, int) and 0 <= born <= INT64_MAX else 0


def _bloom(entry: dict[str, Any]) -> BloomFilter | None:
    data = entry.get("bloomFilterData") or {}
    bits, positions = data.get("bitNum"), data.get("bitPos")
    return BloomFilter(len(positions), bits) if isinstance(bits, int) and isinstance(positions, list) else None
