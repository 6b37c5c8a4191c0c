"""What one who asks may take of the server: a connection, and time for the head of a request.

A program of this host, or another site's page, may open connections and send nothing, or little: they give way to those of the
owner.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTIONS_MAX: Final = 64
HEAD_MAX: Final = 32 << 10
"""bytes of a request's first line and headers"""
HEAD_IN: Final = 10.0
"""seconds from a connection, or from the first byte of its next request, to the end of the request: its head, and its form"""
READ_IN: Final = 20.0
READ_MIN: Final = 64 << 10
"""bytes that are taken of an answer in so many seconds, or all that is left of it"""
IDLE_FOR: Final = 5
"""seconds that a connection may be without a request behind an answer"""


class BoundedConnection(H11Protocol):
    """A connection of uvicorn that is closed where its request does not come, and that a later one may replace.

    uvicorn itself waits without end for a first request, and answers 503 while there are too many connections.
    """

    since: float = 0.0
    """the loop's time of its begin, or of its last answer"""
    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no answer is being made: no request, or no whole one, has come.

        Only who is let in has a connection behind an answer: a refusal closes it.
        """
        return bool(getattr(self.cycle, "response_complete", True) or self.cycle.more_body)

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
        self._forget_answer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for who reads the answer: a body has MiB, and is in memory as long."""
        super().pause_writing()
        self._forget_answer()
        self._expect_reader()

    def resume_writing(self) -> None:
        """Go on: the answer is taken."""
        self._forget_answer()
        super().resume_writing()

    def _expect_reader(self) -> None:
        left = self.transport.get_write_buffer_size()

        def look() -> None:
            if self.transport.get_write_buffer_size() > max(0, left - READ_MIN):
                self.transport.abort()
            else:
                self._expect_reader()

        self._write_timer = self.loop.call_later(READ_IN, look)

    def _forget_answer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

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
