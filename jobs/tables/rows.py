"""Rows that the driver makes: one for the run, one for each segment, one for each damaged place."""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from rocketmq_reindex.jobs.building import manifest
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.storage_format.digest import KIND, new_digest
from rocketmq_reindex.storage_format.names import redacted
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.tables.schema import BUILDS, QUARANTINE, SEGMENTS


def text(value: str) -> str:
    """Return a path or a message as a column can hold it: file names may be no text at all, and URIs may have secrets."""
    return redacted(_legible(value))


def _legible(value: str) -> str:
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True)
class Attempt:
    """One attempt of a build: its number, its random word, when Spark was up."""

    number: int
    run: str
    started: datetime


def build_row(
    settings: BuildSettings, summary: Summary, log: Commitlog, state: str, attempt: Attempt, ended: datetime | None
) -> pa.Table:
    """Return the row in ``builds``, with the figures that the summary has now."""
    over = ended is not None
    row = {
        "build": settings.build_id,
        "attempt": attempt.number,
        "state": state,
        "exit": summary.exit if over else None,
        "error": text(summary.error) if over and summary.error else None,
        "version": summary.version,
        "startedAt": attempt.started,
        "endedAt": ended,
        "sessionSeconds": summary.seconds["session"],
        "buildSeconds": summary.seconds["build"] if over else None,
        "inputs": [text(root) for root in settings.roots],
        "out": text(files.absolute(settings.out)),
        "settings": json.dumps(settings.for_manifest()),
        "segments": len(log.segments),
        "bytes": summary.bytes,
        "records": summary.records,
        "units": summary.units,
        "items": summary.items,
        "queueFiles": summary.files["consumequeue"],
        "indexFiles": summary.files["index"],
        "damagedPlaces": len(summary.damage),
        "decisions": summary.decisions,
        "warnings": [text(warning) for warning in summary.warnings],
        "store": text(settings.store_name or settings.store_folder or ",".join(settings.roots)),
        "host": socket.gethostname(),
        "user": _legible(_user()),
        "pid": os.getpid(),
        "updatedAt": ended or datetime.now(timezone.utc),
        "stage": None if over else "scan",
        "stageBytes": None if over else 0,
        "stageTotalBytes": None if over else log.size,
        "run": attempt.run,
        "digestKind": KIND,
    }
    return pa.Table.from_pylist([row], schema=BUILDS.arrow)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container a user may have no name.
        return str(os.getuid())


def segment_rows(
    build: str, log: Commitlog, summaries: Iterable[RangeSummary], accepted: Iterable[RangeSummary], until: int,
    damage: Iterable[Mapping[str, Any]],
) -> pa.Table:  # fmt: skip
    """Return a row for each segment: the sums of its accepted ranges, and digests as in the manifest."""
    rows = []
    found = {segment.start: _Sum() for segment in log.segments}
    starts = sorted(found)
    position = 0
    for summary in sorted(accepted, key=lambda s: s.low):
        while position + 1 < len(starts) and starts[position + 1] <= summary.low:
            position += 1
        found[starts[position]].add(summary)
    by_name: dict[str, list[int]] = {}
    for place in damage:
        by_name.setdefault(place["segment"], []).append(place["length"])
    for segment, entry in zip(log.segments, manifest.inputs(log, summaries, until), strict=True):
        total, lost = found[segment.start], by_name.get(segment.name, [])
        chunks = entry["digests"]
        whole = None if None in chunks else new_digest(bytes.fromhex(chunk) for chunk in chunks).digest().hex()
        rows.append(
            {
                "build": build,
                "segment": segment.name,
                "path": text(segment.path),
                "startOffset": segment.start,
                "size": segment.data_end - segment.start,
                "digest": whole,
                "chunkDigests": chunks,
                "records": total.records,
                "units": total.units,
                "items": total.items,
                "minStoreTimestamp": total.low,
                "maxStoreTimestamp": total.high,
                "damagedPlaces": len(lost),
                "damagedBytes": sum(lost),
            }
        )
    return pa.Table.from_pylist(rows, schema=SEGMENTS.arrow)


class _Sum:
    """Counts of one segment."""

    def __init__(self) -> None:
        self.records = self.units = self.items = 0
        self.low: int | None = None
        self.high: int | None = None

    def add(self, summary: RangeSummary) -> None:
        self.records += summary.records
        self.units += summary.units + summary.batch_units
        self.items += summary.items
        if summary.records:
            self.low = summary.time_min if self.low is None else min(self.low, summary.time_min)
            self.high = summary.time_max if self.high is None else max(self.high, summary.time_max)


def quarantine_rows(build: str, log: Commitlog, damage: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return a row for each damaged place. Its first bytes are read later, so ``path`` still has its secrets."""
    paths = {segment.name: _legible(segment.path) for segment in log.segments}
    rows = [
        {
            "build": build,
            "segment": place["segment"],
            "path": paths.get(place["segment"]),
            "offset": place["offset"],
            "length": place["length"],
            "reason": text(place["reason"]),
            "firstBytes": None,
        }
        for place in damage
    ]
    return pa.Table.from_pylist(rows, schema=QUARANTINE.arrow)
