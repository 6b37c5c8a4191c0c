"""Compiled record loops for a run that has no folder to keep them in: compiled once, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex.storage_format.kernels import cache_folder

NOTE: Final = (
    "no folder keeps the compiled record loops: they were compiled for this run alone: "
    f"name a folder of your own in {cache_folder.VARIABLE}"
)


@contextlib.contextmanager
def kept() -> Iterator[bool]:
    """A folder for the driver and the workers of a local session, while this lasts; whether one had to be made for the run.

    Raises InputError where others may write to the folder that the environment names.
    """
    plain = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    # What is imported has looked for its folder.
    if plain or "rocketmq_reindex.storage_format.kernels.jit" in sys.modules or cache_folder.find():
        yield False
        return
    before = os.environ.get(cache_folder.VARIABLE)
    with tempfile.TemporaryDirectory(prefix="rmq-reindex-compiled-", ignore_cleanup_errors=True) as folder:
        os.environ[cache_folder.VARIABLE] = folder
        try:
            yield True
        finally:
            os.environ.pop(cache_folder.VARIABLE)
            if before is not None:
                os.environ[cache_folder.VARIABLE] = before
