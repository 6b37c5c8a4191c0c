"""Decide by the ranges that came and went which files of the build before stay, and which are written again."""

import dataclasses
import heapq
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import compress, islice
from typing import Any, Final, NamedTuple

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import decisions, finishing, options as building_options, scanning
from rocketmq_reindex.jobs.building.last_build import LastBuild, StandingFiles
from rocketmq_reindex.jobs.engines.engine import DERIVED_BYTES, task_count
from rocketmq_reindex.jobs.publishing.output import joined
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index.layout import BlockItems, EarlierFiles, IndexFilePlan, plan_index_files
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs.incremental import stored_rows
from rocketmq_reindex.udfs.incremental.scan_store import ScanEntry, ScanStore, begins_alike
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.index import ends, maker_of, staged_items

# ---------------------------------------------------------------------------------------------------------------- index history
# IndexFiles of a log whose head expires: they start and end where a broker that never stopped would have them.
#
# ``IndexService`` (5.3) fills files by count, from the first record that it ever indexed. A full build of the rest of the log
# starts to count at the first record that is left, and all of its files differ. So an incremental build keeps expired ranges as
# long as a file holds items of them. A file goes when it ends below the log's first offset, but the last file never does
# (``IndexService.deleteExpiredFile``).


@dataclass
class IndexHistory:
    """The expired ranges that still count, and the plans of all files that are left."""

    expired: list[ScanEntry]
    start: EarlierFiles
    """where the first file starts"""
    plans: list[IndexFilePlan]
    starts_over: bool = False
    """whether the files do not continue those of the build before"""


class _Known(NamedTuple):
    """What is known of the ranges before the log's first offset."""

    expired: list[ScanEntry]
    start: EarlierFiles
    """where the first file starts"""
    useless: bool = False
    """whether there was more, which does not fit this log"""


def plan_with_history(
    store: ScanStore, last: LastBuild | None, log: Commitlog, accepted: list[RangeSummary], index_items: int
) -> IndexHistory:
    """Return a plan of the files of ``accepted``, which continue those of the build before where that is possible."""
    expired, start, starts_over = _expired_ranges(last, log)
    summaries = [store.summary(entry, -1) for entry in expired]
    plans = plan_index_files([*summaries, *accepted], index_items, start)
    gone = _expired_files(plans, log.segments[0].start) if expired else 0
    if gone:
        skip = start.skip + sum(plan.items for plan in plans[:gone])
        start = EarlierFiles(skip, maker_of(plans[gone]), start.window)
        plans = [dataclasses.replace(plan, number=plan.number - gone) for plan in plans[gone:]]
    while expired and summaries[0].items <= start.skip - 1:
        # The last expired item stays: a file's header inherits from the item before it.
        windows = [window for _, window in summaries[0].windows] + ([] if start.window is None else [start.window])
        start = EarlierFiles(start.skip - summaries[0].items, start.maker, max(windows, default=None))
        expired, summaries = expired[1:], summaries[1:]
    return IndexHistory(expired, start, plans, starts_over)


def fingerprints(
    store: ScanStore, history: IndexHistory, entries: Iterable[ScanEntry], settings: building_options.BuildSettings
) -> list[str]:
    """Return a digest for each file, which stands for its bytes: the items of known ranges in it, and how it is written."""
    names = {store.summary(entry, -1).block: entry.identity for entry in (*history.expired, *entries)}
    how = [settings.hash_slots, settings.index_items, settings.broker_version]

    def items_of(stretch: BlockItems | None) -> list[Any] | None:
        return [names[stretch.block], stretch.start, stretch.count] if stretch else None

    digests = []
    for plan in history.plans:
        seal = settings.checkpoint == "safe" and plan.last
        text = json.dumps([how, seal, [items_of(s) for s in plan.stretches], items_of(plan.before), plan.maker, plan.full])
        digests.append(new_digest([text.encode()]).digest().hex())
    return digests


def _expired_ranges(last: LastBuild | None, log: Commitlog) -> _Known:
    if last is None or not last.segments:
        return _Known([], EarlierFiles())
    known = bool(last.expired)
    starts = [int(name) for name, _ in last.segments]
    if not log.segments or log.segments[0].start not in starts:
        # All of the log has expired, or there is more in front of it than there was.
        return _Known([], EarlierFiles(), known or bool(log.segments))
    low = log.segments[0].start
    if (known or low > starts[0]) and not _continues(last, log):
        return _Known([], EarlierFiles(), True)
    return _Known([*last.expired, *(entry for entry in last.built_from if entry.start < low)], last.start)


def _continues(last: LastBuild, log: Commitlog) -> bool:
    """Return whether a range of the build before begins in this log as it did. Otherwise it is another log, of the same
    offsets."""
    paths = {segment.name: segment.path for segment in log.segments}
    known = [entry for entry in last.built_from if entry.segment in paths and entry.head[0]]
    return not known or any(begins_alike(entry, paths[entry.segment]) for entry in known)


def _expired_files(plans: list[IndexFilePlan], low: int) -> int:
    """Return how many of the first files end below the offset ``low``; the last one is never counted."""
    for count, plan in enumerate(plans[:-1]):
        if int(staged_items(ends(plan.stretches)[1])[0]["phy_offset"]) >= low:
            return count
    return max(0, len(plans) - 1)


# --------------------------------------------------------------------------------------------------------------------- carrying
# Which files of the build before stay as they are, and which are written again: the ranges that came and went decide.

CARRIED_AT_ONCE: Final = 5_000
"""files of one task"""
_CARRIED_BYTES: Final = 1 << 30
"""of one task, which may have to copy them"""
_CHUNK: Final = 10_000
Damaged = Callable[[list[dict[str, Any]]], list[bool]]
"""Returns for entries of the manifest whether their files are no longer what they were."""


class Line(NamedTuple):
    """One ConsumeQueue file in the list of the build before."""

    entry: dict[str, Any]
    """of the manifest, with the file's time"""
    text: bytes
    """the line of a part that it was read from"""


class QueueFilePath(NamedTuple):
    """What the path of a ConsumeQueue file says."""

    topic: bytes
    queue: int
    start: int
    """logical offset of the file's first byte in its queue"""
    batch: bool
    """whether it is a batch queue's"""


@dataclass(frozen=True)
class QueuePlan:
    """Which ConsumeQueue files are written. By default all."""

    order: decisions.Order
    some: bool = True
    """whether any file is written"""
    wanted: str = ""
    """file with the keys of those (``write_wanted``); "" for all"""
    carried: list[str] = field(default_factory=list)
    """parts of the manifest with the files that stay"""


def plan_queues(
    scan: scanning.Scan,
    store: ScanStore,
    last: LastBuild,
    order: decisions.Order,
    changed: list[stored_rows.StoredRange],
    damaged: Damaged,
    file_size: int,
) -> QueuePlan:
    """Return a plan of the ConsumeQueue files after ``last``: ``changed`` are the ranges that came or went."""
    to_write = wanted_files(scan, store, last, order, changed, damaged)
    return QueuePlan(
        dataclasses.replace(order, opened=_opened_again(order, to_write)),
        bool(to_write),
        write_wanted(scan.staging, to_write),
        carried_parts(scan.staging, store, last, to_write, file_size),
    )


def queue_files(store: ScanStore, last: LastBuild) -> Iterator[list[Line]]:
    """Yield the ConsumeQueue files of a build, in the order of paths, some at a time."""
    lines = files.lines(files.join(store.builds, f"{last.digest}.files"))
    while chunk := [_kept(line) for line in islice(lines, _CHUNK)]:
        yield chunk


def _kept(kept: bytes) -> Line:
    text, _, modified = kept.rpartition(b"\t")
    return Line(json.loads(text.partition(b"\t")[0]) | {"modified": int(modified)}, text)


def timed_lines(lines: Iterable[bytes], built: StandingFiles) -> Iterator[bytes]:
    """Yield lines of parts, in the order of paths, as the store keeps them: each with the time of its file."""
    lines = iter(lines)
    while chunk := list(islice(lines, _CHUNK)):
        times = built.times([{"path": finishing.path_of(line)} for line in chunk])
        yield from (b"%b\t%d" % pair for pair in zip(chunk, times, strict=True))


def _queue_file(entry: dict[str, Any]) -> QueueFilePath:
    folder, topic, queue, start = entry["path"].split("/")
    return QueueFilePath(topic.encode(), int(queue), int(start), folder == layouts.BATCH_QUEUES)


def keys_of(names: Iterable[tuple[bytes, int]]) -> stored_rows.Keys:
    """Return the keys of queues, given by topic in UTF-8 and queue id (``queue_keys``)."""
    queues = list(names)
    return stored_rows.queue_keys(
        [name for name, _ in queues], np.array([queue for _, queue in queues], np.int64).astype(np.int32)
    )


def touched_by(scan: scanning.Scan, ranges: list[stored_rows.StoredRange]) -> stored_rows.Touched:
    """Return the queues and files that have units of these ranges."""
    tasks = task_count(len(ranges), len(ranges) * scan.range_size, scan.engine.cores, DERIVED_BYTES)
    if not tasks:
        return stored_rows.Touched.union([])
    function = stored_rows.TouchedFiles(
        scan.staging, stored_rows.write_ranges(scan.staging, ranges), tasks, scan.task.units_per_file
    )
    return stored_rows.Touched.union(
        [stored_rows.Touched(*stored_rows.unpack_keys(files.read_bytes(path))) for path in scan.engine.numbers(function, tasks)]
    )


def odd_lines(order: decisions.Order) -> Iterator[bytes]:
    """Yield the queues out of order as the store keeps them (``jobs.building.last_build``)."""
    for queue in order.odd.queues() if order.odd else ():
        yield json.dumps([queue.topic, queue.queue, queue.batch, queue.digest]).encode()


def _moved(before: Iterator[bytes], now: Iterator[bytes], touched: stored_rows.Touched) -> Iterator[stored_rows.Keys]:
    """Yield keys of queues out of order, now or before, whose units may have moved: all of their files are written again."""

    def queue(line: bytes) -> tuple[str, int]:
        topic, queue_id, *_ = json.loads(line)
        return topic, queue_id

    merged = heapq.merge(((line, 0) for line in before), ((line, 1) for line in now), key=lambda pair: queue(pair[0]))
    while chunk := list(islice(merged, _CHUNK)):
        # One that a chunk's end separates from its twin counts as moved.
        counts: dict[bytes, int] = {}
        for line, _ in chunk:
            counts[line] = counts.get(line, 0) + 1
        single = [(topic.encode(), number) for topic, number in (queue(line) for line, n in counts.items() if n == 1)]
        twins = keys_of((topic.encode(), number) for topic, number in (queue(line) for line, n in counts.items() if n > 1))
        yield keys_of(single)
        yield twins[stored_rows.among(twins, touched.queues)]


def damaged_ones(lines: list[Line], damaged: Damaged) -> list[dict[str, Any]]:
    """Return the entries of these lines whose files are no longer what they were."""
    entries = [line.entry for line in lines]
    return list(compress(entries, damaged(entries)))


def wanted_files(
    scan: scanning.Scan,
    store: ScanStore,
    last: LastBuild,
    order: decisions.Order,
    ranges: list[stored_rows.StoredRange],
    damaged: Damaged,
) -> stored_rows.QueueFilesToWrite:
    """Return what is written again: files with units of ``ranges``, which came or went, and whole queues of damaged files."""
    touched = touched_by(scan, ranges)
    odd = files.lines(files.join(store.builds, f"{last.digest}.odd"))
    broken = (keys_of(_queue_file(entry)[:2] for entry in damaged_ones(chunk, damaged)) for chunk in queue_files(store, last))
    whole = [touched.batches, *_moved(odd, odd_lines(order), touched), *broken]
    return stored_rows.QueueFilesToWrite(np.unique(np.concatenate(whole)), touched.files)


def write_wanted(staging: StagingFolder, to_write: stored_rows.QueueFilesToWrite) -> str:
    """Write the keys for the tasks. Return the path."""
    path = files.join(staging.plans, f"wanted-{uuid.uuid4().hex}")
    files.write_bytes(staging.temporary, path, [stored_rows.pack_keys(to_write.queues, to_write.files)])
    return path


class _Parts:
    """Lines of files that are carried, in parts that one task takes each."""

    def __init__(self, staging: StagingFolder, name: str) -> None:
        self._staging, self._name = staging, name
        self._held: list[bytes] = []
        self._bytes = 0
        self.paths: list[str] = []

    def add(self, line: bytes, size: int) -> None:
        self._held.append(line)
        self._bytes += size
        if len(self._held) >= CARRIED_AT_ONCE or self._bytes >= _CARRIED_BYTES:
            self.finish()

    def finish(self) -> list[str]:
        if self._held:
            path = files.join(self._staging.parts, f"{self._name}-carried-{uuid.uuid4().hex}")
            files.write_bytes(self._staging.temporary, path, joined(line + b"\n" for line in self._held))
            self.paths.append(path)
        self._held, self._bytes = [], 0
        return self.paths


def carried_parts(
    staging: StagingFolder, store: ScanStore, last: LastBuild, to_write: stored_rows.QueueFilesToWrite, file_size: int
) -> list[str]:
    """Return parts of the manifest with the files that are not ``to_write``: they stay."""
    parts = _Parts(staging, layouts.QUEUES)
    for chunk in queue_files(store, last):
        queue_files_of_chunk = [_queue_file(line.entry) for line in chunk]
        keys = keys_of((file.topic, file.queue) for file in queue_files_of_chunk)
        numbers = np.array([file.start // file_size for file in queue_files_of_chunk], np.int64)
        batch = np.array([file.batch for file in queue_files_of_chunk], bool)
        is_written = np.where(batch, to_write.having(keys, None), to_write.having(keys, numbers))
        for k in np.flatnonzero(~is_written).tolist():
            parts.add(chunk[k].text, chunk[k].entry["used"])
    return parts.finish()


def carried_index(staging: StagingFolder, results: Iterable[dict[str, Any]]) -> list[str]:
    """Return parts with IndexFiles that stay, each with the path where it is ``made``: names come later."""
    parts = _Parts(staging, "index")
    for result in results:
        parts.add(json.dumps(result).encode(), result["used"])
    return parts.finish()


def _opened_again(order: decisions.Order, to_write: stored_rows.QueueFilesToWrite) -> list[decisions.EmptyFile]:
    """Return the files without units whose queues are written again; the others stay."""
    if not order.opened:
        return []
    is_written = to_write.having(keys_of((file.topic.encode(), file.queue) for file in order.opened), None)
    return [file for file, is_wanted in zip(order.opened, is_written.tolist(), strict=True) if is_wanted]
