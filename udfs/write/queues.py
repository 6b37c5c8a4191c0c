"""Write the files of ConsumeQueues, plain and batch ones."""

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.queue import (
    cells,
    consume_queue,
    extended,
    placement as queue_placement,
    units as queue_units,
)
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX, path_component
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.placements import Placements, placement_table
from rocketmq_reindex.udfs.scan import extended as scanned
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------ queue files
# What the writers of queue files share: a file's path, its line in the manifest, and the result of a task.

Line = tuple[str, str]
"""(path, line of a part: the file's entry in the manifest as JSON, a tab, its units)"""


@dataclass
class FilesResult(handover.TaskResult):
    """Files that a task wrote, or took over from an earlier build."""

    part: str
    """path of a part of the manifest: a line for each file, by path"""
    files: int = 0
    units: int = 0
    bytes: int = 0
    """bytes in use"""

    def add(self, units: int, used: int) -> None:
        """Count one more file, with so many units and bytes in use."""
        self.files += 1
        self.units += units
        self.bytes += used


def queue_path(folder: str, name: str, queue_id: int, start: int) -> str:
    """Return the path below the output folder of a queue's file: ``consumequeue/TOPIC/QUEUE/START``.

    ``start`` is the logical offset of its first byte. Raises ValueError for a topic that cannot be the name of a folder.
    """
    topic = path_component(name)
    if topic is None:
        raise ValueError("a name that is no path component reached the writer")
    return f"{folder}/{topic}/{queue_id}/{start:020d}"


def entry_line(path: str, size: int, used: int, digest: str, units: int) -> Line:
    """Return the line of one file: ``size`` bytes, ``used`` of them in use, which have this ``digest``, and ``units`` units.

    The manifest takes the text before the tab; an incremental build counts the units of files that it keeps.
    """
    return path, json.dumps({"path": path, "size": size, "used": used, "digest": digest}) + f"\t{units}"


def write_part(staging: StagingFolder, folder: str, lines: Iterable[Line]) -> str:
    """Write lines as a part of the manifest, by path (parts are merged in that order). Return its path."""
    part = files.join(staging.parts, f"{folder}-{uuid.uuid4().hex}")
    files.write_bytes(staging.temporary, part, [f"{line}\n".encode() for _, line in sorted(lines)])
    return part


# ----------------------------------------------------------------------------------------------------------------------- queues
# Write whole ConsumeQueue files from the cells of a bucket.

LINES_MAX = 20_000
"""Lines in one part of the manifest: a task may write very many small files."""
FileKey = tuple[bytes, int, int]
"""(topic in UTF-8, queue id, number of the file in its queue)"""
Rows = npt.NDArray[np.int64]


def write_empty_files(staging: StagingFolder, file_size: int, positions: Iterable[tuple[str, int, int]]) -> FilesResult:
    """Write files that hold no unit, each of ``file_size`` bytes. Return their result.

    ``positions`` are (topic, queue id, queue offset of the file's first slot). RocketMQ 4.9 leaves such files at a queue's end.
    """
    lines = []
    for name, queue_id, position in positions:
        relative = queue_path(layouts.QUEUES, name, queue_id, position * queue_units.UNIT_SIZE)
        with files.writing(staging.temporary, files.join(staging.tree, relative)) as writer:
            writer.finish(staging.stored(file_size))
        lines.append(entry_line(relative, file_size, 0, new_digest([]).digest().hex(), 0))
    return FilesResult(write_part(staging, layouts.QUEUES, lines), len(lines))


def write_lone_units(staging: StagingFolder, file_size: int, units: Iterable[queue_units.QueueUnit]) -> FilesResult:
    """Write files that hold one unit each, behind pre-blank, each of ``file_size`` bytes. Return their result."""
    writer, lines, folders, counts = WriteQueues(staging, file_size), list[Line](), set[str](), FilesResult("")
    for unit in units:
        key = unit.topic.encode(), unit.queue_id, unit.position // (file_size // queue_units.UNIT_SIZE)
        lines.append(writer._write(key, [np.array(unit[2:], np.int64).reshape(-1, 1)], counts, folders))
    return dataclasses.replace(counts, part=write_part(staging, layouts.QUEUES, lines))


@dataclass(frozen=True)
class WriteQueues:
    """Reduces rows of UNITS to ConsumeQueue files of ``file_size`` bytes (``ConsumeQueue``, RocketMQ 5.3).

    Rows come by bucket; the files of a bucket are written once its last cell has come. Leaves results (``FilesResult``).
    """

    staging: StagingFolder
    file_size: int
    light: bool = True  # whether light queues have files

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lines, folders, counts = list[Line](), set[str](), FilesResult("")
        for cells_of_bucket in handover.by_bucket(batches):
            rows_by_file: dict[FileKey, list[Rows]] = {}
            for cell in cells_of_bucket:
                for key, rows in self._pieces(cell.data):
                    rows_by_file.setdefault(key, []).append(rows)
            for key, parts in rows_by_file.items():
                lines.append(self._write(key, parts, counts, folders))
            if len(lines) >= LINES_MAX:
                yield self._result(lines, counts)
                lines, folders, counts = [], set(), FilesResult("")
        if lines:
            yield self._result(lines, counts)

    def _result(self, lines: list[Line], counts: FilesResult) -> pa.RecordBatch:
        return handover.batch([dataclasses.replace(counts, part=write_part(self.staging, layouts.QUEUES, lines))])

    def _write(self, key: FileKey, parts: list[Rows], counts: FilesResult, folders: set[str]) -> Line:
        raw, queue_id, file_number = key
        start, used, image = consume_queue.file_units(self.file_size // queue_units.UNIT_SIZE, file_number, parts)
        relative = queue_path(layouts.QUEUES, raw.decode(), queue_id, start)
        target = files.join(self.staging.tree, relative)
        folder = files.parent(target)
        if folder not in folders:
            # A late attempt finds no tree, and must not make one.
            files.make_folder(folder, below=self.staging.tree)
            folders.add(folder)
        with files.writing(self.staging.temporary, target, soon=True) as writer:
            writer.append(image.view(np.uint8))
            writer.finish(self.staging.stored(self.file_size))
        units = sum(rows.shape[1] for rows in parts)
        counts.add(units, used)
        return entry_line(relative, self.file_size, used, new_digest([image.view(np.uint8)]).digest().hex(), units)

    def _pieces(self, cell: bytes) -> Iterator[tuple[FileKey, Rows]]:
        units_per_file = self.file_size // queue_units.UNIT_SIZE
        for name, queue_id, rows in cells.unpack(cell, cells.UNIT_COLUMNS).parts():
            if self.light or not name.startswith(LMQ_PREFIX.encode()):
                yield (name, queue_id, int(rows[0, 0]) // units_per_file), rows


# ---------------------------------------------------------------------------------------------------------------------- filling
# One file after another, where the units of a queue come in the order of the log.


class _Filling:
    """A file that is filled from its begin on."""

    def __init__(self, staging: StagingFolder, relative: str, start: int) -> None:
        self._staging, self._relative, self.start = staging, relative, start
        target = files.join(staging.tree, relative)
        files.make_folder(files.parent(target), below=staging.tree)
        self.writer, self.digest = files.Writer(staging.temporary, target, soon=True), new_digest()
        self.used = self.units = 0

    def append(self, data: npt.NDArray[np.uint8], units: int) -> None:
        self.writer.append(data)
        self.digest.update(data.data)
        self.used, self.units = self.used + len(data), self.units + units

    def finish(self, size: int) -> Line:
        """Finish the file, of so many bytes. Return its line of the manifest."""
        self.writer.finish(self._staging.stored(size))
        return entry_line(self._relative, size, self.used, self.digest.digest().hex(), self.units)


# --------------------------------------------------------------------------------------------------------------------- extended
# Write ConsumeQueue files whose tagsCodes are addresses, and the files of consumequeue_ext that these lead to. The units of a
# queue come in the order of the log; they fill the files of both kinds in turn.


@dataclass
class _ExtendedQueue:
    """One queue while its files are written."""

    name: str
    queue_id: int
    placement: queue_placement.PlacementTable | None
    places: extended.UnitPlaces
    count: int = 0
    """units that consumequeue_ext has of it so far"""
    file: _Filling | None = None
    ext: _Filling | None = None


@dataclass(frozen=True)
class WriteExtended:
    """Reduces rows of EXTENDED to ConsumeQueue files of ``file_size`` bytes and files of consumequeue_ext of ``ext_size``.

    Rows come by bucket and ``sort_key``. ``placements`` is the plan of the queues out of order (``PlanWriter``), or "". As with
    a broker (``ConsumeQueue.putMessagePositionInfoWrapper``, 5.3) each record of a queue's topic has a unit in
    consumequeue_ext, also one that gets none in the ConsumeQueue. Leaves results (``FilesResult``).
    """

    staging: StagingFolder
    file_size: int
    ext_size: int
    placements: str
    filters: extended.ConsumerFilters
    light: bool = True  # whether light queues have files

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd, lines, counts = Placements(self.placements, placement_table), list[Line](), FilesResult("")
        queues: dict[tuple[bytes, int], _ExtendedQueue] = {}
        try:
            for cells_of_bucket in handover.by_bucket(batches):
                for cell in cells_of_bucket:
                    pieces = cells.unpack(cell.data, scanned.COLUMNS + self.filters.words)
                    key = pieces.names[0], int(pieces.queue_ids[0])
                    if not self.light and key[0].startswith(LMQ_PREFIX.encode()):
                        continue
                    if key not in queues:
                        size = queue_units.EXT_SIZE_MIN + self.filters.bit_map_size(key[0].decode())
                        places = extended.UnitPlaces(self.ext_size, size)
                        queues[key] = _ExtendedQueue(key[0].decode(), key[1], odd.get(key), places)
                    lines += self._append(queues[key], pieces.columns, counts)
                for queue in queues.values():
                    lines += self._close(queue, counts)
                queues.clear()
                if len(lines) >= LINES_MAX:
                    yield self._result(lines, counts)
                    lines, counts = [], FilesResult("")
        except BaseException:
            for filling in (filling for queue in queues.values() for filling in (queue.file, queue.ext)):
                if filling is not None:
                    filling.writer.abandon()
            raise
        if lines:
            yield self._result(lines, counts)

    def _result(self, lines: list[Line], counts: FilesResult) -> pa.RecordBatch:
        return handover.batch([dataclasses.replace(counts, part=write_part(self.staging, layouts.EXT_QUEUES, lines))])

    def _append(self, queue: _ExtendedQueue, rows: Rows, counts: FilesResult) -> Iterator[Line]:
        has_ext = rows[scanned.IS_LIGHT] == 0
        numbers = queue.count + np.arange(int(has_ext.sum()))
        units = rows[: cells.UNIT_COLUMNS].copy()
        units[3, has_ext] = extended.address_of(queue.places.offsets(numbers))
        yield from self._extend(queue, numbers, rows[:, has_ext])
        queue.count += len(numbers)
        if queue.placement is not None:
            units = queue.placement.apply(units)
            units = units[:, np.argsort(units[0], kind="stable")]
        yield from self._put(queue, units, counts)

    def _extend(self, queue: _ExtendedQueue, numbers: Rows, rows: Rows) -> Iterator[Line]:
        """Put units into the queue's files of consumequeue_ext."""
        in_file = queue.places.in_file
        low = 0
        while low < len(numbers):
            start = int(numbers[low]) // in_file * self.ext_size
            if queue.ext is not None and queue.ext.start != start:
                queue.ext.append(np.frombuffer(extended.END_MARK, np.uint8), 0)
                yield queue.ext.finish(self.ext_size)
                queue.ext = None
            if queue.ext is None:
                relative = queue_path(layouts.EXT_QUEUES, queue.name, queue.queue_id, start)
                queue.ext = _Filling(self.staging, relative, start)
            high = min(len(numbers), low + in_file - int(numbers[low]) % in_file)
            part = rows[:, low:high]
            bit_maps = self.filters.bit_maps(queue.name, part[scanned.COLUMNS :])
            queue.ext.append(extended.ext_image(part[3], part[scanned.STORE_TIME], bit_maps), high - low)
            low = high

    def _put(self, queue: _ExtendedQueue, units: Rows, counts: FilesResult) -> Iterator[Line]:
        """Put units, at rising positions, into the queue's ConsumeQueue files."""
        in_file = self.file_size // queue_units.UNIT_SIZE
        numbers = units[0] // in_file
        for number in np.unique(numbers).tolist():
            part = units[:, numbers == number]
            if queue.file is not None and queue.file.start != number * self.file_size:
                yield self._finish(queue.file, counts)
                queue.file = None
            first = queue.file is None
            if queue.file is None:
                start = number * self.file_size
                queue.file = _Filling(self.staging, queue_path(layouts.QUEUES, queue.name, queue.queue_id, start), start)
            _, _, image = consume_queue.file_units(in_file, number, [part])
            if not first:
                image = image[queue.file.used // queue_units.UNIT_SIZE :]
                if len(image) != part.shape[1]:
                    raise consume_queue.UnitGapError(f"{queue.name}/{queue.queue_id}: units are missing in file {number}")
            queue.file.append(image.view(np.uint8), part.shape[1])

    def _finish(self, filling: _Filling, counts: FilesResult) -> Line:
        counts.add(filling.units, filling.used)
        return filling.finish(self.file_size)

    def _close(self, queue: _ExtendedQueue, counts: FilesResult) -> Iterator[Line]:
        if queue.file is not None:
            yield self._finish(queue.file, counts)
        if queue.ext is not None:
            yield queue.ext.finish(self.ext_size)
        queue.file = queue.ext = None


# ---------------------------------------------------------------------------------------------------------------------- batches
# Write the files of batch ConsumeQueues. The units of a queue come in the order of the log and fill its files in turn.


@dataclass
class _WrittenQueue:
    """One queue while its files are written."""

    name: str
    queue_id: int
    placement: queue_placement.BatchPlacement | None
    file_number: int = 0
    file: _Filling | None = None


@dataclass(frozen=True)
class WriteBatches:
    """Reduces rows of BATCHES to files of ``file_size`` bytes (``BatchConsumeQueue``, RocketMQ 5.3).

    Rows come by bucket and ``sort_key``. ``placements`` is the plan of the queues out of order (``PlanWriter``), or "".
    ``empty``: whether units without a message are written, as the broker does. Leaves a result (``FilesResult``).
    """

    staging: StagingFolder
    file_size: int
    placements: str
    empty: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        odd = Placements(self.placements, lambda _, kept, fills: queue_placement.BatchPlacement(kept, fills))
        lines, counts = list[Line](), FilesResult("")
        queues: dict[tuple[bytes, int], _WrittenQueue] = {}
        try:
            for cells_of_bucket in handover.by_bucket(batches):
                for cell in cells_of_bucket:
                    pieces = cells.unpack(cell.data, cells.BATCH_COLUMNS)
                    name, queue_id = pieces.names[0], int(pieces.queue_ids[0])
                    queue = queues.get((name, queue_id))
                    if queue is None:
                        placement = odd.get((name, queue_id))
                        queue = queues[name, queue_id] = _WrittenQueue(name.decode(), queue_id, placement)
                    lines += self._append(queue, pieces.columns, counts)
                lines += self._finish(queues, counts)
        except BaseException:
            for queue in queues.values():
                if queue.file is not None:
                    queue.file.writer.abandon()
            raise
        if lines:
            yield handover.batch([dataclasses.replace(counts, part=write_part(self.staging, layouts.BATCH_QUEUES, lines))])

    def _append(self, queue: _WrittenQueue, units: npt.NDArray[np.int64], counts: FilesResult) -> Iterator[Line]:
        if not self.empty:
            units = units[:, units[5] > 0]
        image = consume_queue.batch_units(queue.placement.apply(units) if queue.placement else units)
        units_per_file = self.file_size // queue_units.BATCH_UNIT_SIZE
        while len(image):
            if queue.file is None:
                start = queue.file_number * self.file_size
                relative = queue_path(layouts.BATCH_QUEUES, queue.name, queue.queue_id, start)
                queue.file = _Filling(self.staging, relative, start)
            part, image = np.split(image, [units_per_file - queue.file.units])
            queue.file.append(part.view(np.uint8), len(part))
            if queue.file.units == units_per_file:
                yield self._close(queue, queue.file, counts)

    def _close(self, queue: _WrittenQueue, file: _Filling, counts: FilesResult) -> Line:
        """Finish the open file: the next units go to the next one. Return its line of the manifest."""
        line = file.finish(self.file_size)
        counts.add(file.units, file.used)
        queue.file = None
        queue.file_number += 1
        return line

    def _finish(self, queues: dict[tuple[bytes, int], _WrittenQueue], counts: FilesResult) -> list[Line]:
        lines = [self._close(queue, queue.file, counts) for queue in queues.values() if queue.file is not None]
        queues.clear()
        return lines
