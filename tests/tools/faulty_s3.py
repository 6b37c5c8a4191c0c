"""A door to an S3 server that refuses to write certain objects."""

from __future__ import annotations

import contextlib
import http.client
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

_DENIED = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


@contextlib.contextmanager
def faulty_s3(endpoint: str, pattern: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """(HOST:PORT, how many were refused). Writes to a path in which ``pattern`` is found get 403, all else is handed on."""
    behind, lock = urlsplit(endpoint).netloc, threading.Lock()
    count = 0

    class Door(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            nonlocal count
            body = self._body()
            wanted = urlsplit(self.path)
            writes = self.command in ("PUT", "POST") and "delete" not in wanted.query
            if writes and re.search(pattern, unquote(wanted.path)):
                with lock:
                    count += 1
                return self._send(403, {"Content-Type": "application/xml"}, _DENIED)
            connection = http.client.HTTPConnection(behind)
            with contextlib.closing(connection):
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in ("content-length", "expect")
                }
                connection.request(self.command, self.path, body, headers)
                found = connection.getresponse()
                data = found.read()
                self._send(found.status, dict(found.getheaders()), data)
            return None

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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", lambda: count
    finally:
        server.shutdown()
        server.server_close()
