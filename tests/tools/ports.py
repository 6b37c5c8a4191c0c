"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from typing import Final

_TAKEN: Final[list[socket.socket]] = []
"""a lock for each port that this process was given: no test in another process gets it before this one ends"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no connection of another program gets meanwhile: those begin at 32768."""
    found = list[int]()
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            bound, port = stack.enter_context(socket.socket()), random.SystemRandom().randrange(12_000, 32_000)
            lock = socket.socket(socket.AF_UNIX)
            try:
                if sys.platform == "linux":
                    # A name of the kernel's own, which goes with the socket.
                    lock.bind(f"\0rmq-reindex test port {port}")
                bound.bind(("127.0.0.1", port))
            except OSError:
                lock.close()
                continue
            _TAKEN.append(lock)
            found.append(port)
    return found
