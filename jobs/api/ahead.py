"""Start what runs a job's functions while Python still imports the job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.engines.engine import Engines


@contextlib.contextmanager
def engines_ahead(
    master: str, needed: bool = True, delta: bool = False, hadoop_user: str = "", spark: SparkSession | None = None
) -> Iterator[Engines]:
    """Start a session of Spark in the background; gives what opens the engine of the run.

    ``needed`` is False where the run may turn out to have no work for it. ``delta`` and ``hadoop_user`` are as for
    ``get_session``. ``spark``: the session to work in, instead of one that is looked for.
    """
    from rocketmq_reindex.jobs.spark.session import starting

    with starting(master, delta, hadoop_user) if needed and spark is None else contextlib.nullcontext():
        from rocketmq_reindex.jobs.spark.daemon import daemon_ahead
        from rocketmq_reindex.jobs.spark.engine import SparkEngines

        with daemon_ahead():
            yield SparkEngines(master, delta=delta, hadoop_user=hadoop_user, spark=spark)
