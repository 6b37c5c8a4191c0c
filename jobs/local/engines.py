"""Start the processes of the local engine before anything slow is imported, and open the engine once a run asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketmq_reindex.jobs.local.cores import cores_of
from rocketmq_reindex.jobs.local.pool import Pool

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.engines.engine import Engine


class LocalEngines:
    """Opens the engine of a run, and closes it. As a context it ends all processes that it has started.

    ``command`` is build or verify, ``master`` may say how many processes work at once (local[N]).
    """

    def __init__(self, command: str, master: str = "") -> None:
        self._command, self._cores = command, cores_of(master)
        self._pool: Pool | None = None

    def start(self) -> Pool:
        """Start the processes, unless they have been started."""
        self._pool = self._pool or Pool(self._command, self._cores)
        return self._pool

    def __enter__(self) -> LocalEngines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Engine]:
        # A second run has processes of its own.
        with self:
            pool = self.start()
            from rocketmq_reindex.jobs.local.engine import LocalEngine

            pool.wait_until_up()
            engine = LocalEngine(pool)
            try:
                yield engine
            finally:
                pool.close()
                engine.close()
