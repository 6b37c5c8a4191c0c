"""Choose the engine of a run, and start it while Python still imports what the run needs.

Nothing slow is imported here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rocketmq_reindex.jobs.spark import java
from rocketmq_reindex.storage_format.errors import ReindexError, UsageError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.building.inputs import Inputs
    from rocketmq_reindex.jobs.building.options import BuildSettings
    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.engines.local import LocalEngines
    from rocketmq_reindex.jobs.store.settings import StoreSettings

S = TypeVar("S", bound="StoreSettings")
_LOCAL_MASTER: Final = re.compile(
    r"local(\[\s*([1-9][0-9]*|\*)\s*(,\s*[0-9]+\s*)?\])?|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
)
"""``SparkMasterRegex``"""
_NO_USE: Final = "spark: engine local has no use for a session: leave one of the two out"


def with_engine(settings: S, spark: SparkSession | None) -> tuple[S, str]:
    """Return the settings of a run with the engine that it has, and a line that says so if nobody asked for it.

    Without --engine that is Spark; processes of this machine where it is not installed or has no Java, unless the run has a
    use for Spark alone: a session, a cluster or Delta tables. Raises InputError where --engine spark has none.
    """
    if settings.engine == "local" or spark is not None:
        return settings, ""
    tables = getattr(settings, "tables", "")
    if "engine" in settings.named or tables or (settings.master and not settings.master.startswith("local")):
        java.check_spark()
        return settings, ""
    if not (lacking := java.what_is_lacking()):
        return settings, ""
    return dataclasses.replace(settings, engine="local"), f"engine local: {lacking}"


def is_on_spark(engine: str, master: str, spark: SparkSession | None) -> bool:
    """Return whether an export works on Spark: only where that is asked for, by engine, master, session or spark-submit.

    Raises InputError where it has no Spark, and UsageError for a session beside the local engine.
    """
    if spark is not None:
        if engine == "local":
            raise UsageError(_NO_USE)
        return True
    if engine == "local" or not (engine or master or "PYSPARK_GATEWAY_PORT" in os.environ):
        return False
    java.check_spark()
    return True


def needs_engine(settings: BuildSettings, inputs: Inputs) -> bool:
    """Return whether a build needs its engine for certain. An incremental run looks more closely once it holds DIR's lock."""
    if settings.dry_run:
        return False
    if not settings.incremental:
        return True
    from rocketmq_reindex.jobs.building import last_build, scanning
    from rocketmq_reindex.jobs.publishing import output

    try:
        standing = output.standing(inputs.target)
        if output.lacks_manifest(inputs.target):
            # It may be put back, and then nothing may be new.
            return False
        return standing is None or last_build.is_new(scanning.store_of(settings, inputs.target), standing.digest, inputs.log)
    except (ReindexError, OSError):
        # The run itself meets the same error, and reports it.
        return False


class Needs(NamedTuple):
    """What a run needs of Spark: whether it is sure to need an engine, Delta, and who writes in an HDFS."""

    engine: bool = True
    delta: bool = False
    hadoop_user: str = ""


@contextlib.contextmanager
def local_ahead(
    command: str, settings: StoreSettings, spark: SparkSession | None, needed: bool
) -> Iterator[LocalEngines | None]:
    """Start the local engine's processes, if the settings name it and the run has work for it; yield what opens the engine.

    It costs little, so it comes first of all. Raises UsageError for a session of Spark beside it.
    """
    if settings.engine != "local":
        yield None
        return
    if spark is not None:
        raise UsageError(_NO_USE)
    from rocketmq_reindex.jobs.engines.local import LocalEngines

    with LocalEngines(command, settings.master) as engines:
        if needed:
            engines.start()
        yield engines


@contextlib.contextmanager
def engines_ahead(local: LocalEngines | None, master: str, needs: Needs, spark: SparkSession | None) -> Iterator[Engines]:
    """Yield how the run opens its engine: ``local``, or Spark, whose session starts in the background if it is needed.

    ``spark``: the session to work in, instead of one that is looked for. Raises UsageError for a local master of another form
    than Spark's, before a JVM tells of it in its own way.
    """
    if local is not None:
        yield local
        return
    if spark is None and master.startswith("local") and not _LOCAL_MASTER.fullmatch(master):
        raise UsageError(f"--master {escape(master)}: take local, local[N] or local[*] for this machine, or name a cluster")
    from rocketmq_reindex.jobs.spark.session import starting

    is_sure, delta, user = needs
    with starting(master, delta, user) if is_sure and spark is None else contextlib.nullcontext():
        from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
        from rocketmq_reindex.jobs.spark.engine import SparkEngines

        with daemon_ahead():
            yield SparkEngines(master, delta=delta, hadoop_user=user, spark=spark)
