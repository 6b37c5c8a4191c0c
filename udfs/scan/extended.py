"""``consumequeue_ext`` in tasks: the rows that a scanned block gives for it, and its units by their addresses."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue import cells, extended
from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters
from rocketmq_reindex.storage_format.queue.units import EXT_SIZE_MIN
from rocketmq_reindex.storage_format.record import columns as m
from rocketmq_reindex.storage_format.record.selector import Selector
from rocketmq_reindex.storage_format.record.text_columns import TextColumn, read_maps
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import Block
from rocketmq_reindex.storage_format.showing import escape, reason
from rocketmq_reindex.udfs import handover

Int64s = npt.NDArray[np.int64]

COLUMNS: Final = cells.UNIT_COLUMNS + 2
"""Those of a unit, its record's store time, and not 0 where it is the unit of a light queue, which has none in
``consumequeue_ext`` (``ConsumeQueue.doDispatchLmqQueue``): OF_LITE where its record is of a lite topic, else 1. Words
follow: of ``ConsumerFilters.bit_maps``."""
STORE_TIME: Final = cells.UNIT_COLUMNS
IS_LIGHT: Final = cells.UNIT_COLUMNS + 1
OF_LITE: Final = 2
QUEUE_BUCKETS: Final = 1 << 31
"""as for batch queues: a bucket has one queue, except where hashes collide"""

# ---------------------------------------------------------------------------------------------------------------- registrations
# The registrations of consumer groups, as they lie in a store.

FILTERS: Final = f"{layouts.CONFIG}/consumerFilter.json"


def _reason(path: str, error: Exception) -> str:
    return f"{escape(path)}: cannot be read ({reason(error)})"


def stored_filters(
    store: str,
    bloom: extended.BloomFilter | None = None,
    *,
    old: bool = False,
    otherwise: str = "",
    unread: Callable[[str, Exception], str] = _reason,
) -> ConsumerFilters | None:
    """Return the registrations in the folder ``store`` as ``read_filters`` does; None where it has none. Of a file that is cut
    short a broker takes the copy.

    Raises InputError where they cannot be read, which ends with what to do ``otherwise``; ``unread`` says why of a path.
    """
    path = files.join(store, FILTERS)
    found = [name for name in (path, f"{path}.bak") if _has_bytes(name)]
    for number, name in enumerate(found, 1):
        try:
            text = files.read_bytes(name, files.CONFIG_MAX).decode("utf-8", "replace")
            return extended.read_filters(text, bloom, old=old)
        except (OSError, InputError) as error:
            told = unread(name, error)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            what = escape(str(error)) if type(error) is ValueError else "is no consumerFilter.json of a broker"
            told = f"{escape(name)}: {what}: {otherwise}"
        if number == len(found):
            raise InputError(told)
    return None


def _has_bytes(path: str) -> bool:
    try:
        return files.entry_of(path).size > 0
    except OSError:
        return False


# --------------------------------------------------------------------------------------------------------------------- matching
# Which consumer groups take which messages. Each expression is asked once for values that are the same.


def _strings(column: TextColumn) -> pa.Array:
    buffers = [None, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(pa.string(), len(column.valid), buffers)


class Matcher:
    """Says for messages of a topic which of its consumer groups take them."""

    def __init__(self, filters: ConsumerFilters) -> None:
        self.words = filters.words
        self._topics = {topic: [Selector(group.expression) for group in groups] for topic, groups in filters.topics.items()}

    def knows(self, topic: str) -> bool:
        """Return whether any group has an expression on the topic."""
        return topic in self._topics

    def taken(self, topic: str, data: npt.NDArray[np.uint8], starts: Int64s, ends: Int64s) -> Int64s:
        """Return the words of messages whose properties are ``data[starts[k]:ends[k]]``: int64 (words, n)."""
        selectors = self._topics[topic]
        names = tuple(dict.fromkeys(name for selector in selectors for name in selector.names))
        column = read_maps(data, starts, ends)
        keys, values = _strings(column.names), _strings(column.values)
        # Code 0: the message has no such property.
        codes, texts = np.zeros((max(1, len(names)), len(starts)), np.int64), list[list[str | None]]()
        for row, name in enumerate(names):
            entries = np.flatnonzero(pc.equal(keys, pa.scalar(name)).to_numpy(zero_copy_only=False))
            coded = values.take(pa.array(entries)).dictionary_encode()
            codes[row, np.searchsorted(column.offsets, entries, "right") - 1] = coded.indices.to_numpy() + 1
            texts.append([None, *coded.dictionary.to_pylist()])
        different, which = np.unique(codes, axis=1, return_inverse=True)
        words = np.zeros((self.words, different.shape[1]), np.uint64)
        for k, message in enumerate(different.T.tolist()):
            properties = {
                name: text
                for name, known, code in zip(names, texts, message, strict=False)
                if (text := known[code]) is not None
            }
            for number, selector in enumerate(selectors):
                if selector.matches(properties):
                    words[number // 64, k] |= np.uint64(1 << number % 64)
        return words.view(np.int64)[:, which.reshape(-1)]


# ------------------------------------------------------------------------------------------------------------------------- rows


def extended_units(
    scanner: RangeScanner, block: Block, matcher: Matcher, lite: frozenset[str] = frozenset()
) -> tuple[Int64s, Int64s]:
    """Return the units of a block in the order of the log: their queues, and int64 (COLUMNS + words, n).

    The block has all of ``messages``, so that records lie in its data. ``lite`` are the lite topics.
    """
    units = block.units
    kept = np.flatnonzero(units.size > 0)
    queue, phy_offset = units.queue[kept].astype(np.int64), units.phy_offset[kept]
    fields = m.read_fields(block.data, block.base, phy_offset, False)
    # A record's own unit comes first, then those of the light queues that it names.
    light = np.zeros(len(kept), np.bool_)
    light[1:] = phy_offset[1:] == phy_offset[:-1]
    taken = np.zeros((matcher.words, len(kept)), np.int64)
    names = scanner.queues.name[queue]
    for name in np.unique(names[~light]).tolist():
        topic = scanner.names.texts[name]
        if matcher.knows(topic):
            rows = np.flatnonzero((names == name) & ~light)
            taken[:, rows] = matcher.taken(topic, block.data, fields[m.PROPS_START, rows], fields[m.PROPS_END, rows])
    own = names[np.maximum.accumulate(np.where(light, 0, np.arange(len(kept))))]
    of_lite = np.isin(own, [name for name in np.unique(own).tolist() if scanner.names.texts[name] in lite])
    kind = light.astype(np.int64) * np.where(of_lite, OF_LITE, 1)
    columns = [units.offset[kept], phy_offset, units.size[kept], units.tags_code[kept], fields[m.STORE_TIME], kind]
    return queue, np.concatenate([np.stack([column.astype(np.int64) for column in columns]), taken])


def extended_rows(
    scanner: RangeScanner, number: int, block: Block, matcher: Matcher, keys: tuple[int, ...],
    lite: frozenset[str] = frozenset(),
) -> Iterator[handover.Row]:  # fmt: skip
    """Yield rows of EXTENDED from a scanned block of range ``number``: all of a queue go to one bucket.

    ``keys[b]`` is the key of bucket b. Rows are sorted by the phy_offset of their first record. ``lite`` are the lite topics.
    """
    queue, columns = extended_units(scanner, block, matcher, lite)
    order = np.argsort(queue, kind="stable")
    present, starts = np.unique(queue[order], return_index=True)
    columns, bounds = columns[:, order], np.append(starts, len(order))
    names, ids = scanner.queues.name[present].astype(np.int64), scanner.queues.queue_id[present]
    bucket = cells.bucket_of(scanner.names.crc[names], ids, np.zeros_like(present), QUEUE_BUCKETS)
    most = max(1, cells.CELL_BYTES // (8 * len(columns)))
    for k, target in enumerate(bucket.tolist()):
        name = scanner.names.texts[names[k]].encode()
        for low in range(int(bounds[k]), int(bounds[k + 1]), most):
            part = columns[:, low : min(low + most, int(bounds[k + 1]))]
            cell = cells.pack([name], ids[k : k + 1], np.array([part.shape[1]], np.int32), part)
            yield handover.Row(handover.EXTENDED, target, keys[target % len(keys)], number, cell, int(part[1, 0]))


# --------------------------------------------------------------------------------------------------------------------- look-up
# The units of consumequeue_ext to which the tagsCodes of a ConsumeQueue lead.


class ExtFiles:
    """The files of one queue in ``consumequeue_ext``; ``folder`` is that of the queue, which need not be there.

    One file is held open at a time: the addresses of a queue ascend.
    """

    def __init__(self, folder: str) -> None:
        is_folder = files.entry_of(folder).kind == files.FOLDER
        listed = [entry for entry in files.listing(folder) if entry.kind == files.FILE] if is_folder else []
        starts = [(start, entry) for entry in listed if (start := layouts.first_byte(entry.name)) is not None]
        self._entries = [entry for _, entry in sorted(starts, key=lambda pair: pair[0])]
        self._starts = np.array(sorted(start for start, _ in starts), np.int64)
        self._number, self._data = -1, np.zeros(0, np.uint8)

    @staticmethod
    def beside(path: str) -> "ExtFiles":
        """Return the files of the queue of which ``path`` is a ConsumeQueue file in a store."""
        queue = files.parent(path)
        topic = files.parent(queue)
        folder = files.join(files.parent(files.parent(topic)), layouts.EXT_QUEUES)
        return ExtFiles(files.join(folder, files.base(topic), files.base(queue)))

    def _whole(self, number: int) -> npt.NDArray[np.uint8]:
        if number != self._number:
            with files.Reader(self._entries[number].path) as reader:
                self._number, self._data = number, reader.whole()
        return self._data

    def at(self, address: Int64s, length: int = 0) -> tuple[extended.UnitsAt, npt.NDArray[np.uint8]]:
        """Return the units at some addresses, and of those whose bit maps have ``length`` bytes these: uint8 (n, length)."""
        offset = extended.address_of(address)
        found = extended.UnitsAt(np.zeros(len(offset), np.bool_), *(np.zeros(len(offset), np.int64) for _ in range(3)))
        bits = np.zeros((len(offset), length), np.uint8)
        numbers = np.searchsorted(self._starts, offset, "right") - 1
        for number in np.unique(numbers[numbers >= 0]).tolist():
            rows = np.flatnonzero(numbers == number)
            data, at = self._whole(number), offset[rows] - self._starts[number]
            units = extended.units_at(data, at)
            for column, values in zip(found, units, strict=True):
                column[rows] = values
            with_bits = np.flatnonzero(units.there & (units.bit_map_size == length))
            bits[rows[with_bits]] = data[at[with_bits, None] + EXT_SIZE_MIN + np.arange(length)]
        return found, bits

    def tags_codes(self, tags_code: Int64s) -> Int64s:
        """Return tagsCodes of units, those that are addresses as the units there have them; one that leads nowhere stays."""
        rows = np.flatnonzero(extended.is_address(tags_code))
        if not len(rows) or not len(self._starts):
            return tags_code
        found, _ = self.at(tags_code[rows])
        decoded: Int64s = tags_code.copy()
        decoded[rows[found.there]] = found.tags_code[found.there]
        return decoded
