"""Who asks slowly, too often or not at all: the owner of the token gets the pages all the same, and an end is an end."""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.browsing import facts, guard, pages
from rocketmq_reindex.jobs.browsing.options import browse_settings
from rocketmq_reindex.jobs.browsing.server import Served, serve
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

PATIENCE = 60


class Server:
    """Pages of an empty store, asked by bytes on sockets."""

    def __init__(self, store: Path) -> None:
        (store / "commitlog").mkdir(parents=True, exist_ok=True)
        self.served: Served = serve(browse_settings({"stores": [f"s={store}"], "port": 0}))
        self._token = self.served.url.partition("token=")[2]
        self._open = contextlib.ExitStack()

    def connect(self) -> socket.socket:
        return self._open.enter_context(socket.create_connection(("127.0.0.1", self.served.port), PATIENCE))

    def request(self, path: str, *headers: str, token: bool = True) -> bytes:
        lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{self.served.port}", *headers]
        lines += [f"Authorization: Bearer {self._token}"] if token else []
        return "\r\n".join([*lines, "", ""]).encode()

    def asked(self, path: str, *headers: str, token: bool = True) -> socket.socket:
        """A connection that has asked for a page."""
        connection = self.connect()
        connection.sendall(self.request(path, *headers, token=token))
        return connection

    def status(self, path: str) -> int:
        """That of a page, asked by a new connection."""
        return status(until_end(self.asked(path, "Connection: close")))

    def close(self) -> None:
        self._open.close()
        self.served.stop()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "store")
    try:
        yield server
    finally:
        server.close()


def until_end(connection: socket.socket) -> bytes:
    """All that comes until the other side closes; the test is over where it does not."""
    got = b""
    # A connection that is closed with bytes unread is reset.
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            got += part
    return got


def one_answer(connection: socket.socket) -> bytes:
    """One answer with its length in its head."""
    got = b""
    while b"\r\n\r\n" not in got:
        part = connection.recv(1 << 16)
        assert part, got
        got += part
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    return head + b"\r\n\r\n" + body


def status(answer: bytes) -> int:
    return int(answer.split()[1])


def readable(connections: Sequence[socket.socket], patience: float = PATIENCE) -> list[socket.socket]:
    """Those that have an answer or have been closed, as soon as one has."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        return [key.fileobj for key, _ in selector.select(patience) if isinstance(key.fileobj, socket.socket)]


class Held:
    """Pages of topics that are not made before ``go``."""

    def __init__(self) -> None:
        self.go, self.entered = threading.Event(), threading.Semaphore(0)

    def topics(self, *_: Any) -> dict[str, Any]:
        self.entered.release()
        assert self.go.wait(PATIENCE)
        return {"topics": [], "count": 0, "next": None, "previous": None, "warnings": [], "command": "none"}


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held()
    monkeypatch.setattr(facts, "topics", held.topics)
    yield held
    held.go.set()


@pytest.mark.parametrize(
    ("request_line", "expected"),
    [
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", 403),
        ("GET /?token=x HTTP/1.1\r\nHost: 127.0.0.1\r\n", 403),
        ("GET / HTTP/1.1\r\nHost: evil.example\r\n", 403),
        ("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n", 405),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n", 413),
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 403),
        (f"GET /?{'x' * 9000} HTTP/1.1\r\nHost: 127.0.0.1\r\n", 414),
        ("nonsense\r\n", 400),
    ],
)
def test_a_refusal_ends_the_connection(request_line: str, expected: int, server: Server) -> None:
    connection = server.connect()
    connection.sendall(request_line.encode() + b"\r\n")
    answer = until_end(connection)
    assert status(answer) == expected
    assert b"\r\nconnection: close\r\n" in answer.lower()


def test_connections_that_ask_nothing_give_way(server: Server) -> None:
    """The owner's connection stays, and new ones get in, however many others there are."""
    owner = server.asked("/")
    assert status(one_answer(owner)) == 200
    silent = [server.connect() for _ in range(guard.CONNECTIONS_MAX)]
    for connection in silent[::2]:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    assert until_end(silent[0]) == b""
    assert server.status("/topics?store=s") == 200
    owner.sendall(server.request("/"))
    assert status(one_answer(owner)) == 200
    more = [server.connect() for _ in range(3 * guard.CONNECTIONS_MAX)]
    assert until_end(silent[-1]) == b""
    assert server.status("/") == 200
    assert until_end(more[0]) == b""
    owner.sendall(server.request("/"))
    assert status(one_answer(owner)) == 200


def test_a_head_has_its_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """So has that of a later request; bytes one by one do not lengthen it."""
    kept = server.asked("/")
    assert status(one_answer(kept)) == 200
    monkeypatch.setattr(guard, "HEAD_IN", 0.05)
    kept.sendall(b"GET / HT")
    assert until_end(kept) == b""
    assert until_end(server.connect()) == b""
    slow = server.connect()
    with contextlib.suppress(ConnectionError):
        slow.sendall(b"GET / HTTP/1.1\r\nX: ")
        while not readable([slow], 0.001):
            slow.sendall(b"x")
    assert until_end(slow) == b""


def test_a_form_has_the_same_time(server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """One that comes in part starts nothing, whether its connection waits or is gone, and is no error of the server."""
    monkeypatch.setattr(guard, "HEAD_IN", 0.2)
    form = ("Content-Type: application/x-www-form-urlencoded", "Content-Length: 30")
    head = server.request("/check", *form).replace(b"GET", b"POST", 1)
    for part in (b"", b"kind=verify&store=s"):
        waiting = server.connect()
        waiting.sendall(head + part)
        assert until_end(waiting) == b""
    monkeypatch.setattr(guard, "HEAD_IN", PATIENCE)
    gone = server.connect()
    gone.sendall(head + b"kind=verify&store=s")
    gone.shutdown(socket.SHUT_WR)
    gone.close()
    slow = server.connect()
    slow.sendall(head + b"kind=none&store=")
    assert server.status("/health?store=s") == 200
    slow.sendall(b"s" * 14)
    assert status(one_answer(slow)) == 404
    server.close()
    assert capfd.readouterr() == ("", "")


def test_an_answer_may_take_longer_than_a_head(server: Server, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "HEAD_IN", 0.05)
    asked = server.asked("/topics?store=s", "Connection: close")
    assert held.entered.acquire(timeout=PATIENCE)
    # This one begins later, and is closed.
    assert until_end(server.connect()) == b""
    held.go.set()
    assert status(until_end(asked)) == 200


def test_a_connection_without_a_further_request_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "IDLE_FOR", 0)
    server = Server(tmp_path / "store")
    try:
        assert status(until_end(server.asked("/"))) == 200
    finally:
        server.close()


def test_slow_pages_of_one_kind_leave_the_others_alone(server: Server, held: Held) -> None:
    """So many wait, and one more is told to come again."""
    most = pages.AT_ONCE + pages.WAITING
    asked = [server.asked("/topics?store=s", "Connection: close") for _ in range(most)]
    for _ in range(pages.AT_ONCE):
        assert held.entered.acquire(timeout=PATIENCE)
    asked.append(server.asked("/topics?store=s", "Connection: close"))
    (refused,) = readable(asked)
    answer = until_end(refused)
    assert status(answer) == 503
    assert b"\r\nretry-after: 5\r\n" in answer
    assert b"too many requests for such a page are waiting" in answer
    for path in ("/", "/store?store=s", "/search", "/style.css"):
        assert server.status(path) == 200
    assert status(until_end(server.asked("/topics?store=s&format=json", "Connection: close"))) == 503
    assert not held.entered.acquire(blocking=False), "no more at once than that"
    held.go.set()
    assert [status(until_end(each)) for each in asked if each is not refused] == [200] * most
    assert server.status("/topics?store=s") == 200


def test_without_threads_nothing_is_made(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """More often than may wait: those that were refused hold no place."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "browse page":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(pages.AT_ONCE + pages.WAITING + 1):
            assert server.status("/topics?store=s") == 503
    assert server.status("/topics?store=s") == 200


def test_an_end_waits_for_nobody(server: Server, held: Held, capfd: pytest.CaptureFixture[str]) -> None:
    idle, half, kept = server.connect(), server.connect(), server.asked("/")
    assert status(one_answer(kept)) == 200
    half.sendall(b"GET / HTTP/1.1\r\n")
    running = server.asked("/topics?store=s")
    assert held.entered.acquire(timeout=PATIENCE)
    server.served.stop()
    for connection in (idle, half, kept):
        assert until_end(connection) == b""
    assert status(until_end(running)) == 500
    server.served.wait()
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert capfd.readouterr() == ("", "")


def test_a_signal_leaves_the_pages_there(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    """Until they are stopped, and then their end is waited for."""

    def ring(*_: Any) -> None:
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(InterruptedError):
                server.served.wait()
            assert server.status("/") == 200
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    server.close()
    server.served.wait()
    assert capfd.readouterr() == ("", "")


def test_a_process_ends_while_a_page_is_made(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    script = (
        "import sys, socket, threading, rocketmq_reindex as rr\n"
        "from rocketmq_reindex.jobs.browsing import facts\n"
        "entered = threading.Event()\n"
        "facts.topics = lambda *_: (entered.set(), threading.Event().wait())\n"
        "with rr.browse('s=' + sys.argv[1], port=0) as pages:\n"
        "    token, asked = pages.url.partition('token=')[2], socket.create_connection(('127.0.0.1', pages.port))\n"
        "    asked.sendall(f'GET /topics?store=s HTTP/1.1\\r\\nHost: localhost\\r\\n'\n"
        "                  f'Authorization: Bearer {token}\\r\\n\\r\\n'.encode())\n"
        "    entered.wait()\n"
        "print('ended')"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "store")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_who_does_not_read_a_body_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in memory until it is taken. Who reads gets it all."""
    body = b"x" * (24 << 20)
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 25) as writer:
        writer.append(Message("T", 0, body=body))
    server = Server(tmp_path / "store")
    try:
        path = "/body?store=s&physical=0"
        assert len(until_end(server.asked(path, "Connection: close"))) > len(body)
        monkeypatch.setattr(guard, "READ_IN", 0.2)
        idle = server.asked(path, "Connection: close")
        assert idle.recv(1, socket.MSG_PEEK)
        until = time.monotonic() + PATIENCE
        # What the kernel still has to send is not the server's.
        while server.served.open_connections:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(until_end(idle)) < len(body)
    finally:
        server.close()
