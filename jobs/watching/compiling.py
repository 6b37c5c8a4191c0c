"""Compiled record loops of a run: say when they are compiled first, and use a temporary folder where no other can keep them."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex.storage_format.kernels import cache_folder

# -------------------------------------------------------------------------------------------------------------------- compiling
# Say that a run begins by compiling its record loops, which nothing else shows: once for each version and machine.

SCAN: Final = "loop.walk"
"""the largest loop of a scan: build, verify, repair, query --scan, inspect"""
START: Final = "record_loop.broker_record"
"""the loop that reads a record as a broker does that starts: preflight"""
INDEX: Final = "index._check_items"
"""the largest loop of the check of an IndexFile: inspect"""


def line(loop: str) -> str:
    """Return the line that says that ``loop`` is compiled first; "" where it is there, or is not compiled at all.

    Raises InputError where others may write to the folder that the environment names.
    """
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    if plain or cache_folder.holds(loop) or cache_folder.is_carried(loop):
        return ""
    return "compiling the record loops, once (some 25 s)"


def runs_here(engine: str, master: str) -> bool:
    """Return whether all tasks run on this machine, as far as is known before Spark is there."""
    if engine == "local":
        return True
    # Somebody else's session may be there, and its executors are elsewhere.
    return "pyspark" not in sys.modules and "PYSPARK_GATEWAY_PORT" not in os.environ and (master or "local").startswith("local")


# ---------------------------------------------------------------------------------------------------------------------- kernels
# Compiled record loops for a run that has no folder to keep them in: compiled once, in a folder of its own.

NOTE: Final = (
    "no folder keeps the compiled record loops: they were compiled for this run alone: "
    f"name a folder of your own in {cache_folder.VARIABLE}"
)


@contextlib.contextmanager
def kept() -> Iterator[bool]:
    """Have a folder for compiled loops, for the driver and the workers of a local session, while this context is open.

    Yield whether they are compiled for this run alone: there is no other folder, and they do not come with the package.

    Raises InputError where others may write to the folder that the environment names.
    """
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    # Once the module ``jit`` is imported it has chosen its folder.
    if plain or "rocketmq_reindex.storage_format.kernels.jit" in sys.modules or cache_folder.find():
        yield False
        return
    before = os.environ.get(cache_folder.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-compiled-", ignore_cleanup_errors=True) as folder:
        os.environ[cache_folder.VARIABLE] = folder
        try:
            yield not cache_folder.is_carried(SCAN)
        finally:
            os.environ.pop(cache_folder.VARIABLE)
            if before is not None:
                os.environ[cache_folder.VARIABLE] = before
