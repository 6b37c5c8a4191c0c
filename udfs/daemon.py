"""Spark's Python daemon with what every task needs already imported: its workers are forks, and begin at once.

``spark.python.daemon.module`` of a local session. Else each worker imports numba and all that pyarrow wants by itself.
"""

from __future__ import annotations

import pandas  # type: ignore[import-untyped]  # noqa: F401  by pyarrow, at the first array that it makes
from pyspark.daemon import manager

import udfs.scan
import udfs.write_index
import udfs.write_queues  # noqa: F401

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
