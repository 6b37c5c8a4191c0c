"""Start what runs a job's functions while Python still imports the job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketmq_reindex.storage_format.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.engines.engine import Engines
    from rocketmq_reindex.jobs.store.settings import StoreSettings


@contextlib.contextmanager
def engines_ahead(
    command: str, settings: StoreSettings, needed: bool = True, delta: bool = False, hadoop_user: str = "",
    spark: SparkSession | None = None,
) -> Iterator[Engines]:  # fmt: skip
    """Start the engine of the settings in the background; gives what opens it. ``command`` is build or verify.

    ``needed`` is False where the run may turn out to have no work for it. ``delta`` and ``hadoop_user`` are as for
    ``get_session``. ``spark``: the session to work in, instead of one that is looked for. Raises UsageError for a session of
    Spark together with another engine.
    """
    if settings.engine == "local":
        if spark is not None:
            raise UsageError("spark: engine local needs no session: leave one of the two out")
        from rocketmq_reindex.jobs.local.engine import LocalEngines

        with LocalEngines(command, settings.master) as engines:
            if needed:
                engines.start()
            yield engines
        return
    from rocketmq_reindex.jobs.spark.session import starting

    with starting(settings.master, delta, hadoop_user) if needed and spark is None else contextlib.nullcontext():
        from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
        from rocketmq_reindex.jobs.spark.engine import SparkEngines

        with daemon_ahead():
            yield SparkEngines(settings.master, delta=delta, hadoop_user=hadoop_user, spark=spark)
