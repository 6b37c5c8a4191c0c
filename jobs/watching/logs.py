"""Output of a run for machines: stages and messages as JSON on stderr, and figures in a file of metrics."""

import errno
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile
from prometheus_client.parser import text_string_to_metric_families

from rocketmq_reindex.jobs.watching.progress import Shown, Stage, StageSeconds
from rocketmq_reindex.storage_format.showing import escape

# ---------------------------------------------------------------------------------------------------------------- progress json
# Stages for schedulers: one JSON object a line on stderr, when a stage begins, each few seconds, when it ends.

LINE_INTERVAL = 5.0


class JsonLines(Shown):
    """``eta`` is null where nothing can be said yet; seconds are those of the stage."""

    def __init__(self) -> None:
        self._last: dict[Stage, tuple[float, int, int]] = {}

    def waits(self, text: str) -> None:
        _write({"state": "waiting", "text": text})

    def stage_started(self, stage: Stage) -> None:
        if stage.probe is not None:
            self._print(stage, "running", 0, 0)

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        if stage.seconds - self._last[stage][0] >= LINE_INTERVAL:
            self._print(stage, "running", things, size)
        else:
            self._last[stage] = (self._last[stage][0], things, size)

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        if stage.probe is None:
            return
        _, things, size = self._last.pop(stage)
        if failed:
            self._print(stage, "failed", things, size)
        else:
            self._print(stage, "done", stage.total, stage.total_bytes)
        del self._last[stage]

    def _print(self, stage: Stage, state: str, things: int, size: int) -> None:
        seconds, eta = stage.seconds, 0.0 if state == "done" else stage.pace.left
        self._last[stage] = (seconds, things, size)
        line: dict[str, object] = {
            "stage": stage.name, "state": state, "done": things, "total": stage.total, "things": stage.things, "bytes": size,
            "total_bytes": stage.total_bytes, "seconds": round(seconds, 1), "eta": eta if eta is None else round(eta, 1),
        }  # fmt: skip
        _write(line)


def _write(line: dict[str, object]) -> None:
    # One write: another stage's line must not come between this one and its end.
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()


# ------------------------------------------------------------------------------------------------------------------------- logs
# Messages of a run as one JSON object a line on stderr, in the form of Spark's structured logs (``pyspark.logger``).

NAME = "rmq-reindex"
Value = str | int | float | bool | None


class _Lines(logging.Formatter):
    """One line as ``SPARK_LOG_SCHEMA`` of pyspark has it: ts, level, logger, msg, context."""

    default_msec_format = "%s.%03d"

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "ts": self.formatTime(record),
                "level": record.levelname,
                "logger": record.name,
                "msg": record.getMessage(),
                "context": getattr(record, "context", {}),
            },
            ensure_ascii=False,
        )


class JsonLog(Shown):
    """``always`` stands in the context of each line. Texts come escaped; a value that is None is left out."""

    def __init__(self, **always: Value) -> None:
        self._always = always
        # Not registered: it has no parent that would print all of it again, and stderr is the one of now.
        self._logger = logging.Logger(NAME, logging.INFO)
        handler = logging.StreamHandler()
        handler.setFormatter(_Lines())
        self._logger.addHandler(handler)

    def event(self, event: str, text: str, context: Mapping[str, Value], level: int = logging.INFO) -> None:
        """One line: ``text`` for people, ``event`` and the rest for programs."""
        fields = {**self._always, "event": event, **context}
        known = {name: value for name, value in fields.items() if value is not None}
        self._logger.log(level, "%s", text, extra={"context": known})

    def take(self, logger: str, event: str) -> None:
        """Have the records of another logger come as lines of this log."""
        log = self

        class Taken(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                log.event(event, escape(record.getMessage()), {}, record.levelno)

        taken_logger = logging.getLogger(logger)
        taken_logger.propagate = False
        taken_logger.addHandler(Taken())

    def line(self, text: str) -> None:
        self.event("progress", text, {})

    def waits(self, text: str) -> None:
        self.event("waiting", text, {}, logging.WARNING)

    def stage_started(self, stage: Stage) -> None:
        known: dict[str, Value] = {"stage": stage.name}
        if stage.probe is not None:
            known |= {"total": stage.total, "things": stage.things, "total_bytes": stage.total_bytes}
        self.event("stage-begun", f"{stage.name}: begun", known)

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        seconds = round(stage.seconds, 3)
        event, text = ("stage-failed", "failed") if failed else ("stage-ended", "done")
        context: dict[str, Value] = {"stage": stage.name, "seconds": seconds, **stage.counts}
        self.event(event, f"{stage.name}: {text} after {seconds:.1f} s", context, logging.WARNING if failed else logging.INFO)


# ---------------------------------------------------------------------------------------------------------------------- metrics
# Figures of the last run as a text file that Prometheus' node_exporter (or any scraper of files) collects.

PREFIX: Final = "rmq_reindex_"
_SUCCESS: Final = "last_success_timestamp_seconds"


class Figures(Protocol):
    """What the results of build, verify and repair share."""

    exit: int
    version: str
    seconds: dict[str, float]
    bytes: int
    records: int
    units: int
    items: int
    files: dict[str, int]


def write_metrics(
    path: str, labels: Mapping[str, str], result: Figures, seconds: StageSeconds, counts: Mapping[str, int]
) -> None:
    """Replace ``path``, whole or not at all. ``counts`` by name go beside those of the result.

    The time of the last run that ended well outlives runs that do not. Raises OSError, also for what is no regular file: a
    rename would take the place of a device.
    """
    if os.path.lexists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "is no regular file: name another")
    registry, now = CollectorRegistry(), time.time()
    gauges: dict[str, Gauge] = {}

    def gauge(name: str, text: str, value: float, **extra_labels: str) -> None:
        known = gauges.get(name)
        if known is None:
            known = gauges[name] = Gauge(PREFIX + name, text, [*labels, *extra_labels], registry=registry)
        known.labels(*labels.values(), *extra_labels.values()).set(value)

    gauge("info", "Version of the last run.", 1, version=result.version)
    gauge("exit_status", "Exit status of the last run.", result.exit)
    gauge("last_run_timestamp_seconds", "When the last run ended.", now)
    gauge(_SUCCESS, "When a run last ended with status 0; 0: never.", now if result.exit == 0 else _last_success(path, labels))
    for name, (text, parts) in _WHOLE.items():
        for stage_seconds in [result.seconds[part] for part in parts if part in result.seconds]:
            gauge(name, text, stage_seconds)
    # Before the session is up no other stage begins.
    starting = {"session": result.seconds["session"]} if "session" in result.seconds else {}
    for stage, stage_seconds in {**starting, **seconds.alone}.items():
        gauge("stage_seconds", "Seconds of the last run by stage, none of which counts twice.", stage_seconds, stage=stage)
    for stage, rounds in seconds.rounds.items():
        gauge("stage_rounds", "How often the last run began the stage.", rounds, stage=stage)
    for stage, stage_seconds in seconds.beside.items():
        gauge("beside_seconds", "Seconds of what the last run did at the same time as its stages.", stage_seconds, stage=stage)
    gauge("commitlog_bytes", "Bytes of the commitlog that were read.", result.bytes)
    gauge("records", "Records in them.", result.records)
    gauge("consumequeue_units", "Units of ConsumeQueues that were written or compared.", result.units)
    gauge("index_items", "Items of IndexFiles that were written or compared.", result.items)
    for kind, number in result.files.items():
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
    """Return what the file that stands there says; 0 where there is none, or it is of something else."""
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
