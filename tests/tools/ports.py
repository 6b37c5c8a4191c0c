"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, and that no connection of another program gets meanwhile: those begin at 32768."""
    found = list[int]()
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            bound, port = stack.enter_context(socket.socket()), random.SystemRandom().randrange(12_000, 32_000)
            with contextlib.suppress(OSError):
                bound.bind(("127.0.0.1", port))
                found.append(port)
    return found
