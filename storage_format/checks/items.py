"""Compare the index items that the log gives with those in IndexFiles, and find out which records have tag items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.layouts import INT32_MAX

# ------------------------------------------------------------------------------------------------------------------------ items
# Compare the index items that a stretch of the log gives with those in IndexFiles: as multisets, record by record.
#
# Files may begin and end anywhere: a broker begins a new one where it was started, or where one is full.

Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Expected(NamedTuple):
    """The items that the log gives, in its order: physical offset, store time (milliseconds), hash."""

    phy_offset: Int64s
    time: Int64s
    key_hash: Int32s

    def rows(self, chosen: Int64s | Mask) -> Expected:
        """Return some of the items."""
        return Expected(self.phy_offset[chosen], self.time[chosen], self.key_hash[chosen])


class FileItems(NamedTuple):
    """The items of files, in the order of files and numbers.

    Physical offset, hash, timeDiff (seconds), the file's number, the item's number.
    """

    phy_offset: Int64s
    key_hash: Int32s
    time_diff: Int32s
    file: Int32s
    item: Int32s


@dataclass(frozen=True)
class Matches:
    """How expected and found items go together, by their row numbers.

    ``pairs``: rows (expected, found) of the same items. ``missing``: expected rows that were not found. ``extra``: found rows
    that are not expected. ``hashes``: found rows with wrong hashes, of records that lack as many items. ``repeats``: found rows
    of records that stand there several times.
    """

    pairs: tuple[Int64s, Int64s]
    missing: Int64s
    extra: Int64s
    hashes: Int64s
    repeats: Int64s


_NONE = np.zeros(0, np.int64)


def match_items(expected: Expected, in_files: FileItems) -> Matches:
    """Return the pairs of expected items and those that are there. It is fast where both differ in a few rows only."""
    n, m = len(expected.phy_offset), len(in_files.phy_offset)
    head = _common(expected, in_files, min(n, m), False)
    tail = _common(expected, in_files, min(n, m) - head, True)
    # Back to whole records: an item of one may pair with any of its equals.
    head = _whole(expected.phy_offset, in_files.phy_offset, head, False)
    tail = _whole(expected.phy_offset, in_files.phy_offset, tail, True)
    head_rows = np.arange(head)
    pairs = (np.concatenate([head_rows, np.arange(n - tail, n)]), np.concatenate([head_rows, np.arange(m - tail, m)]))
    if head == n - tail and head == m - tail:
        return Matches(pairs, _NONE, _NONE, _NONE, _NONE)
    return _match_rest(expected, in_files, pairs, (head, n - tail), (head, m - tail))


def _common(expected: Expected, in_files: FileItems, count: int, from_end: bool) -> int:
    """Return how many items are alike from the first on, or from the last on backwards."""
    if count <= 0:
        return 0
    if from_end:
        n, m = len(expected.phy_offset), len(in_files.phy_offset)
        a, b = slice(n - count, n), slice(m - count, m)
    else:
        a = b = slice(0, count)
    differ = (expected.phy_offset[a] != in_files.phy_offset[b]) | (expected.key_hash[a] != in_files.key_hash[b])
    if from_end:
        differ = differ[::-1]
    return int(np.argmax(differ)) if differ.any() else count


def _whole(expected: Int64s, in_files: Int64s, count: int, from_end: bool) -> int:
    """Return ``count``, or less, so that no record is cut in two in either row."""
    for row in (expected, in_files):
        if from_end:
            while 0 < count < len(row) and row[len(row) - count] == row[len(row) - count - 1]:
                count -= 1
        else:
            while 0 < count < len(row) and row[count] == row[count - 1]:
                count -= 1
    return count


def _match_rest(
    expected: Expected, in_files: FileItems, pairs: tuple[Int64s, Int64s], log_rows: tuple[int, int], file_rows: tuple[int, int]
) -> Matches:
    """Pair what is left by physical offset and hash, the first of equals with the first."""
    n = log_rows[1] - log_rows[0]
    phy_offset = np.concatenate(
        [expected.phy_offset[log_rows[0] : log_rows[1]], in_files.phy_offset[file_rows[0] : file_rows[1]]]
    )
    key_hash = np.concatenate([expected.key_hash[log_rows[0] : log_rows[1]], in_files.key_hash[file_rows[0] : file_rows[1]]])
    if not len(phy_offset):
        return Matches(pairs, _NONE, _NONE, _NONE, _NONE)
    is_found = np.arange(len(phy_offset)) >= n
    order = np.lexsort((is_found, key_hash, phy_offset))
    phy_offset, key_hash, is_found = phy_offset[order], key_hash[order], is_found[order]
    new = np.concatenate([[True], (phy_offset[1:] != phy_offset[:-1]) | (key_hash[1:] != key_hash[:-1])])
    group = np.cumsum(new) - 1
    starts = np.flatnonzero(new)
    expected_count = np.bincount(group, ~is_found).astype(np.int64)
    found_count = np.bincount(group, is_found).astype(np.int64)
    pair_count = np.minimum(expected_count, found_count)
    # Expected come first in a group, then found: their number among their own.
    rank = np.arange(len(phy_offset)) - starts[group] - np.where(is_found, expected_count[group], 0)
    paired = rank < pair_count[group]
    rows = order - np.where(is_found, n, 0)
    paired_expected, paired_found = rows[paired & ~is_found] + log_rows[0], rows[paired & is_found] + file_rows[0]
    missing, extra = ~paired & ~is_found, ~paired & is_found
    record = np.cumsum(np.concatenate([[True], phy_offset[1:] != phy_offset[:-1]])) - 1
    repeats = extra & _is_repeated(record, group, expected_count, found_count)
    extra &= ~repeats
    # Of one record: as many wrong hashes as there are items both missing and too many.
    lacks, has = np.bincount(record, missing), np.bincount(record, extra)
    wrong = np.minimum(lacks, has).astype(np.int64)
    hashes = extra & (_rank_in(record, extra) < wrong[record])
    missing &= _rank_in(record, missing) >= wrong[record]
    extra &= ~hashes
    return Matches(
        (np.concatenate([pairs[0], paired_expected]), np.concatenate([pairs[1], paired_found])),
        np.sort(rows[missing] + log_rows[0]),
        np.sort(rows[extra] + file_rows[0]),
        np.sort(rows[hashes] + file_rows[0]),
        np.sort(rows[repeats] + file_rows[0]),
    )


def _rank_in(record: Int64s, chosen: Mask) -> Int64s:
    """Return how many chosen rows stand before each row in its record."""
    before: Int64s = np.cumsum(chosen) - chosen
    first = np.flatnonzero(np.concatenate([[True], record[1:] != record[:-1]]))
    ranks: Int64s = before - before[first][record]
    return ranks


def _is_repeated(record: Int64s, group: Int64s, expected_count: Int64s, found_count: Int64s) -> Mask:
    """Return rows of records that stand there as a whole several times: the last record indexed is dispatched again at a
    start."""
    first = np.flatnonzero(np.concatenate([[True], record[1:] != record[:-1]]))
    times = np.where(expected_count > 0, found_count // np.maximum(expected_count, 1), 0)
    whole = (expected_count > 0) & (found_count == times * expected_count)
    row_times = np.where(whole, times, -1)[group]
    lowest, highest = np.minimum.reduceat(row_times, first), np.maximum.reduceat(row_times, first)
    repeated: Mask = ((lowest == highest) & (lowest > 1))[record]
    return repeated


# ------------------------------------------------------------------------------------------------------------------------- tags
# Which records with TAGS have their tag item in the IndexFiles (``IndexService.buildIndex``, 5.4.0 on), and which have keys
# alone: a store that was upgraded in place has both.


class ComparedItems(NamedTuple):
    """The items of a stretch of the log that are compared: ``rows`` of the staged ones. ``tag`` says of each whether it is one
    of TAGS, ``stands`` whether such an item is there."""

    rows: Int64s
    tag: Mask
    stands: Mask


class TagStates(NamedTuple):
    """Records with TAGS in the order of the log, a row each, and what is there of them.

    ``stands``: the tag item. ``lacks``: no tag item, nor a wrong one in its place. Of those ``old`` have all their keys there,
    as a broker before 5.4 leaves them; ``gone`` lack a key, too.
    """

    phy_offset: Int64s
    time: Int64s
    stands: Mask
    lacks: Mask
    old: Mask
    gone: Mask


def unmarked(phy_offset: Int64s, time: Int64s, marked: npt.NDArray[np.int32]) -> tuple[Expected, Mask]:
    """Return staged items with marks (``record.state.MARKED_TAGS``) as they are in files, and which of them are tag items."""
    return Expected(phy_offset, time, (marked & INT32_MAX).astype(np.int32)), marked < 0


def wanted_items(expected: Expected, tag: Mask, in_files: FileItems) -> ComparedItems:
    """Return the keys, and those tag items that stand in a file, or that a wrong item has the place of."""
    everything = np.arange(len(tag))
    if not tag.any():
        return ComparedItems(everything, tag, np.zeros(len(tag), np.bool_))
    if _alike(expected, in_files, everything):
        return ComparedItems(everything, tag, tag)
    keys = np.flatnonzero(~tag)
    if _alike(expected, in_files, keys):
        return ComparedItems(keys, tag[keys], np.zeros(len(keys), np.bool_))
    records = np.unique(np.concatenate([expected.phy_offset, in_files.phy_offset]))
    record, found_record = np.searchsorted(records, expected.phy_offset), np.searchsorted(records, in_files.phy_offset)
    code, found_code = _coded(record, expected.key_hash), _coded(found_record, in_files.key_hash)
    stands = tag & np.isin(code, found_code)
    # A record that has more items than keys, one of them unknown, has a wrong one of TAGS.
    unknown = found_record[~np.isin(found_code, code)]
    has_more_items = np.bincount(found_record, minlength=len(records)) > np.bincount(record[~tag], minlength=len(records))
    wrong = np.zeros(len(records), np.bool_)
    wrong[unknown] = True
    rows = np.flatnonzero(~tag | stands | (tag & (wrong & has_more_items)[record]))
    return ComparedItems(rows, tag[rows], stands[rows])


def _alike(expected: Expected, in_files: FileItems, rows: Int64s) -> bool:
    return (
        len(rows) == len(in_files.phy_offset)
        and np.array_equal(expected.phy_offset[rows], in_files.phy_offset)
        and np.array_equal(expected.key_hash[rows], in_files.key_hash)
    )


def _coded(record: Int64s, key_hash: npt.NDArray[np.int32]) -> Int64s:
    coded: Int64s = (record.astype(np.int64) << 31) | key_hash.astype(np.int64)
    return coded


def tag_states(expected: Expected, tag: Mask, compared_items: ComparedItems, missing: Int64s) -> TagStates:
    """Return what is there of each record with TAGS; ``missing`` are rows of ``expected`` without an item in a file."""
    rows = np.flatnonzero(tag)
    phy_offset = expected.phy_offset[rows]
    compared, stands = np.zeros(len(tag), np.bool_), np.zeros(len(tag), np.bool_)
    compared[compared_items.rows] = True
    compared[missing] = False
    stands[compared_items.rows] = compared_items.stands
    lacks = ~compared[rows]
    keyed = np.isin(phy_offset, expected.phy_offset[~tag])
    gone = np.isin(phy_offset, expected.phy_offset[missing[~tag[missing]]])
    return TagStates(phy_offset, expected.time[rows], stands[rows], lacks, lacks & keyed & ~gone, lacks & gone)
