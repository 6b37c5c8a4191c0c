"""Start what runs a job's functions while Python still imports the job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketmq_reindex.storage_format.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.local.engines import LocalEngines
    from rocketmq_reindex.jobs.store.settings import StoreSettings


@contextlib.contextmanager
def local_ahead(
    command: str, settings: StoreSettings, spark: SparkSession | None, needed: bool = True
) -> Iterator[LocalEngines | None]:
    """Start the processes of the local engine, if the settings name it; gives what opens it.

    It costs little, so it comes first of all. ``command`` is build or verify. ``needed``: whether the run has work for it.
    Raises UsageError for a session of Spark beside it.
    """
    if settings.engine != "local":
        yield None
        return
    if spark is not None:
        raise UsageError("spark: engine local has no use for a session: leave one of the two out")
    from rocketmq_reindex.jobs.local.engines import LocalEngines

    with LocalEngines(command, settings.master) as engines:
        if needed:
            engines.start()
        yield engines


@contextlib.contextmanager
def engines_ahead(
    local: LocalEngines | None, master: str, needed: bool = True, delta: bool = False, hadoop_user: str = "",
    spark: SparkSession | None = None,
) -> Iterator[Engines]:  # fmt: skip
    """Give what opens the engine of the run: ``local``, or Spark, whose session starts in the background.

    ``needed`` is False where the run may turn out to have no work for it. ``delta`` and ``hadoop_user`` are as for
    ``get_session``. ``spark``: the session to work in, instead of one that is looked for.
    """
    if local is not None:
        yield local
        return
    from rocketmq_reindex.jobs.spark.session import starting

    with starting(master, delta, hadoop_user) if needed and spark is None else contextlib.nullcontext():
        from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
        from rocketmq_reindex.jobs.spark.engine import SparkEngines

        with daemon_ahead():
            yield SparkEngines(master, delta=delta, hadoop_user=hadoop_user, spark=spark)
