"""Which records with TAGS have their tag item in the IndexFiles (``IndexService.buildIndex``, 5.4.0 on), and which have keys
alone: a store that was upgraded in place has both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.checks.items import Expected, Found
from rocketmq_reindex.storage_format.integers import INT32_MAX

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Wanted(NamedTuple):
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
    """Staged items with marks (``walk.index_items.MARKED_TAGS``) as they are in files, and which of them are tag items."""
    return Expected(phy_offset, time, (marked & INT32_MAX).astype(np.int32)), marked < 0


def wanted_items(expected: Expected, tag: Mask, found: Found) -> Wanted:
    """The keys, and those tag items that stand in a file, or that a wrong item has the place of."""
    everything = np.arange(len(tag))
    if not tag.any():
        return Wanted(everything, tag, np.zeros(len(tag), np.bool_))
    if _alike(expected, found, everything):
        return Wanted(everything, tag, tag)
    keys = np.flatnonzero(~tag)
    if _alike(expected, found, keys):
        return Wanted(keys, tag[keys], np.zeros(len(keys), np.bool_))
    records = np.unique(np.concatenate([expected.phy_offset, found.phy_offset]))
    mine, theirs = np.searchsorted(records, expected.phy_offset), np.searchsorted(records, found.phy_offset)
    code, found_code = _coded(mine, expected.key_hash), _coded(theirs, found.key_hash)
    stands = tag & np.isin(code, found_code)
    # A record that has more items than keys, one of them unknown, has a wrong one of TAGS.
    unknown = theirs[~np.isin(found_code, code)]
    more = np.bincount(theirs, minlength=len(records)) > np.bincount(mine[~tag], minlength=len(records))
    wrong = np.zeros(len(records), np.bool_)
    wrong[unknown] = True
    rows = np.flatnonzero(~tag | stands | (tag & (wrong & more)[mine]))
    return Wanted(rows, tag[rows], stands[rows])


def _alike(expected: Expected, found: Found, rows: Int64s) -> bool:
    return (
        len(rows) == len(found.phy_offset)
        and np.array_equal(expected.phy_offset[rows], found.phy_offset)
        and np.array_equal(expected.key_hash[rows], found.key_hash)
    )


def _coded(record: Int64s, key_hash: npt.NDArray[np.int32]) -> Int64s:
    coded: Int64s = (record.astype(np.int64) << 31) | key_hash.astype(np.int64)
    return coded


def tag_states(expected: Expected, tag: Mask, wanted: Wanted, missing: Int64s) -> TagStates:
    """What is there of each record with TAGS; ``missing`` are rows of ``expected`` without an item in a file."""
    rows = np.flatnonzero(tag)
    phy_offset = expected.phy_offset[rows]
    compared, stands = np.zeros(len(tag), np.bool_), np.zeros(len(tag), np.bool_)
    compared[wanted.rows] = True
    compared[missing] = False
    stands[wanted.rows] = wanted.stands
    lacks = ~compared[rows]
    keyed = np.isin(phy_offset, expected.phy_offset[~tag])
    gone = np.isin(phy_offset, expected.phy_offset[missing[~tag[missing]]])
    return TagStates(phy_offset, expected.time[rows], stands[rows], lacks, lacks & keyed & ~gone, lacks & gone)
