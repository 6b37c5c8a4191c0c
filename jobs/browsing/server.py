"""Serve the pages of stores on 127.0.0.1, by threads of this process: no other interface can be asked for."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib
import logging
import secrets
import socket
import threading
from typing import Final

from rocketmq_reindex.jobs.browsing.options import BrowseSettings
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import reason

HOST: Final = "127.0.0.1"
_MISSING: Final = "pages are served with starlette, jinja2 and uvicorn"
_INSTALL: Final = "pip install 'rocketmq-reindex[browse]'"
_LOOKED_EACH: Final = 20.0
"""seconds"""
_ENDED_IN: Final = 3.0
_HEAP_OPTIONS: Final = (-8, 1), (-3, 512 << 10), (-1, 1 << 20)
"""of glibc's mallopt: M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD"""
_BACKLOG: Final = 64
"""connections that wait to be taken"""


class Served:
    """Pages that are served. ``url`` has the token."""

    def __init__(self, settings: BrowseSettings, listening: socket.socket, alone: bool) -> None:
        import uvicorn

        from rocketmq_reindex.jobs.browsing import guard
        from rocketmq_reindex.jobs.browsing.guard import Guard
        from rocketmq_reindex.jobs.browsing.pages import application

        token, pages = secrets.token_urlsafe(32), application(settings)
        self._checks, self._ahead = pages.state.checks, pages.state.ahead
        self._ahead.is_wanted, self._ahead.is_alone = True, alone
        self.port = int(listening.getsockname()[1])
        self.url = f"http://{HOST}:{self.port}/?token={token}"
        config = uvicorn.Config(
            Guard(pages, token, self.port), log_config=None, log_level="error", access_log=False, ws="none",
            http=guard.BoundedConnection, loop="asyncio", lifespan="off", proxy_headers=False, server_header=False,
            limit_concurrency=guard.CONNECTIONS_MAX + 1, h11_max_incomplete_event_size=guard.HEAD_MAX,
            timeout_keep_alive=guard.IDLE_FOR, timeout_graceful_shutdown=1,
        )  # fmt: skip
        self._server, self._listening = uvicorn.Server(config), listening
        # A signal's exception during Thread.join would make the thread count as ended (Python before 3.13).
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="browse", daemon=True)

    def start(self) -> None:
        """Begin. A connection waits in the socket's queue until the first one is taken."""
        self._thread.start()

    def _run(self) -> None:
        # Not in the first thread: there uvicorn would put up handlers of its own for signals.
        try:
            self._server.run([self._listening])
        finally:
            self._ended.set()

    @property
    def open_connections(self) -> int:
        """How many there are."""
        return len(self._server.server_state.connections)

    def wait(self) -> None:
        """Return once the pages are no longer there. A signal's exception comes through."""
        while not self._ended.wait(_LOOKED_EACH):
            pass

    def stop(self) -> None:
        """End the pages, and a check that one of them has started: who still reads one has a second."""
        # A page that is cut short is no error to report.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
        self._server.should_exit = True
        self._ended.wait(_ENDED_IN)
        self._listening.close()
        self._checks.close()
        self._ahead.close()


def _spare_memory() -> None:
    """Have glibc give back what is no longer needed: each page has a thread of its own, and each thread would have a heap."""
    with contextlib.suppress(OSError, AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for number, value in _HEAP_OPTIONS:
            set_option(number, value)


def serve(settings: BrowseSettings, alone: bool = False) -> Served:
    """Begin to serve, and return what does. ``alone``: this process does nothing beside.

    Raises InputError where a store is none, where the port is taken, and where the extra is not installed.
    """
    check_installed("starlette", "jinja2", "uvicorn")
    for store in settings.stores:
        with failures_as_errors("STORE"), Search(store.path, store.roots, Notes.silent()):
            pass
    listening = _listen(settings.port)
    if alone:
        _spare_memory()
    try:
        served = Served(settings, listening, alone)
    except BaseException:
        listening.close()
        raise
    served.start()
    return served


def check_installed(*packages: str) -> None:
    """Raise InputError where one of these packages cannot be imported."""
    try:
        for package in packages:
            importlib.import_module(package)
    except ImportError as error:
        raise InputError(f"{_MISSING}, and {error.name} is not installed: {_INSTALL}") from None


def _listen(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A port whose last connections are still being closed may be taken.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"--port {port}: is taken on {HOST}: name another, or 0 for a free one") from None
        raise InputError(f"--port {port}: {reason(error)}: name another, or 0 for a free one") from None
    return listening
