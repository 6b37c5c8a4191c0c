"""Messages of a run as one JSON object a line on stderr, in the form of Spark's structured logs (``pyspark.logger``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from rocketmq_reindex.jobs.watching.progress import Shown, Stage
from rocketmq_reindex.storage_format.names import escape

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
        given = {**self._always, "event": event, **context}
        known = {name: value for name, value in given.items() if value is not None}
        self._logger.log(level, "%s", text, extra={"context": known})

    def take(self, logger: str, event: str) -> None:
        """Have the records of another logger come as lines of this log."""
        log = self

        class Taken(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                log.event(event, escape(record.getMessage()), {}, record.levelno)

        found = logging.getLogger(logger)
        found.propagate = False
        found.addHandler(Taken())

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
