"""Write DIR/config/topics.json: a draft of the broker's topic configuration, so that a bare log becomes a store that boots."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from typing import Any

from rocketmq_reindex.jobs.building.scanning import Scan
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.publishing.output import CONFIG, TOPICS
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary
from rocketmq_reindex.storage_format.topics import QUEUES_MAX, data_version
from rocketmq_reindex.udfs import files, schemas
from rocketmq_reindex.udfs.scan.draft_topics import NAMES_MAX, DraftTopics, TopicsResult


def write_topics(scan: Scan, settings: BuildSettings, accepted: list[RangeSummary], summary: Summary) -> dict[str, Any]:
    """Draft the file from the accepted ranges; return its entry for the manifest."""
    staging = scan.staging
    drafted: list[TopicsResult] = []
    if any(found.unit_records for found in accepted):
        reducer = DraftTopics(staging, frozenset(settings.batch_topics))
        drafted = TopicsResult.read(scan.engine.reduce(schemas.TOPICS, scan.left_out(accepted), None, reducer))
    if any(result.delayed for result in drafted) and not settings.write_delay:
        summary.warnings.append(
            "delayed messages: a broker without config/delayOffset.json delivers all of them in the log again: keep that file"
        )
    _warn(drafted, summary)
    newest = next((found.last_time for found in reversed(accepted) if found.records), 0)
    digest, size = new_digest([]), 0

    def text() -> Iterator[bytes]:
        nonlocal size
        for piece in _text(data_version(newest), [result.part for result in drafted]):
            digest.update(piece)
            size += len(piece)
            yield piece

    files.make_folder(files.join(staging.tree, CONFIG))
    files.write_bytes(staging.temporary, files.join(staging.tree, TOPICS), text())
    return {"path": TOPICS, "size": size, "used": size, "digest": digest.digest().hex()}


def _text(version: str, parts: list[str]) -> Iterator[bytes]:
    """Yields the lines of sorted parts as one JSON object, laid out as RocketMQ does."""
    yield f'{{\n\t"dataVersion":{version},\n\t"topicConfigTable":{{'.encode()
    separator = "\n\t\t"
    for _, entry in heapq.merge(*(_lines(part) for part in parts)):
        yield f"{separator}{entry}".encode()
        separator = ",\n\t\t"
    yield b"\n\t}\n}\n"


def _lines(part: str) -> Iterator[tuple[str, str]]:
    for line in files.lines(part):
        name, entry = json.loads(line)
        yield name, entry


def _warn(drafted: list[TopicsResult], summary: Summary) -> None:
    refused = sum(result.refused for result in drafted)
    if refused:
        names = sorted(name for result in drafted for name in result.refused_names)[:NAMES_MAX]
        summary.warnings.append(
            f"{TOPICS}: {counted(refused, 'topic')} left out, whose names RocketMQ's TopicValidator refuses: "
            + ", ".join(escape(name, 80) for name in names)
        )
    for name in sorted(name for result in drafted for name in result.many)[:NAMES_MAX]:
        summary.warnings.append(
            f"{TOPICS}: topic {escape(name)}: queue ids from {QUEUES_MAX:,} on are left out: give it more if they are right"
        )
