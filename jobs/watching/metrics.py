"""Figures of the last run as a text file that Prometheus' node_exporter (or any scraper of files) collects."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_reindex.jobs.watching.progress import StageSeconds

PREFIX: Final = "rmq_reindex_"
_SUCCESS: Final = "last_success_timestamp_seconds"


class Figures(Protocol):
    """What the summaries of build, verify and repair share."""

    exit: int
    version: str
    seconds: dict[str, float]
    bytes: int
    records: int
    units: int
    items: int
    files: dict[str, int]


def write_metrics(
    path: str, labels: Mapping[str, str], summary: Figures, seconds: StageSeconds, counts: Mapping[str, int]
) -> None:
    """Replace ``path``, whole or not at all. ``counts`` by name go beside those of the summary.

    The time of the last run that ended well outlives runs that do not. Raises OSError, also for what is no regular file: a
    rename would take the place of a device.
    """
    if os.path.lexists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "is no regular file: name another")
    registry, now = CollectorRegistry(), time.time()
    gauges: dict[str, Gauge] = {}

    def gauge(name: str, text: str, value: float, **more: str) -> None:
        known = gauges.get(name)
        if known is None:
            known = gauges[name] = Gauge(PREFIX + name, text, [*labels, *more], registry=registry)
        known.labels(*labels.values(), *more.values()).set(value)

    gauge("info", "Version of the last run.", 1, version=summary.version)
    gauge("exit_status", "Exit status of the last run.", summary.exit)
    gauge("last_run_timestamp_seconds", "When the last run ended.", now)
    gauge(_SUCCESS, "When a run last ended with status 0; 0: never.", now if summary.exit == 0 else _last_success(path, labels))
    for name, (text, parts) in _WHOLE.items():
        for took in [summary.seconds[part] for part in parts if part in summary.seconds]:
            gauge(name, text, took)
    # Before the session is up no other stage begins.
    starting = {"session": summary.seconds["session"]} if "session" in summary.seconds else {}
    for stage, took in {**starting, **seconds.alone}.items():
        gauge("stage_seconds", "Seconds of the last run by stage, none of which counts twice.", took, stage=stage)
    for stage, rounds in seconds.rounds.items():
        gauge("stage_rounds", "How often the last run began the stage.", rounds, stage=stage)
    for stage, took in seconds.beside.items():
        gauge("beside_seconds", "Seconds of what the last run did at the same time as its stages.", took, stage=stage)
    gauge("commitlog_bytes", "Bytes of the commitlog that were read.", summary.bytes)
    gauge("records", "Records in them.", summary.records)
    gauge("consumequeue_units", "Units of ConsumeQueues that were written or compared.", summary.units)
    gauge("index_items", "Items of IndexFiles that were written or compared.", summary.items)
    for kind, number in summary.files.items():
        gauge("files", "Files that were written or compared, by kind.", number, kind=kind)
    for name, number in counts.items():
        gauge(name, _TEXTS[name], number)
    write_to_textfile(path, registry)


_WHOLE: Final = {
    "run_seconds": ("Seconds of the last run, from the start of the command to its end.", ("total",)),
    "work_seconds": (
        "Seconds of the last run from when its session was there until it was published or compared.",
        ("build", "verify"),
    ),
}
_TEXTS: Final = {
    "damaged_places": "Damaged places of the commitlog, torn and stale tails included.",
    "decisions": "What was done to the order of queues.",
    "warnings": "Warnings of the last run.",
    "files_not_removed": "Files behind a URI that the last run should have removed and could not.",
    "differences": "Differences that the last verify found.",
}


def _last_success(path: str, labels: Mapping[str, str]) -> float:
    """What the file that stands there says; 0 where there is none, or it is of something else."""
    if not os.path.isfile(path):
        return 0.0
    try:
        with open(path, encoding="utf-8") as file:
            for family in text_string_to_metric_families(file.read(1 << 20)):
                for sample in family.samples:
                    if sample.name == PREFIX + _SUCCESS and sample.labels == dict(labels):
                        return float(sample.value)
    except (OSError, ValueError, KeyError, IndexError):
        pass
    return 0.0
