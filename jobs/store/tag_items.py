"""Which parts of a log have tag items in the IndexFiles of its store.

A broker puts tag items from 5.4.0 on (``IndexService.buildIndex``). After an upgrade in place the older records of a store
have none, and one IndexFile may hold both. Its header does not say so, but its items do: a record with TAGS that has items,
but no tag item, was indexed by an older broker. A few records of each file are looked at: those of its first and last items,
and some between them. Where one has no tag item, the place from which on they are there is searched for behind it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rocketmq_reindex.jobs.store.contents import IndexFiles, OpenIndexFile, StoreLog
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE, file_size
from rocketmq_reindex.storage_format.layouts import key_hash, tag_hash
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import reason

SAMPLES: Final = 16
"""records that are looked at between the first and the last ones of a file"""
RECORDS_MAX: Final = 1000
"""records that are passed over in search of one with TAGS"""


class LogStretch(NamedTuple):
    """The bytes [low, high) of the log: a record begins at ``low`` and ends at ``high``, or the log does."""

    low: int
    high: int


def parts_with_tag_items(index: IndexFiles, log: StoreLog) -> list[LogStretch]:
    """Return the parts of the log whose records have their tag items, one of each IndexFile at most, in the order of the
    files."""
    parts = []
    for file in index.files:
        try:
            part = part_with_tag_items(file, log)
        except (OSError, InputError) as error:
            index.unread(file.path, reason(error))
            continue
        if part is not None:
            parts.append(part)
    return parts


def part_with_tag_items(file: OpenIndexFile, log: StoreLog) -> LogStretch | None:
    """Return the part of the log whose records have their tag items in one IndexFile, or where it goes on in the next one.

    None where the first or last many records say nothing, or where the last one with TAGS has no tag item. Raises OSError and
    InputError.
    """
    part = _IndexItems(file, log).part() if _is_whole(file) else None
    return part if part is not None and part.low < part.high else None


def are_put(index: IndexFiles, log: StoreLog) -> bool | None:
    """Return whether the newest record with TAGS that has items has its tag item, too; None where no file tells."""
    for file in reversed(index.files):
        try:
            has_tag_item = _IndexItems(file, log).newest() if _is_whole(file) else None
        except (OSError, InputError) as error:
            index.unread(file.path, reason(error))
            continue
        if has_tag_item is not None:
            return has_tag_item
    return None


def parts_without(parts: Sequence[LogStretch], log: StoreLog) -> list[LogStretch]:
    """Return what is left of the log, without what lies in none of its segments."""
    uncovered, low = [], log.start
    for part in sorted(parts):
        if part.low > low:
            uncovered.append(LogStretch(low, part.low))
        low = max(low, part.high)
    if low < log.end:
        uncovered.append(LogStretch(low, log.end))
    return uncovered


def _is_whole(file: OpenIndexFile) -> bool:
    return file.sizes is not None and file.pages.size == file_size(*file.sizes)


class _Item(NamedTuple):
    key_hash: int
    phy_offset: int


class _Evidence(NamedTuple):
    """A record with TAGS and with items from ``item`` on, and whether a tag item is among them."""

    item: int
    message: Message
    has_tag_item: bool


class _IndexItems:
    """The items of one IndexFile, and the records behind them. Raises OSError and InputError."""

    def __init__(self, file: OpenIndexFile, log: StoreLog) -> None:
        assert file.sizes is not None
        self._log, self._read = log, file.pages.read
        slots, room = file.sizes
        self._start = HEADER_SIZE + SLOT_SIZE * slots
        self._end = self._first_of_zeros(min(file.header.index_count, room))
        """number behind the last item; a file that was sealed has zeros behind it"""
        self._is_full = self._end == room

    def _first_of_zeros(self, count: int) -> int:
        low, high = 2, count
        while low < high:
            middle = (low + high) // 2
            if any(self._read(self._start + ITEM_SIZE * middle, ITEM_SIZE)):
                low = middle + 1
            else:
                high = middle
        return min(low, count)

    def _item(self, number: int) -> _Item:
        key_hash, phy_offset, _, _ = ITEM_LAYOUT.unpack(self._read(self._start + ITEM_SIZE * number, ITEM_SIZE))
        return _Item(key_hash, phy_offset)

    def part(self) -> LogStretch | None:
        """Return the part of the log from the first to the last record that is known to have its tag item.

        What the file holds before and behind them belongs to it, unless records with TAGS and without keys stand there: those
        have no items at all where an older broker put them.
        """
        first = self._first_in_log()
        begin, end = self._next(first, self._end), self._last(first)
        if begin is None or end is None or not end.has_tag_item:
            return None
        known = [begin, *self._between(begin, end), end]
        missing = [number for number, evidence in enumerate(known) if not evidence.has_tag_item]
        if missing:
            begin = self._first_behind(known[missing[-1]], known[missing[-1] + 1])
        low, high = begin.message.phy_offset, end.message.phy_offset + end.message.size
        before, last = self._record(first), self._record(self._end - 1)
        if before is not None and not missing and self._are_indexed(before.phy_offset, low):
            low = before.phy_offset
        if last is not None and last.phy_offset >= high:
            # The tag item of the very last record may stand in the next file.
            behind = last.phy_offset + (0 if last.tags else last.size)
            high = behind if self._are_indexed(high, behind) else high
        return LogStretch(low, high)

    def newest(self) -> bool | None:
        """Return whether the last record with TAGS has its tag item; None where the last many have no TAGS."""
        newest = self._last(self._first_in_log())
        return None if newest is None else newest.has_tag_item

    def _are_indexed(self, low: int, high: int) -> bool:
        """Return whether each record in [low, high) of the log with TAGS has items by any broker, as far as the next many
        tell."""
        for _ in range(RECORDS_MAX):
            if low >= high:
                break
            message = self._log.message(low)
            if isinstance(message, str) or (message.tags and not (message.unique_key or message.keys)):
                return False
            low += message.size
        return low == high

    def _record(self, item: int) -> Message | None:
        record = self._log.message(self._item(item).phy_offset)
        return record if isinstance(record, Message) else None

    def _first_in_log(self) -> int:
        """Return the first item whose record has not expired. Items are in the order of the log."""
        low, high = 1, self._end
        while low < high:
            middle = (low + high) // 2
            if self._item(middle).phy_offset < self._log.start:
                low = middle + 1
            else:
                high = middle
        return low

    def _between(self, begin: _Evidence, end: _Evidence) -> Iterator[_Evidence]:
        at = begin.item
        for number in range(1, SAMPLES + 1):
            item = begin.item + (end.item - begin.item) * number // (SAMPLES + 1)
            evidence = self._next(item, end.item) if item > at else None
            if evidence is not None:
                yield evidence
            at = max(at, item if evidence is None else evidence.item)

    def _next(self, at: int, end: int) -> _Evidence | None:
        """Return the first record with TAGS that has items from ``at`` to ``end``; None where the next many have none."""
        for _ in range(RECORDS_MAX):
            if at >= end:
                return None
            evidence, behind = self._evidence(at)
            if evidence is not None:
                return evidence
            at = behind
        return None

    def _last(self, first: int) -> _Evidence | None:
        """Return the last record with TAGS; not the very last record where its items go on in the next file."""
        at = self._end - 1
        for _ in range(RECORDS_MAX):
            if at < first:
                return None
            evidence, behind = self._evidence(at)
            if evidence is not None and (evidence.has_tag_item or not (self._is_full and behind == self._end)):
                return evidence
            at = self._begin_of(at) - 1
        return None

    def _begin_of(self, at: int) -> int:
        phy_offset = self._item(at).phy_offset
        while at > 1 and self._item(at - 1).phy_offset == phy_offset:
            at -= 1
        return at

    def _evidence(self, at: int) -> tuple[_Evidence | None, int]:
        """Return what the record of an item says, and the number behind its last item.

        None for a record without TAGS, and for one with a key of the same hash: that leads to it, too.
        """
        at = self._begin_of(at)
        phy_offset, behind, hashes = self._item(at).phy_offset, at, set[int]()
        while behind < self._end and (item := self._item(behind)).phy_offset == phy_offset:
            hashes.add(item.key_hash)
            behind += 1
        message = self._log.message(phy_offset)
        if isinstance(message, str) or not message.tags:
            return None, behind
        hashed = tag_hash(message.topic, message.tags)
        if any(key_hash(message.topic, key) == hashed for key in (message.unique_key, *message.keys) if key):
            return None, behind
        return _Evidence(at, message, hashed in hashes), behind

    def _first_behind(self, without: _Evidence, with_tag: _Evidence) -> _Evidence:
        """Return the first record with a tag item, between one without it and one with it."""
        low, high = without.item, with_tag.item
        while high - low > 1:
            middle = (low + high) // 2
            between = self._next(middle, high)
            if between is not None and not between.has_tag_item:
                low = max(middle, between.item)
                continue
            high, with_tag = middle, between or with_tag
        return with_tag
