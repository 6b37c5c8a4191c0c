"""Which run may write the rows of a build: of several with one ``--build-id``, the one that began last.

Its random word is ``run`` in the build's row of ``builds``. A run that finds another word there publishes nothing.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import datetime, timezone

from pyspark.sql import DataFrame, Row, SparkSession

from rocketmq_reindex.jobs.command.tables_place import quoted
from rocketmq_reindex.jobs.tables.delta import again, write
from rocketmq_reindex.jobs.tables.making import literal
from rocketmq_reindex.jobs.tables.rows import Attempt
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

_STARTED = 0


class Claim:
    """This run's claim to a build. ``shared``: the user gave the build's id, so another run may have it as well."""

    def __init__(self, spark: SparkSession, path: str, build: str, *, shared: bool) -> None:
        self._spark, self._path, self.build, self.shared = spark, path, build, shared
        self.attempt = Attempt(1, uuid.uuid4().hex, datetime.now(timezone.utc))
        self.kept = False
        """whether the row is that of a published attempt, which stays until this run publishes, too"""
        self.made = False
        """whether the row is there"""

    @property
    def application(self) -> str:
        """What Delta knows the commits of this run by."""
        return f"{self.build}/{self.attempt.run}"

    def make(self, start: Callable[[], DataFrame]) -> None:
        """Take the build over from whichever run had its id before. ``start`` makes the row ``started`` of this attempt."""
        again(lambda: self._make(start))
        self.made = True

    def _make(self, start: Callable[[], DataFrame]) -> None:
        # Once more after a conflict: the other run's row is there by then.
        found = self._row()
        if found is not None and found.run == self.attempt.run:
            return
        if found is not None:
            self.attempt = dataclasses.replace(self.attempt, number=int(found.attempt) + 1)
            self.kept = found.state == "published"
        if self.kept:
            word = literal(self.attempt.run)
            self._spark.sql(f"UPDATE {quoted(self._path)} SET run = {word} WHERE build = {literal(self.build)}").collect()
        else:
            write(start(), self._path, self.build, self.application, _STARTED, replace=self.shared, pauses=())

    def check(self) -> None:
        """Raises InputError when another run has taken the build over."""
        found = again(self._row)
        if found is not None and found.run != self.attempt.run:
            whose = f" ({escape(found.host)}, process {found.pid})" if found.host and found.state == "started" else ""
            raise InputError(f"--build-id {escape(self.build)}: a later run{whose} has this id as well: give each run its own")

    def update(self, stage: str, size: int, total: int) -> None:
        """Say in the row how far the run is. A row that is another run's by now, or over, stays as it is."""
        if self.kept:
            return
        now = datetime.now(timezone.utc).isoformat()
        self._spark.sql(
            f"UPDATE {quoted(self._path)} SET stage = {literal(stage)}, stageBytes = {size}, stageTotalBytes = {total}, "
            f"updatedAt = TIMESTAMP {literal(now)} "
            f"WHERE build = {literal(self.build)} AND run = {literal(self.attempt.run)} AND state = 'started'"
        ).collect()

    def _row(self) -> Row | None:
        """The row of the build's last attempt; None where no other run can have one."""
        if not self.shared:
            return None
        rows = self._spark.read.format("delta").load(self._path).where(f"build = {literal(self.build)}")
        found = rows.select("attempt", "state", "run", "host", "pid").collect()
        # Runs of older versions at the same time may have left two.
        return max(found, key=lambda row: int(row.attempt), default=None)
