"""Both engines, for tests whose result must be the same by each."""

from __future__ import annotations

from typing import Final

from rocketmq_reindex.jobs.engines.engine import Engines
from rocketmq_reindex.jobs.engines.local import LocalEngines
from rocketmq_reindex.jobs.spark.engine import SparkEngines

ENGINES: Final = ("spark", "local")


def engines_of(name: str, command: str = "build") -> Engines:
    """What opens the engine for one run of ``command``: Spark's on the session that is there, or two processes."""
    return SparkEngines("") if name == "spark" else LocalEngines(command, "local[2]")
