"""Turns at pages: those of one kind that take long leave the others as fast as they are. No server is needed for them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from rocketmq_reindex.storage_format.errors import ReindexError

AT_ONCE: Final = 2
"""pages of one kind that are made at the same time: each may hold some MiB"""
WAITING: Final = 6
"""requests for a kind of page that wait for their turn"""
RETRY_AFTER: Final = 5
"""seconds"""

Answer = Callable[[Request], Response]


class BusyError(ReindexError):
    """Too many requests for one kind of page wait already."""


class Turns:
    """Makes the answers of one kind in threads, a few at a time. Those of another kind have threads of their own.

    The threads are daemons: a page that takes long does not keep the process from its end.
    """

    def __init__(self, make: Answer, busy: Answer, at_once: int) -> None:
        self._make, self._busy, self._most = make, busy, at_once + WAITING
        self._free = threading.BoundedSemaphore(at_once)
        self._count, self._counting = 0, threading.Lock()

    async def answer(self, request: Request) -> Response:
        """Return what ``make`` answers; what ``busy`` does where too many wait."""
        with self._counting:
            if self._count >= self._most:
                return self._busy(request)
            self._count += 1
        made = futures.Future[Response]()

        def work() -> None:
            try:
                with self._free:
                    response = self._make(request) if made.set_running_or_notify_cancel() else None
            except BaseException as error:  # noqa: BLE001  raised where the answer is waited for
                self._leave()
                made.set_exception(error)
            else:
                self._leave()
                if response is not None:
                    made.set_result(response)

        try:
            threading.Thread(target=work, name="browse page", daemon=True).start()
        except RuntimeError:
            # The system gives no more threads.
            self._leave()
            return self._busy(request)
        return await asyncio.wrap_future(made)

    def _leave(self) -> None:
        with self._counting:
            self._count -= 1


def in_turn(make: Answer, busy: Answer, at_once: int = AT_ONCE) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for one kind of page: by ``make``, ``at_once`` at a time, or by ``busy``."""
    return Turns(make, busy, at_once).answer
