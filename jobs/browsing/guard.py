"""Who may see the pages: the owner of the token, from this machine, by asking alone. Everybody else gets a short refusal.

A page of somebody else in the same browser can send requests to 127.0.0.1, and by DNS rebinding under a name of its own. It
knows neither token nor cookie, its name is not this host's, and it may not read or frame what it gets.

A program of this host, or another site's page, may open connections and send nothing, or little. What one who asks may take of
the server, a connection and time for the head of a request, is bounded: such connections give way to those of the owner.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

# ------------------------------------------------------------------------------------------------------------------------ guard


TARGET_MAX: Final = 8192
"""bytes of path and query: two of the longest topics and a key, percent-encoded, have room"""
METHODS: Final = ("GET", "HEAD")
POSTED: Final = ("/check", "/stop")
"""the addresses that take a form by POST, and nothing else"""
FORM_MAX: Final = 4096
"""bytes of a form"""
_FORM: Final = "application/x-www-form-urlencoded"
POLICY: Final = (
    "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; object-src 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-robots-tag": "noindex",
}
"""of every answer but uvicorn's own 400 and 503; a page that sets one of them itself keeps it"""
_HOST: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
"""Any port: ``ssh -L`` may have another one on its side."""
_GO_ON: Final = (
    '<!doctype html><html lang="en"><head><title>rmq-reindex browse</title></head><body><p><a href="/">Go on to the stores</a>'
    "</p></body></html>\n"
)


_LENGTH: Final = re.compile(r"\d{1,6}", re.ASCII)


class Guard:
    """Lets requests with the token, or with its cookie, through to ``app``, and gives each answer its headers.

    The token comes in the first address, and is taken out of it at once. The cookie has another secret, and a name with the
    port: cookies of one host are shared by all its ports.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self._app, self._token, self._session = app, token, secrets.token_urlsafe(32)
        self._cookie = f"rmq-reindex-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            # No page opens a socket; there is no lifespan.
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        answer = self._answer(scope)
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """Return what is answered in place of a page; None where the page may be seen."""
        headers = Headers(scope=scope)
        if not _HOST.fullmatch(headers.get("host", "")):
            return _refused(403, "this host is named 127.0.0.1 or localhost")
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > TARGET_MAX:
            return _refused(414, f"the address is longer than {TARGET_MAX} bytes")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        enters = bool(given) and scope["path"] == "/"
        # A link elsewhere leads in with the token alone: without it a foreign page could begin what takes long.
        origins = headers.getlist("origin")
        foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        allowed = enters and headers.get("sec-fetch-mode") == "navigate"
        if (foreign and not allowed) or any(origin != f"http://{headers['host']}" for origin in origins):
            return _refused(403, "another site's page asks")
        posted = scope["method"] == "POST" and scope["path"] in POSTED
        if scope["method"] not in METHODS and not posted:
            return _refused(405, "nothing can be changed here", {"allow": ", ".join(METHODS)})
        if posted and (refused := _refused_form(headers)):
            return refused
        if (not posted and headers.get("content-length", "0") != "0") or "transfer-encoding" in headers:
            return _refused(413, "a question has no body")
        if enters:
            return self._let_in(given, foreign)
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        by_token = kind.lower() == "bearer" and _same(bearer.strip(), self._token)
        if posted and not origins and not by_token:
            return _refused(403, "a form says which page it comes from")
        if _same(cookie, self._session) or by_token:
            return None
        return _refused(403, "open the address that rmq-reindex browse has printed: it has the token")

    def _let_in(self, given: list[str], foreign: bool) -> Response:
        if len(given) != 1 or not _same(given[0], self._token):
            return _refused(403, "the token is another one: open the address that rmq-reindex browse has printed")
        # A redirect would still be the other site's navigation, which has no cookie: this page's own one has it.
        response = Response(_GO_ON, media_type="text/html") if foreign else RedirectResponse("/", 303)
        if foreign:
            response.headers["refresh"] = "0; url=/"
        response.set_cookie(self._cookie, self._session, httponly=True, samesite="strict", path="/")
        return response


def _refused_form(headers: Headers) -> Response | None:
    """Return the answer to a POST that is no short form of a page of ours; None where it may be one."""
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return _refused(403, "another site's page asks")
    if headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        return _refused(415, f"a form is {_FORM}", {"connection": "close"})
    length = headers.getlist("content-length")
    if len(length) != 1 or not _LENGTH.fullmatch(length[0]) or int(length[0]) > FORM_MAX:
        return _refused(413, f"a form says its length, and has at most {FORM_MAX} bytes", {"connection": "close"})
    return None


def _same(given: str, secret: str) -> bool:
    return secrets.compare_digest(given.encode("utf-8", "surrogateescape"), secret.encode())


def _refused(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    """Return a refusal. It closes the connection: who is not let in holds none."""
    return PlainTextResponse(f"refused: {why}\n", status, {**(headers or {}), "connection": "close"})


def _add_headers(message: Message) -> None:
    there = {name.lower() for name, _ in message["headers"]}
    more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in there]
    message["headers"] = [*message["headers"], *more]


# ------------------------------------------------------------------------------------------------------------------ connections


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
