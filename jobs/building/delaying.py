"""``--write-delay`` and ``--consumer-offsets``: the files by which a restored broker knows what was delivered."""

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.command.broker_conf import unread
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.publishing.layout import CONSUMER_OFFSETS, DELAY_OFFSETS
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.consumer_offsets import OffsetFile
from rocketmq_reindex.jobs.store.settings import has_bytes
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.delay.evidence import EVIDENCE, SCHEDULED, TIMED, Rows
from rocketmq_reindex.storage_format.delay.settings import DROP
from rocketmq_reindex.storage_format.delay.timer_files import PENDING, TimerQueueEnd, timer_files
from rocketmq_reindex.storage_format.delay.waiting import REASONS, Bools, HalfOffsets, doubtful, level_offset, recalled
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.storage_format.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, path_component
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.delay import FirstPending, JoinDelayed, JoinedResult
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.times import show_time

# --------------------------------------------------------------------------------------------------------------------- evidence
# Merge what tasks found out of delayed messages: of each queue what was delivered, and what was not.


@dataclass(frozen=True)
class DelayLevel:
    """One queue of SCHEDULE_TOPIC_XXXX: the highest offset delivered (-1: none), messages delivered and pending."""

    queue: int
    highest: int
    delivered: int
    pending: int
    undecided: Rows
    reasons: npt.NDArray[np.int64]
    """of each, the number of its reason in ``delay.waiting.REASONS``"""


@dataclass(frozen=True)
class Timers:
    """The timer topic: rows of EVIDENCE without a copy, by queue offset; which of them are undecided, and why."""

    end: TimerQueueEnd
    rows: Rows
    reasons: npt.NDArray[np.int64]
    """-1 where a message is pending for sure"""


@dataclass(frozen=True)
class Evidence:
    """All that the log says of delayed and timer messages."""

    levels: list[DelayLevel]
    timers: Timers


def merge(results: Sequence[JoinedResult], last_gap: int, last_time: int) -> Evidence:
    """Return all tasks' results as one; see ``delay.waiting.doubtful``. Of the levels only undecided messages are held."""
    highest, delivered, pending = dict[int, int](), dict[int, int](), dict[int, int]()
    undecided: dict[int, list[tuple[Rows, npt.NDArray[np.int64]]]] = {}
    timed: list[tuple[Rows, npt.NDArray[np.int64]]] = [(np.zeros(0, EVIDENCE), np.zeros(0, np.int64))]
    for result in results:
        for queue, offset, count in result.delivered:
            highest[queue] = max(highest.get(queue, -1), offset)
            delivered[queue] = delivered.get(queue, 0) + count
    for result in results:
        rows = np.frombuffer(files.read_bytes(result.part), EVIDENCE) if result.part else np.zeros(0, EVIDENCE)
        unclear = np.array(result.unclear, np.int64)
        timers = rows[rows["kind"] == TIMED]
        timed.append((timers, _reasons(doubtful(timers, -1, last_gap, last_time, unclear))))
        for queue in np.unique(rows["queue"][rows["kind"] == SCHEDULED]).tolist():
            of_queue = rows[(rows["kind"] == SCHEDULED) & (rows["queue"] == queue)]
            reasons = _reasons(doubtful(of_queue, highest.get(queue, -1), last_gap, last_time, unclear))
            undecided.setdefault(queue, []).append((of_queue[reasons >= 0], reasons[reasons >= 0]))
            pending[queue] = pending.get(queue, 0) + int((reasons < 0).sum())
    levels = []
    for queue in sorted(highest.keys() | pending.keys()):
        rows, reasons = _sorted(undecided.get(queue, timed[:1]))
        levels.append(DelayLevel(queue, highest.get(queue, -1), delivered.get(queue, 0), pending.get(queue, 0), rows, reasons))
    ends = [result.timer_end for result in results if result.timer_end]
    last = max(ends, default=[-1, 0, 0])
    timers = Timers(TimerQueueEnd(last[0] + 1, last[1], last[2]), *_sorted(timed))
    return Evidence(levels, timers)


def _reasons(masks: tuple[Bools, ...]) -> npt.NDArray[np.int64]:
    numbers = np.full(len(masks[0]), -1, np.int64)
    for number, mask in enumerate(masks):
        numbers[mask] = number
    return numbers


def _sorted(parts: list[tuple[Rows, npt.NDArray[np.int64]]]) -> tuple[Rows, npt.NDArray[np.int64]]:
    rows, reasons = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    order = np.argsort(rows["queue_offset"], kind="stable")
    return rows[order], reasons[order]


# ----------------------------------------------------------------------------------------------------------------------- halves
# How far a broker was with half messages: its own offset in config/consumerOffset.json, by what the log says of them.

_TRANSACTIONS: Final = f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS"
"""``TransactionalMessageUtil.buildConsumerGroup``: how far the broker has checked half messages"""


def pass_halves(
    table: dict[str, Any], results: Sequence[JoinedResult], engine: Engine, staging: StagingFolder
) -> tuple[bool, list[str]]:  # fmt: skip
    """Put the broker's own offset into the table of consumerOffset.json. Return whether it changed, and warnings.

    Without it a broker asks again about half messages that were committed after a check, and commits them twice.
    """
    kept = consumer_offsets.as_offset(table.get("offsetTable", {}).get(_TRANSACTIONS, {}).get("0"))
    halves = _half_offsets(results, kept or 0, engine, staging)
    offset = halves.goes_on(kept)
    warnings = list[str]()
    if halves.pending < offset:
        warnings.append(
            f"{CONSUMER_OFFSETS}: {_TRANSACTIONS} stands at {offset}, but by the log the half message at {halves.pending} is "
            f"neither committed nor rolled back: the broker asks about none below {offset}"
        )
    if offset == (kept or 0):
        return False, warnings
    table.setdefault("offsetTable", {}).setdefault(_TRANSACTIONS, {})["0"] = offset
    goes_on = f"{CONSUMER_OFFSETS}: {_TRANSACTIONS} goes on at {offset}: half messages below it are decided or written anew"
    return True, [*warnings, goes_on]


def _half_offsets(results: Sequence[JoinedResult], kept: int, engine: Engine, staging: StagingFolder) -> HalfOffsets:
    """Return what the results of all buckets say of half messages; those from the offset ``kept`` on were not passed."""
    passed = max(result.passed for result in results) + 1 if results else 0
    end = max(passed, kept)
    if not end:
        return HalfOffsets(0, 0, -1)
    plan = handover.write_plan(staging, "halves", [result.halves for result in results if result.halves])
    (pending,) = map(int, engine.numbers(FirstPending(plan, end), 1))
    _, checked = max((result.last_check for result in results), default=[-1, -1])
    return HalfOffsets(min(passed, pending), pending, checked)


# -------------------------------------------------------------------------------------------------------------------- consumers
# A backup's config/consumerOffset.json, checked against the queues that were built.

NAMED: Final = 20
"""Groups that are named one by one."""


def given(path: str) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of the file at ``path``, and its bytes; both are empty for "".

    Raises UsageError for what is no consumerOffset.json.
    """
    if not path:
        return {}, b""
    told = f"{escape(path)}: is no consumerOffset.json"
    try:
        found, data = consumer_offsets.read(path)
        if found is not None and all(entry.offset is not None for entry in found.entries()):
            return found.said, data
    except (OSError, errors.InputError) as error:
        told = unread(path, error)
    # ConfigManager.load reads the copy of a file that a kill left cut short, or not at all.
    instead = escape(f"{path}.bak") if has_bytes(f"{path}.bak") else "the consumerOffset.json of a backup"
    raise errors.UsageError(f"--consumer-offsets {told}: name {instead}")


def check(table: dict[str, Any], staging: StagingFolder) -> Iterator[str]:
    """Yield a warning for each group whose offset is not one of its queue, as it was built into the tree."""
    bounds: dict[tuple[str, int], tuple[int, int] | None] = {}
    outside = 0
    for (group, topic, queue), offset in OffsetFile(CONSUMER_OFFSETS, table).entries():
        if offset is None:
            continue
        if (topic, queue) not in bounds:
            bounds[topic, queue] = _bounds(staging, topic, queue)
        known = bounds[topic, queue]
        if known is None:
            # A queue that never had a message has offset 0.
            fault = "" if offset == 0 else "the log has no message of that queue"
        else:
            low, high = known
            fault = f"the queue begins at {low}" if offset < low else ""
            if offset > high:
                fault = f"the queue ends at {high}: set it to that, else the group misses what is sent next"
        outside += bool(fault)
        if fault and outside <= NAMED:
            yield f"{CONSUMER_OFFSETS}: group {escape(group)} stands at offset {offset} of {escape(topic)}/{queue}: {fault}"
    if outside > NAMED:
        yield f"{CONSUMER_OFFSETS}: {counted(outside - NAMED, 'more offset')} outside of their queues"


def _bounds(staging: StagingFolder, topic: str, queue: int) -> tuple[int, int] | None:
    """Return the first queue offset and the end of a queue in the tree; None for none."""
    name = path_component(topic)
    folder = files.join(staging.tree, f"consumequeue/{name}/{queue}")
    if name is None or files.entry_of(folder).kind != files.FOLDER:
        return None
    names = sorted(file_name for file_name in files.names(folder) if layouts.first_byte(file_name) is not None)
    if not names:
        return None
    first = last = _sizes(files.join(folder, names[0]))
    if len(names) > 1:
        last = _sizes(files.join(folder, names[-1]))
    real, end = np.flatnonzero((first != 0) & (first != PRE_BLANK_SIZE)), np.flatnonzero(last)
    low, high = int(names[0]) // UNIT_SIZE, int(names[-1]) // UNIT_SIZE
    return low + (int(real[0]) if len(real) else np.count_nonzero(first)), high + (int(end[-1]) + 1 if len(end) else 0)


def _sizes(path: str) -> npt.NDArray[np.int32]:
    """Return the size that each unit of a file has."""
    with files.Reader(path) as reader:
        data = reader.whole()
    return data[: len(data) // UNIT_SIZE * UNIT_SIZE].view(UNIT_LAYOUT.dtype)["size"].astype(np.int32)


# ------------------------------------------------------------------------------------------------------------------------ steps
# Write the files by which a broker goes on with the pending messages alone, from what the log says was delivered.

LISTED: Final = 1000
"""Undecided messages that the summary lists one by one; it counts all."""


def write_config(
    scan: Scan, settings: BuildSettings, segments: Sequence[Segment], chain: Chain, accepted: list[RangeSummary], clock: int
) -> tuple[list[dict[str, Any]], dict[str, Any] | None, list[str]]:  # fmt: skip
    """Write what ``--write-delay`` and ``--consumer-offsets`` ask for into the tree.

    Return its entries for the manifest, what was delivered and what is pending (None without ``--write-delay``), and warnings.
    ``chain`` is that of the whole log, ``segments`` its files, and ``accepted`` the ranges that are built from. ``clock`` is
    the time now in milliseconds since 1970: timer messages that are due before it are delivered when the broker starts.
    """
    entries, delay, warnings = list[dict[str, Any]](), None, list[str]()
    table, text = given(settings.consumer_offsets)
    if settings.consumer_offsets:
        warnings += check(table, scan.staging)
    if settings.write_delay:
        results = JoinedResult.read(
            scan.engine.reduce(handover.DELAYED, scan.left_out(accepted), None, JoinDelayed(scan.staging))
        )
        evidence = _evidence(results, chain, accepted)
        entries, delay, of_delay = _write_delay(scan.staging, settings, evidence, segments, clock)
        changed, of_halves = pass_halves(table, results, scan.engine, scan.staging)
        warnings += [*of_delay, *of_halves]
        if changed:
            text = json.dumps(table).encode()
    if text:
        entries.append(_write(scan.staging, CONSUMER_OFFSETS, len(text), [(0, text)]))
    return entries, delay, warnings


def _evidence(results: list[JoinedResult], chain: Chain, accepted: list[RangeSummary]) -> Evidence:
    last_time = max((summary.time_max for summary in accepted if summary.records), default=0)
    lost = max(chain.gaps(chain.holes), default=-1)
    if sum(summary.records for summary in accepted) < sum(summary.records for summary in chain.accepted):
        # A broker cuts the log there, with the copies that lie behind.
        lost = layouts.INT64_MAX
    return merge(results, lost, last_time)


def _write_delay(
    staging: StagingFolder, settings: BuildSettings, evidence: Evidence, segments: Sequence[Segment], clock: int
) -> tuple[list[dict[str, Any]], dict[str, Any], list[str]]:  # fmt: skip
    drop = settings.undecided == DROP
    offsets = {level.queue + 1: level_offset(level.highest, level.undecided, settings.undecided) for level in evidence.levels}
    table = {str(number): level_start.offset for number, level_start in offsets.items()}
    text = json.dumps({"offsetTable": table}, indent=1).encode()
    entries = [_write(staging, DELAY_OFFSETS, len(text), [(0, text)])]
    timers = evidence.timers
    rows_written = timers.rows[timers.reasons < 0] if drop else timers.rows
    # Where queue offsets repeat a broker reads one record of each.
    rows_written = rows_written[np.unique(rows_written["queue_offset"], return_index=True)[1]]
    pending = np.zeros(len(rows_written), PENDING)
    for name in PENDING.names or ():
        pending[name] = rows_written[name]
    broker = settings.timer_settings
    written = timer_files(pending, timers.end, clock, broker, recalled(rows_written, broker.precision_ms))
    entries += [_write(staging, "/".join(file.path), file.size, file.parts()) for file in written.files]
    undecided = sum(len(level.undecided) for level in evidence.levels) + int((timers.reasons >= 0).sum())
    warnings, delay = list[str](), {
        "policy": settings.undecided,
        "levels": [
            {"level": level.queue + 1, "offset": offsets[level.queue + 1].offset, "delivered": level.delivered,
             "pending": level.pending, "undecided": len(level.undecided), "again": offsets[level.queue + 1].again}
            for level in evidence.levels
        ],
        "timers": {"pending": int((timers.reasons < 0).sum()), "undecided": int((timers.reasons >= 0).sum())},
        "undecided_count": undecided,
        "undecided": _listed(evidence, segments),
    }  # fmt: skip
    if undecided:
        repeated = sum(level_start.again for level_start in offsets.values())
        fate = "are not delivered" if drop else f"are delivered, perhaps again, and {counted(repeated, 'message')} for certain"
        warnings.append(
            f"--write-delay: of {counted(undecided, 'delayed message')} the log does not tell whether they were delivered: "
            f"they {fate} (--undecided {settings.undecided}); the manifest lists them"
        )
    if timers.end.queue_offset:
        warnings.append(
            f"--write-delay: start the broker before {show_time(written.start_by)}, else it passes over timer messages that "
            "were due; config/timercheck, timerlog/ and timerwheel are one set: put all three in together, as fetch does"
        )
        if settings.timer_rocksdb:
            warnings.append(
                "--broker-conf: has timerRocksDBEnable=true: this broker reads timers from RocksDB, not from these files"
            )
    return entries, delay, warnings


def _listed(evidence: Evidence, segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """Return the first undecided messages, read from the log once more."""
    chosen: list[tuple[str, Rows, np.ndarray[Any, Any]]] = [
        (SCHEDULE_TOPIC, level.undecided, level.reasons) for level in evidence.levels
    ]
    undecided = evidence.timers.reasons >= 0
    chosen.append((TIMER_TOPIC, evidence.timers.rows[undecided], evidence.timers.reasons[undecided]))
    listed: list[dict[str, Any]] = []
    for topic, rows, reasons in chosen:
        for row, reason in zip(rows[: LISTED - len(listed)], reasons, strict=False):
            at, size = int(row["phy_offset"]), int(row["size"])
            message = _message(segments, at, size)
            properties = message.properties if message else {}
            listed.append(
                {
                    "topic": topic,
                    "level": int(row["queue"]) + 1 if topic == SCHEDULE_TOPIC else None,
                    "queue_offset": int(row["queue_offset"]),
                    "offset": at,
                    "real_topic": escape(properties.get("REAL_TOPIC", "")),
                    "uniq_key": escape(properties.get("UNIQ_KEY", "")),
                    "reason": REASONS[int(reason)],
                }
            )
    return listed


def _message(segments: Sequence[Segment], at: int, size: int) -> Message | None:
    segment = segments[bisect_right([part.start for part in segments], at) - 1]
    with files.Reader(segment.path) as reader:
        data = reader.read(at - segment.start, size)
    message = read_message(lambda low, count: bytes(data[low : low + count]), at, size)
    return message if isinstance(message, Message) else None


def _write(staging: StagingFolder, path: str, size: int, parts: Iterable[tuple[int, bytes]]) -> dict[str, Any]:
    """Write a file of ``size`` bytes with zeros between its parts. Return its entry for the manifest."""
    digest, used = new_digest([]), 0
    target = files.join(staging.tree, path)
    files.make_folder(files.parent(target), below=staging.tree)
    with files.writing(staging.temporary, target) as writer:
        for at, data in parts:
            while used < at:
                gap = min(at - used, 1 << 20)
                digest.update(bytes(gap))
                used += gap
            writer.write_at(at, data)
            digest.update(data)
            used += len(data)
        writer.finish(staging.stored(size))
    return {"path": path, "size": size, "used": used, "digest": digest.digest().hex()}
