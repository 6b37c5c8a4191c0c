"""Write whole IndexFiles from staged items, in two passes over the items, since a file has its slots before its items."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.index.layout import BlockItems, IndexFilePlan
from rocketmq_reindex.storage_format.versions import RULES
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import Position, StagingFolder

CHUNK_ITEMS = 1 << 20
"""Items that are read at once."""
_SLOT_BLOCK = 1 << 14
_PACKED_ITEMS = 1 << 14


@dataclass
class IndexFileResult(handover.TaskResult):
    """One IndexFile that was written."""

    number: int
    """its place in the plan"""
    made: str
    """path of the file, under a name of this attempt alone"""
    maker: int
    """phy_offset of the record that made a broker begin the file"""
    items: int
    full: bool
    header: dict[str, int]
    """the fields of its ``IndexHeader``"""
    size: int
    used: int
    """bytes up to the end of the last item"""
    digest: str
    """of header, slots and items"""
    bytes: int
    """bytes that were written; the rest are holes"""

    @classmethod
    def of_kept(cls, fields: Mapping[str, Any]) -> IndexFileResult:
        """Return the file from what an incremental build keeps of it: these fields, and others."""
        return cls(**{field.name: fields[field.name] for field in dataclasses.fields(cls)})


@dataclass(frozen=True)
class WriteIndex:
    """Writes the planned IndexFiles whose numbers it is given (``IndexFile``, RocketMQ 5.3); leaves ``IndexFileResult``.

    ``plan`` is the plan of ``IndexFilePlan``; ``slots`` and ``items`` are the sizes of a file. ``seal``: the last file is
    marked as full, so that no crash deletes it.
    """

    staging: StagingFolder
    plan: str
    slots: int
    items: int
    broker_version: str
    seal: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        planned = [_index_file_plan(*fields) for fields in handover.read_plan(self.plan)]
        for number in handover.numbers(batches):
            yield handover.batch([self._write(planned[number])])

    def _write(self, plan: IndexFilePlan) -> IndexFileResult:
        before = staged_items(plan.before)[-1] if plan.before else None
        inherited = (int(before["time"]), int(before["phy_offset"])) if before is not None else None
        slots = np.zeros(self.slots, np.int32)
        # 80 MB for a full file: its items then meet the slots, which no cache holds, only once.
        prev = np.empty(plan.items, np.int32)
        used, count = 0, 0
        position = Position(self.staging, f"index-{plan.number}", 2 * plan.items)
        for chunk in chunks(plan.stretches):
            used += ix.link_items(ix.words_of(chunk), count + 1, slots, prev[count:])
            count += len(chunk)
            position.moved(count)
        if count:
            first, last = (staged_items(stretch)[0] for stretch in ends(plan.stretches))
            end = self.items if self.seal and plan.last else count + 1
            header = ix.IndexHeader(
                int(first["time"]), int(last["time"]), int(first["phy_offset"]), int(last["phy_offset"]), used, end
            )
        else:
            header = ix.empty_header(inherited, RULES[self.broker_version])
        # From here on as the file has them.
        slots.byteswap(inplace=True)
        # Never under a name in the tree: a late attempt must not leave a file there.
        made = files.join(self.staging.made, f"{plan.number}-{uuid.uuid4().hex}")
        size = ix.file_size(self.slots, self.items)
        at = first_item = ix.HEADER_SIZE + self.slots * ix.SLOT_SIZE + ix.ITEM_SIZE
        with files.writing(self.staging.temporary, made, soon=True) as writer:
            writer.append(header.to_bytes())
            for low in range(0, self.slots, _SLOT_BLOCK):
                block = slots[low : low + _SLOT_BLOCK]
                if block.any():
                    writer.write_at(ix.HEADER_SIZE + low * ix.SLOT_SIZE, block)
            hasher = new_digest([header.to_bytes(), slots.view(np.uint8)])
            for packed in self._packed(plan, prev, header.begin_time, max(inherited[0], 0) if inherited else 0):
                writer.write_at(at, packed)
                hasher.update(packed.data)
                at += len(packed)
                position.moved(count + (at - first_item) // ix.ITEM_SIZE)
            writer.finish(self.staging.stored(size))
        return IndexFileResult(
            number=plan.number,
            made=made,
            maker=maker_of(plan),
            items=count,
            full=plan.full,
            header=dataclasses.asdict(header),
            size=size,
            used=at if count else ix.HEADER_SIZE,
            digest=hasher.digest().hex(),
            bytes=writer.written,
        )

    @staticmethod
    def _packed(
        plan: IndexFilePlan, prev: npt.NDArray[np.int32], begin_time: int, inherited_time: int
    ) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield the items as the file has them (uint8), in blocks that stay in the processor's cache until they are written."""
        out = np.empty((_PACKED_ITEMS, ix.WORDS), np.uint32)
        at = 0
        for chunk in chunks(plan.stretches):
            words = ix.words_of(chunk)
            for low in range(0, len(words), _PACKED_ITEMS):
                part = words[low : low + _PACKED_ITEMS]
                ix.pack_items(part, prev[at : at + len(part)], begin_time, inherited_time, at == 0, out)
                at += len(part)
                yield out[: len(part)].reshape(-1).view(np.uint8)


def maker_of(plan: IndexFilePlan) -> int:
    """Return the phy_offset of the record that made a broker begin a file.

    In the middle of a range that is the record of the file's first item, or one without items before it.
    """
    if plan.maker >= 0:
        return plan.maker
    stretch = plan.stretches[0]
    items, makers = plan.maker_table
    maker = _find_maker(stretch, items, makers) if makers else -1
    return maker if maker >= 0 else int(staged_items(dataclasses.replace(stretch, count=1))[0]["phy_offset"])


def _index_file_plan(*fields: Any) -> IndexFilePlan:
    number, stretches, before, maker, maker_table, full, last = fields
    return IndexFilePlan(
        number,
        tuple(BlockItems(*stretch) for stretch in stretches),
        BlockItems(*before) if before else None,
        maker,
        tuple(maker_table),
        full,
        last,
    )


def staged_items(stretch: BlockItems) -> npt.NDArray[np.void]:
    """Return the items of one stretch (dtype ``STAGED``)."""
    with files.Reader(stretch.block) as reader:
        size = ix.STAGED.itemsize
        return np.frombuffer(reader.read(stretch.start * size, stretch.count * size), ix.STAGED)


def ends(stretches: tuple[BlockItems, ...]) -> tuple[BlockItems, BlockItems]:
    """Return the first and the last item of stretches, each as a stretch of one item."""
    first, last = stretches[0], stretches[-1]
    return (
        dataclasses.replace(first, count=1),
        dataclasses.replace(last, start=last.start + last.count - 1, count=1),
    )


def chunks(stretches: tuple[BlockItems, ...]) -> Iterator[npt.NDArray[np.void]]:
    """Yield the items of stretches (dtype ``STAGED``), in order, at most CHUNK_ITEMS at a time.

    They are mapped, or read into one buffer: a chunk is valid until the next one.
    """
    size = ix.STAGED.itemsize
    buffer = np.empty(0, np.uint8)
    for stretch in stretches:
        with files.Reader(stretch.block) as reader:
            for at in range(stretch.start, stretch.start + stretch.count, CHUNK_ITEMS):
                count = min(stretch.start + stretch.count - at, CHUNK_ITEMS)
                data = reader.view(at * size, count * size)
                if data is None:
                    buffer = buffer if len(buffer) >= count * size else np.empty(count * size, np.uint8)
                    data = buffer[: count * size]
                    reader.read_into(at * size, data)
                yield data.view(ix.STAGED)


def _find_maker(stretch: BlockItems, items: int, makers: int) -> int:
    """Search the table of makers (dtype ``MAKER``) behind the ``items`` items of a block for the stretch's first item.

    Return the phy_offset of its maker, or -1 when the table does not have the item.
    """
    size = ix.MAKER.itemsize
    with files.Reader(stretch.block) as reader:
        low, high = 0, makers
        while low < high:
            middle = (low + high) // 2
            entry = np.frombuffer(reader.read(items * ix.STAGED.itemsize + middle * size, size), ix.MAKER)[0]
            if int(entry["item"]) == stretch.start:
                return int(entry["phy_offset"])
            if int(entry["item"]) < stretch.start:
                low = middle + 1
            else:
                high = middle
    return -1
