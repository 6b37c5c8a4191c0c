"""A door to an S3 server: tells what was asked for, and lets through what it should."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

_DENIED: Final = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class Asked(NamedTuple):
    """One request. ``kind``: its method, or LIST, COPY, REMOVE (of many); bytes of the bodies."""

    kind: str
    path: str
    sent: int
    received: int


Passes = Callable[[str, str], bool]
"""Whether a request of this kind to this path is handed on; it gets 403 otherwise."""


def all_pass(_kind: str, _path: str) -> bool:
    return True


@contextlib.contextmanager
def s3_door(endpoint: str, passes: Passes = all_pass) -> Iterator[tuple[str, list[Asked]]]:
    """(HOST:PORT, what was asked for and let through)."""
    behind, lock, seen = urlsplit(endpoint).netloc, threading.Lock(), list[Asked]()

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self._body()
            kind, path = self._kind(), unquote(urlsplit(self.path).path)
            if not passes(kind, path):
                return self._send(403, {"Content-Type": "application/xml"}, _DENIED)
            connection = http.client.HTTPConnection(behind)
            with contextlib.closing(connection):
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("content-length", "expect")
                }
                connection.request(self.command, self.path, body, headers)
                found = connection.getresponse()
                data = found.read()
                with lock:
                    seen.append(Asked(kind, path, len(body), len(data)))
                self._send(found.status, dict(found.getheaders()), data)
            return None

        def _kind(self) -> str:
            query = urlsplit(self.path).query
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

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response_only(status)
            # A HEAD tells the length of what it does not send.
            length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(data))
            for name, value in headers.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # Of five, the default, some are refused where many connect at once: they come again only after a second.
        request_queue_size = 128

    server = Server(("127.0.0.1", 0), Door)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
