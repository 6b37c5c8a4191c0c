"""Say that a run begins by compiling its record loops, which nothing else shows: once for each version and machine."""

from __future__ import annotations

import os
import sys
from typing import Final

from rocketmq_reindex.storage_format.kernels import cache_folder

SCAN: Final = "loop.walk"
"""the largest loop of a scan: build, verify, repair, query --scan, inspect"""
START: Final = "broker_record.broker_record"
"""the loop that reads a record as a broker does that starts: preflight"""
INDEX: Final = "index._check_items"
"""the largest loop of the check of an IndexFile: inspect"""


def line(loop: str) -> str:
    """Return the line that says that ``loop`` is compiled first; "" where it is there, or is not compiled at all.

    Raises InputError where others may write to the folder that the environment names.
    """
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0") or cache_folder.holds(loop):
        return ""
    return "compiling the record loops, once (some 25 s)"


def runs_here(engine: str, master: str) -> bool:
    """Whether all tasks run on this machine, as far as is known before Spark is there."""
    if engine == "local":
        return True
    # Somebody else's session may be there, and its executors are elsewhere.
    return "pyspark" not in sys.modules and "PYSPARK_GATEWAY_PORT" not in os.environ and (master or "local").startswith("local")
