"""Stages that ask the same engine at the same time, in threads of the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from rocketmq_reindex.jobs.engines.engine import Engine


@contextlib.contextmanager
def beside(engine: Engine, name: str) -> Iterator[ThreadPoolExecutor]:
    """Two threads for stages beside that of this thread. What they wait for ends where this thread fails or is interrupted."""
    with ThreadPoolExecutor(2, thread_name_prefix=name) as pool:
        try:
            yield pool
        except BaseException:
            engine.give_up()
            raise
