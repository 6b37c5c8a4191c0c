"""Check IndexFiles in themselves: header, slots, links, sizes; and note where in the log their items point, chunk by chunk."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex.storage_format.checks.differences import Tally
from rocketmq_reindex.storage_format.checks.index import LINK_FAULTS, SLOT_FAULTS, IndexCheck, check_index, slot_lengths
from rocketmq_reindex.storage_format.findings import Finding, UnreadableError
from rocketmq_reindex.storage_format.index.header import file_size
from rocketmq_reindex.storage_format.index.reader import IndexView, open_index
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.stage import Stage

CHUNK_ITEMS: Final = 1 << 16
"""Items of which the lowest and the highest place are noted together."""
CHUNK: Final = np.dtype([("low", "<i8"), ("high", "<i8")])
_FIELDS: Final = {
    "index-count": "indexCount",
    "index-slot-count": "hashSlotCount",
    "index-begin-offset": "beginPhyOffset",
    "index-end-offset": "endPhyOffset",
    "index-end-time": "endTimestamp",
}
"""The header's field that a code speaks of."""
_KINDS: Final = {
    "index-size": "index-file-size",
    "index-item-zero": "index-stray",
    "index-item-stray": "index-stray",
    "index-item-hash": "index-item-hash",
    "index-item-place": "index-order",
    "index-item-time": "index-item-time",
    "index-link-circular": "index-chain-circular",
    **dict.fromkeys(_FIELDS, "index-header"),
}
"""All others are broken chains."""
_BESIDE_OTHERS: Final = ("index-empty-offset", "index-empty-time")
"""What ``storage_format.checks.index_neighbours`` tells better, since it knows the file before."""


@dataclass(frozen=True)
class IndexPlace:
    """One file of index/, by its number in the order of names; the sizes are those of the settings.

    ``trimmed``: zeros at its end may not be stored.
    """

    number: int
    name: str
    path: str
    slots: int
    items: int
    trimmed: bool = False


@dataclass(frozen=True)
class CheckIndex:
    """``plan`` is the file of IndexPlaces; a word for each, with what the comparison of items has to know of it."""

    stage: Stage
    plan: str
    log_start: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = [IndexPlace(**fields) for fields in json.loads(files.read_bytes(self.plan))]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield schemas.result([json.dumps(self._check(places[number]))])

    def _check(self, place: IndexPlace) -> dict[str, Any]:
        tally, told = Tally(), f"index/{escape(place.name)}"
        word: dict[str, Any] = {"number": place.number, "name": place.name, "used": 0, "readable": False}
        with files.Reader(place.path) as reader:
            size = reader.size()
            data = reader.view(0, size)
            wanted = file_size(place.slots, place.items)
            if place.trimmed and size < wanted:
                data = np.zeros(wanted, np.uint8)
                reader.read_into(0, data[:size])
            elif data is None:
                data = np.frombuffer(reader.read(0, size), np.uint8)
        try:
            view = open_index(data, place.slots, place.items)
        except UnreadableError:
            tally.add("index-file-size", 1, told, size, f"{size} bytes instead of {wanted}")
            return word | {"tally": tally.to_json(), "size": size}
        found = check_index(view)
        table, last = self._chunks(view, found.items)
        self._tell(view, found, tally, told, last)
        lengths = slot_lengths(view, found.items)
        longest = int(lengths.max(initial=0))
        powers = np.bincount(np.ceil(np.log2(lengths[lengths > 0])).astype(np.int64)) if longest else np.zeros(0, np.int64)
        chunks = files.join(self.stage.plans, f"chunks-{uuid.uuid4().hex}")
        files.write_bytes(self.stage.temporary, chunks, [table])
        return word | {
            "readable": True,
            "size": size,
            "used": found.items,
            "header": dataclasses.asdict(view.header),
            "sealed": view.sealed,
            "first": int(view.read(1, 1).phy_offset[0]) if found.items else -1,
            "last": last,
            "low": int(table["low"].min()) if len(table) else -1,
            "high": int(table["high"].max()) if len(table) else -1,
            "chunks": chunks,
            "slots_used": found.slots_used,
            "longest_chain": longest,
            "chains": powers.tolist(),
            "tally": tally.to_json(),
        }

    @staticmethod
    def _chunks(view: IndexView, used: int) -> tuple[npt.NDArray[np.void], int]:
        """The lowest and highest place of each chunk of items, and the last item's place."""
        count = -(-used // CHUNK_ITEMS)
        table, last = np.empty(count, CHUNK), -1
        for k in range(count):
            place = view.read(1 + k * CHUNK_ITEMS, min(CHUNK_ITEMS, used - k * CHUNK_ITEMS)).phy_offset
            table[k] = (place.min(), place.max())
            last = int(place[-1])
        return table, last

    def _tell(self, view: IndexView, found: IndexCheck, tally: Tally, told: str, last: int) -> None:
        for finding in found.findings:
            if finding.code == "index-end-time" and last >= self.log_start:
                continue  # the records themselves say it to the millisecond
            if finding.code not in _BESIDE_OTHERS:
                kind = _KINDS.get(finding.code, "index-chain-broken")
                tally.add(kind, finding.count, told, finding.at, _text(view, finding))


def _text(view: IndexView, finding: Finding) -> str:
    """What stands at a finding's first place, and what should."""
    at, code, wanted = finding.at, finding.code, finding.expected
    instead = "" if wanted is None else f" instead of {wanted}"
    if code == "index-size":
        return f"{at} bytes instead of {file_size(view.slots, view.items)}"
    if code == "index-end-time":
        seconds = int(view.read(view.last_written(), 1).time_diff[0])
        return f"endTimestamp {at}: the last item is {seconds} s from beginTimestamp {view.header.begin_time}"
    if code in _FIELDS:
        return f"{_FIELDS[code]} {at}{instead}"
    if code in SLOT_FAULTS:
        return f"slot {at}: begins with item {int(view.heads(at, 1)[0])}{instead}"
    item = view.read(at, 1)
    if code in LINK_FAULTS:
        return f"item {at}: links to item {int(item.prev[0])}{instead}"
    if code == "index-item-hash":
        return f"item {at}: negative hash {int(item.key_hash[0])}"
    if code == "index-item-time":
        return f"item {at}: negative timeDiff {int(item.time_diff[0])}"
    if code == "index-item-place":
        before = int(view.read(at - 1, 1).phy_offset[0])
        return f"item {at}: phyOffset {int(item.phy_offset[0])} where the item before has {before}"
    where = "byte" if code == "index-item-zero" else "item"
    return f"{where} {at}: {finding.text.partition(' (at')[0]}"
