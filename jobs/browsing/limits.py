"""What one who asks may take of the server: a connection, time for the head of a request, and turns at pages.

A program of this host, or another site's page, may open connections and send nothing, or little: they give way to those of the
owner. And pages of one kind that take long leave the others as fast as they are.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from uvicorn.protocols.http.h11_impl import H11Protocol

from rocketmq_reindex.storage_format.errors import ReindexError

CONNECTIONS_MAX: Final = 64
HEAD_MAX: Final = 32 << 10
"""bytes of a request's first line and headers"""
HEAD_IN: Final = 10.0
"""seconds from a connection, or from the first byte of its next request, to the end of the request's head"""
IDLE_FOR: Final = 5
"""seconds that a connection may be without a request behind an answer"""
AT_ONCE: Final = 2
"""pages of one kind that are made at the same time: each may hold some MiB"""
WAITING: Final = 6
"""requests for a kind of page that wait for their turn"""
RETRY_AFTER: Final = 5
"""seconds"""

# ------------------------------------------------------------------------------------------------------------------ connections


class BoundedConnection(H11Protocol):
    """A connection of uvicorn that is closed where its request does not come, and that a later one may replace.

    uvicorn itself waits without end for a first request, and answers 503 while there are too many connections.
    """

    since: float = 0.0
    """the loop's time of its begin, or of its last answer"""
    _head_timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no answer is being made. Only who is let in has a connection behind an answer: a refusal closes it."""
        return bool(getattr(self.cycle, "response_complete", True))

    def connection_made(self, transport: Any) -> None:
        """Take a connection; at the limit in the place of the one that has waited longest."""
        super().connection_made(transport)
        self.since = self.loop.time()
        self._make_room()
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first ones of a request begin its time."""
        if self.waits and self._head_timer is None:
            self._expect_head()
        super().data_received(data)
        if not self.waits:
            self._forget_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._forget_head()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self.since = self.loop.time()
        super().on_response_complete()

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_IN, self._close_waiting)

    def _forget_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _close_waiting(self) -> None:
        self._head_timer = None
        if self.waits:
            self.transport.abort()

    def _make_room(self) -> None:
        """Close the connection that has waited longest, where there are too many; first those that have asked nothing."""
        waiting = [each for each in self.connections if isinstance(each, BoundedConnection) and each.waits and each is not self]
        if len(self.connections) > CONNECTIONS_MAX and waiting:
            oldest = min(waiting, key=lambda each: (each.cycle is not None, each.since))
            self.connections.discard(oldest)
            oldest.transport.abort()


# ------------------------------------------------------------------------------------------------------------------------ turns


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

        threading.Thread(target=work, name="browse page", daemon=True).start()
        return await asyncio.wrap_future(made)

    def _leave(self) -> None:
        with self._counting:
            self._count -= 1


def in_turn(make: Answer, busy: Answer, at_once: int = AT_ONCE) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for one kind of page: by ``make``, ``at_once`` at a time, or by ``busy``."""
    return Turns(make, busy, at_once).answer
