"""Write whole IndexFiles from staged items. Two passes over the items' hashes: slots stand before items in the file."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from storage_format import index_file as ix
from storage_format.digest import new_digest
from storage_format.index_plan import IndexFilePlan, Stretch
from udfs import files, schemas
from udfs.stage import Stage

CHUNK_ITEMS = 1 << 20
_SLOT_BLOCK = 1 << 14


@dataclass(frozen=True)
class WriteIndex:
    """``plan`` is the file of IndexFilePlans; a task writes those whose numbers it is given."""

    stage: Stage
    plan: str
    slots: int
    items: int
    broker_version: str
    seal: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plans = load_plans(files.read_bytes(self.plan))
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield schemas.result([json.dumps(self._write(plans[number]))])

    def _write(self, plan: IndexFilePlan) -> dict[str, object]:
        before = staged_items(plan.before)[-1] if plan.before else None
        slots = np.zeros(self.slots, np.int32)
        prev = np.empty(CHUNK_ITEMS, np.int32)
        used, number, first, last = 0, 1, None, None
        for chunk in chunks(plan.stretches):
            hashes = np.ascontiguousarray(chunk["key_hash"])
            used += ix.link_items(hashes, number, slots, prev)
            number += len(chunk)
            # Copies: the next chunk comes in the same buffer.
            first = chunk[0].copy() if first is None else first
            last = chunk[-1].copy()
        inherited = (int(before["time"]), int(before["place"])) if before is not None else None
        if first is None or last is None:
            header = ix.empty_header(inherited, self.broker_version)
        else:
            count = self.items if self.seal and plan.last else number
            header = ix.IndexHeader(int(first["time"]), int(last["time"]), int(first["place"]), int(last["place"]), used, count)
        maker = plan.maker
        if maker < 0:
            maker = self._maker(plan)
        # Never at a name in the tree: an attempt that comes late must not leave a file there.
        made = files.join(self.stage.made, f"{plan.number}-{uuid.uuid4().hex}")
        size = ix.file_size(self.slots, self.items)
        with files.writing(self.stage.temporary, made) as writer:
            writer.append(header.to_bytes())
            for low in range(0, self.slots, _SLOT_BLOCK):
                block = slots[low : low + _SLOT_BLOCK]
                if block.any():
                    writer.write_at(ix.HEADER_SIZE + low * ix.SLOT_SIZE, block.astype(">i4"))
            hasher = new_digest([header.to_bytes(), slots.astype(">i4").view(np.uint8)])
            at = ix.HEADER_SIZE + self.slots * ix.SLOT_SIZE + ix.ITEM_SIZE
            slots[:] = 0
            number = 1
            for chunk in chunks(plan.stretches):
                packed = self._pack(chunk, number, header.begin_time, inherited, slots, prev)
                writer.write_at(at, packed)
                hasher.update(packed.data)
                number += len(chunk)
                at += len(packed)
            writer.finish(size)
        return {
            "number": plan.number,
            "made": made,
            "maker": maker,
            "items": number - 1,
            "full": plan.full,
            "header": dataclasses.asdict(header),
            "size": size,
            "used": at if number > 1 else ix.HEADER_SIZE,
            "digest": hasher.digest().hex(),
            "bytes": writer.written,
        }

    def _pack(
        self,
        chunk: npt.NDArray[np.void],
        number: int,
        begin_time: int,
        inherited: tuple[int, int] | None,
        slots: npt.NDArray[np.int32],
        prev: npt.NDArray[np.int32],
    ) -> npt.NDArray[np.uint8]:
        """Second pass over a chunk whose first item is ``number``: its items as they stand in the file."""
        ix.link_items(np.ascontiguousarray(chunk["key_hash"]), number, slots, prev)
        time = np.ascontiguousarray(chunk["time"])
        before = max(inherited[0], 0) if inherited else 0
        differences = ix.time_differences(time, number == 1, begin_time, before)
        return ix.pack_items(chunk, prev[: len(chunk)], differences).view(np.uint8)

    def _maker(self, plan: IndexFilePlan) -> int:
        """The record that made a file in the middle of a range: its first item's, or one without items before it."""
        stretch = plan.stretches[0]
        items, makers = plan.maker_table
        found = find_maker(stretch, items, makers) if makers else -1
        return found if found >= 0 else int(staged_items(dataclasses.replace(stretch, count=1))[0]["place"])


def load_plans(data: bytes) -> list[IndexFilePlan]:
    plans = []
    for fields in json.loads(data):
        fields["stretches"] = tuple(Stretch(**stretch) for stretch in fields["stretches"])
        fields["before"] = Stretch(**fields["before"]) if fields["before"] else None
        fields["maker_table"] = tuple(fields["maker_table"])
        plans.append(IndexFilePlan(**fields))
    return plans


def staged_items(stretch: Stretch) -> npt.NDArray[np.void]:
    """The items of one stretch (dtype STAGED)."""
    with files.Reader(stretch.block) as reader:
        size = ix.STAGED.itemsize
        return np.frombuffer(reader.read(stretch.start * size, stretch.count * size), ix.STAGED)


def chunks(stretches: tuple[Stretch, ...]) -> Iterator[npt.NDArray[np.void]]:
    """The items of stretches in order, CHUNK_ITEMS of STAGED at a time into one buffer."""
    buffer = np.empty(CHUNK_ITEMS * ix.STAGED.itemsize, np.uint8)
    filled = 0
    for stretch in stretches:
        with files.Reader(stretch.block) as reader:
            at, left = stretch.start, stretch.count
            while left:
                count = min(left, CHUNK_ITEMS - filled)
                size = ix.STAGED.itemsize
                reader.read_into(at * size, buffer[filled * size : (filled + count) * size])
                at, left, filled = at + count, left - count, filled + count
                if filled == CHUNK_ITEMS:
                    yield buffer.view(ix.STAGED)
                    filled = 0
    if filled:
        yield buffer[: filled * ix.STAGED.itemsize].view(ix.STAGED)


def find_maker(stretch: Stretch, items: int, makers: int) -> int:
    """Binary search for the stretch's first item in its block's table of makers; -1 when it is not there."""
    size = ix.MAKER.itemsize
    with files.Reader(stretch.block) as reader:
        low, high = 0, makers
        while low < high:
            middle = (low + high) // 2
            entry = np.frombuffer(reader.read(items * ix.STAGED.itemsize + middle * size, size), ix.MAKER)[0]
            if int(entry["item"]) == stretch.start:
                return int(entry["place"])
            if int(entry["item"]) < stretch.start:
                low = middle + 1
            else:
                high = middle
    return -1
