"""A door to an S3 server: tells what was asked for, and lets through what it should."""

from __future__ import annotations

import contextlib
import html
import http.client
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

_ERROR: Final = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"
_KEY_ERROR: Final = "<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
_ERRORS: Final = {
    403: ("AccessDenied", "Access Denied"),
    500: ("InternalError", "We encountered an internal error. Please try again."),
    501: ("NotImplemented", "A header you provided implies functionality that is not implemented."),
    503: ("SlowDown", "Please reduce your request rate."),
}
_XML: Final = {"Content-Type": "application/xml"}
EACH_KEY: Final = -1
"""Of a request to remove many objects: the answer is 200, with an error for each of them."""
CUT: Final = -2
"""The request is done, and its answer ends in the middle: of the body, where it has one."""
LOST: Final = -3
"""The request is done, and nothing of its answer arrives."""


class Sought(NamedTuple):
    """One request. ``kind``: its method, or LIST, COPY, REMOVE (of many); names of headers in small letters.

    ``keys``: what a REMOVE would remove.
    """

    kind: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    keys: tuple[str, ...]


class Asked(NamedTuple):
    """One request that was let through; bytes of the bodies."""

    kind: str
    path: str
    sent: int
    received: int


Refuses = Callable[[Sought], int]
"""The status with which a request is refused, or EACH_KEY, CUT or LOST; 0: it is handed on."""


def all_pass(_: Sought) -> int:
    return 0


@contextlib.contextmanager
def s3_door(endpoint: str, refuses: Refuses = all_pass) -> Iterator[tuple[str, list[Asked]]]:
    """(HOST:PORT, what was asked for and let through)."""
    behind, lock, seen = urlsplit(endpoint).netloc, threading.Lock(), list[Asked]()

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # A body waits for the client to acknowledge the head otherwise: 40 ms for each request.
        disable_nagle_algorithm = True

        def _answer(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body, found = self._body(), urlsplit(self.path)
            query = dict(parse_qsl(found.query, keep_blank_values=True))
            kind = self._kind(query)
            keys = re.findall("<Key>(.*?)</Key>", body.decode()) if kind == "REMOVE" else []
            sought = Sought(kind, unquote(found.path), query, headers, tuple(map(html.unescape, keys)))
            status = refuses(sought)
            if status == EACH_KEY:
                errors = [_KEY_ERROR.format(key=key) for key in keys]
                return self._send(200, _XML, f"<?xml version='1.0'?><DeleteResult>{''.join(errors)}</DeleteResult>".encode())
            if status > 0:
                code, text = _ERRORS[status]
                return self._send(status, _XML, _ERROR.format(code=code, text=text).encode())
            connection = http.client.HTTPConnection(behind)
            with contextlib.closing(connection):
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("content-length", "expect")
                }
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                data = answer.read()
                with lock:
                    seen.append(Asked(sought.kind, sought.path, len(body), len(data)))
                self.close_connection = status in (CUT, LOST)
                if status != LOST:
                    self._send(answer.status, dict(answer.getheaders()), data, cut=status == CUT)
            return None

        def _kind(self, query: dict[str, str]) -> str:
            if self.headers.get("x-amz-copy-source"):
                return "COPY"
            return "LIST" if "list-type" in query else "REMOVE" if "delete" in query else self.command

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            del self.headers["Transfer-Encoding"]
            body = b""
            while length := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(length)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
            return body

        def _send(self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            # A HEAD tells the length of what it does not send.
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            if cut and not data:
                self.flush_headers()
                return
            self.end_headers()
            # A HEAD has no body, of an error neither.
            self.wfile.write(b"" if self.command == "HEAD" else data[: len(data) // 2] if cut else data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # Of five, the default, some are refused where many connect at once: they come again only after a second.
        request_queue_size = 128

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A client that has its answer may go away; what it reads on stderr is the run's own.
            if not isinstance(sys.exc_info()[1], ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def through(place: str, endpoint: str) -> str:
    """The URI ``place`` by way of the server at ``endpoint``."""
    return place.partition("?")[0] + f"?endpoint_override={endpoint}&scheme=http&region=us-east-1"
