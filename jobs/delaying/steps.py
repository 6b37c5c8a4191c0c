"""Write the files by which a broker goes on with the pending messages alone, from what the log says was delivered."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.command.times import show_time
from rocketmq_reindex.jobs.delaying import consumers
from rocketmq_reindex.jobs.delaying.evidence import Evidence, merge
from rocketmq_reindex.jobs.delaying.halves import pass_halves
from rocketmq_reindex.jobs.publishing.layout import CONSUMER_OFFSETS, DELAY_OFFSETS
from rocketmq_reindex.storage_format.delay.decide import REASONS, level_offset
from rocketmq_reindex.storage_format.delay.evidence import Rows
from rocketmq_reindex.storage_format.delay.join import recalled
from rocketmq_reindex.storage_format.delay.policies import DROP
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.names import SCHEDULE_TOPIC, TIMER_TOPIC, escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.record.message import Message, read_message
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.timer.files import PENDING, timer_files
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.delay.join import JoinDelayed, JoinedResult
from rocketmq_reindex.udfs.staging import StagingFolder

LISTED: Final = 1000
"""Undecided messages that the summary lists one by one; it counts all."""


def write_config(
    scan: Scan, settings: BuildSettings, segments: Sequence[Segment], chain: Chain, accepted: list[RangeSummary],
    summary: Summary,
) -> list[dict[str, Any]]:  # fmt: skip
    """Write what ``--write-delay`` and ``--consumer-offsets`` ask for into the tree; return its entries for the manifest.

    ``chain`` is that of the whole log, ``segments`` its files, and ``accepted`` the ranges that are built from.
    """
    entries = list[dict[str, Any]]()
    table, text = consumers.given(settings.consumer_offsets)
    if settings.consumer_offsets:
        consumers.check(table, scan.staging, summary)
    if settings.write_delay:
        results = JoinedResult.read(
            scan.engine.reduce(schemas.DELAYED, scan.left_out(accepted), None, JoinDelayed(scan.staging))
        )
        entries += _write_delay(scan.staging, settings, _evidence(results, chain, accepted), segments, summary)
        if pass_halves(table, results, scan.engine, scan.staging, summary):
            text = json.dumps(table).encode()
    if text:
        entries.append(_write(scan.staging, CONSUMER_OFFSETS, len(text), [(0, text)]))
    return entries


def _evidence(results: list[JoinedResult], chain: Chain, accepted: list[RangeSummary]) -> Evidence:
    last_time = max((found.time_max for found in accepted if found.records), default=0)
    lost = max(chain.gaps(chain.holes), default=-1)
    if sum(found.records for found in accepted) < sum(found.records for found in chain.accepted):
        # A broker cuts the log there, with the copies that lie behind.
        lost = INT64_MAX
    return merge(results, lost, last_time)


def _write_delay(
    staging: StagingFolder, settings: BuildSettings, found: Evidence, segments: Sequence[Segment], summary: Summary
) -> list[dict[str, Any]]:  # fmt: skip
    drop = settings.undecided == DROP
    offsets = {level.queue + 1: level_offset(level.highest, level.undecided, settings.undecided) for level in found.levels}
    table = {str(number): one.offset for number, one in offsets.items()}
    text = json.dumps({"offsetTable": table}, indent=1).encode()
    entries = [_write(staging, DELAY_OFFSETS, len(text), [(0, text)])]
    timers = found.timers
    wanted = timers.rows[timers.reasons < 0] if drop else timers.rows
    # Where queue offsets repeat a broker reads one record of each.
    wanted = wanted[np.unique(wanted["queue_offset"], return_index=True)[1]]
    pending = np.zeros(len(wanted), PENDING)
    for name in PENDING.names or ():
        pending[name] = wanted[name]
    now = time.time_ns() // 1_000_000
    broker = settings.timer_settings
    written = timer_files(pending, timers.end, now, broker, recalled(wanted, broker.precision_ms))
    entries += [_write(staging, "/".join(file.path), file.size, file.parts()) for file in written.files]
    undecided = sum(len(level.undecided) for level in found.levels) + int((timers.reasons >= 0).sum())
    summary.delay = {
        "policy": settings.undecided,
        "levels": [
            {"level": level.queue + 1, "offset": offsets[level.queue + 1].offset, "delivered": level.delivered,
             "pending": level.pending, "undecided": len(level.undecided), "again": offsets[level.queue + 1].again}
            for level in found.levels
        ],
        "timers": {"pending": int((timers.reasons < 0).sum()), "undecided": int((timers.reasons >= 0).sum())},
        "undecided_count": undecided,
        "undecided": _listed(found, segments),
    }  # fmt: skip
    if undecided:
        again = sum(one.again for one in offsets.values())
        fate = "are not delivered" if drop else f"are delivered, perhaps again, and {counted(again, 'message')} for certain"
        summary.warn(
            f"--write-delay: of {counted(undecided, 'delayed message')} the log does not tell whether they were delivered: "
            f"they {fate} (--undecided {settings.undecided}); the manifest lists them"
        )
    if timers.end.queue_offset:
        summary.warn(
            f"--write-delay: start the broker before {show_time(written.start_by)}, else it passes over timer messages that "
            "were due; config/timercheck, timerlog/ and timerwheel are one set: put all three in together, as fetch does"
        )
        if settings.timer_rocksdb:
            summary.warn(
                "--broker-conf: has timerRocksDBEnable=true: this broker reads timers from RocksDB, not from these files"
            )
    return entries


def _listed(found: Evidence, segments: Sequence[Segment]) -> list[dict[str, Any]]:
    """The first undecided messages, read from the log once more."""
    chosen: list[tuple[str, Rows, np.ndarray[Any, Any]]] = [
        (SCHEDULE_TOPIC, level.undecided, level.reasons) for level in found.levels
    ]
    some = found.timers.reasons >= 0
    chosen.append((TIMER_TOPIC, found.timers.rows[some], found.timers.reasons[some]))
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
    segment = segments[bisect_right([one.start for one in segments], at) - 1]
    with files.Reader(segment.path) as reader:
        data = reader.read(at - segment.start, size)
    found = read_message(lambda low, count: bytes(data[low : low + count]), at, size)
    return found if isinstance(found, Message) else None


def _write(staging: StagingFolder, path: str, size: int, parts: Iterable[tuple[int, bytes]]) -> dict[str, Any]:
    """Write a file of ``size`` bytes with zeros between its parts; returns its entry for the manifest."""
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
