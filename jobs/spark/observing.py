"""Counters that Spark itself keeps of what tasks hand to the driver (``pyspark.sql.Observation``), beside those of the summary.

Only rows of summaries are looked at, a few for each range or file, never one for a message.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

WAIT: Final = 10.0
"""seconds in which Spark has told what it saw; the job is done by then"""
_SUMMARY: Final = (
    "low bigint, high bigint, records bigint, units bigint, batch_units bigint, items bigint, holes array<array<bigint>>"
)
_WORD: Final = "units bigint, items bigint"
SCAN: Final = ("ranges", "bytes", "records", "units", "items", "damaged")
WRITE: Final = ("units", "items")


class Observer:
    """``counts`` by stage, all rounds of it together. Thread-safe: both kinds of files are written at once."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {"scan": Counter(), "write": Counter()}
        self.silent = 0
        """jobs of which Spark told nothing"""
        self._lock = threading.Lock()

    def scan(self, summaries: DataFrame) -> Observed:
        """Rows of range summaries (``data``: JSON as bytes)."""
        told = summaries.select("data", F.from_json(F.col("data").cast("string"), _SUMMARY).alias("told"))
        return Observed(self, "scan", told, {
            "ranges": F.count("told"),
            "bytes": F.sum(F.expr("told.high - told.low")),
            "records": F.sum("told.records"),
            "units": F.sum(F.expr("told.units + told.batch_units")),
            "items": F.sum("told.items"),
            "damaged": F.sum(F.size("told.holes")),
        })  # fmt: skip

    def write(self, words: DataFrame) -> Observed:
        """Rows of what writers say (``data``: JSON as text)."""
        told = words.select("data", F.from_json("data", _WORD).alias("told"))
        return Observed(self, "write", told, {name: F.sum(f"told.{name}") for name in WRITE})

    def take(self, stage: str, counts: Mapping[str, Any] | None) -> None:
        with self._lock:
            if counts is None:
                self.silent += 1
            else:
                self.counts[stage].update({name: int(value or 0) for name, value in counts.items()})

    def differences(self, told: Mapping[str, Counter[str]]) -> list[str]:
        """A line on each count that is not what the summaries say (``Reporter.counts``)."""
        if self.silent:
            return [f"Spark told nothing of {self.silent} of its jobs: its counts were not compared with the summary's"]
        own = {"scan": told["scan"] + told["scan again"], "write": told["write"]}
        return [
            f"{stage}: Spark saw {name} {self.counts[stage][name]}, the summaries say {own[stage][name]}"
            for stage, names in (("scan", SCAN), ("write", WRITE))
            for name in names
            if self.counts[stage][name] != own[stage][name]
        ]


class Observed:
    """A DataFrame whose rows are collected once, and counted by Spark on their way."""

    def __init__(self, observer: Observer, stage: str, frame: DataFrame, counts: dict[str, Column]) -> None:
        self._observer, self._stage, self._observation = observer, stage, Observation()
        self._frame = frame.observe(self._observation, *(column.alias(name) for name, column in counts.items()))

    def collect(self) -> list[Any]:
        rows = self._frame.select("data").collect()
        found: list[Mapping[str, Any]] = []
        # It waits for a listener of Spark's: for ever, should that never be called.
        asking = threading.Thread(target=lambda: found.append(self._observation.get), name="observation", daemon=True)
        asking.start()
        asking.join(WAIT)
        self._observer.take(self._stage, found[0] if found else None)
        return rows
