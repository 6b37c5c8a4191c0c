"""Doors to an S3 server: one refuses to write certain objects, another fails at random."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

from tests.tools.s3_door import CUT, LOST, Refuses, Sought, s3_door

_WRITES = ("PUT", "POST", "COPY")


@contextlib.contextmanager
def faulty_s3(endpoint: str, pattern: str) -> Iterator[tuple[str, Callable[[], int]]]:
    """(HOST:PORT, how many were refused). Writes to a path in which ``pattern`` is found get 403, all else is handed on."""
    refused = list[str]()

    def refuses(sought: Sought) -> int:
        if sought.kind not in _WRITES or not re.search(pattern, sought.path):
            return 0
        refused.append(sought.path)
        return 403

    with s3_door(endpoint, refuses) as (door, _):
        yield door, lambda: len(refused)


@contextlib.contextmanager
def deadly_s3(endpoint: str, pattern: str, number: int, kill: Callable[[], None]) -> Iterator[str]:
    """HOST:PORT. ``kill`` is called instead of the ``number``-th write to a path in which ``pattern`` is found."""
    count = itertools.count(1)

    def refuses(sought: Sought) -> int:
        if sought.kind in _WRITES and re.search(pattern, sought.path) and next(count) == number:
            kill()
        return 0

    with s3_door(endpoint, refuses) as (door, _):
        yield door


SLOW = "slow"
_FAULTS = (500, 503, CUT, LOST, SLOW)
_SLOW_SECONDS = 0.1


def at_random(rng: random.Random, share: float) -> tuple[Refuses, Counter[int | str]]:
    """What fails so large a ``share`` of all requests, each in one of _FAULTS' ways; and how often each came."""
    lock, counts = threading.Lock(), Counter[int | str]()

    def refuses(_: Sought) -> int:
        with lock:
            fault = rng.choice(_FAULTS) if rng.random() < share else 0
            counts[fault] += 1
        if fault != SLOW:
            return int(fault)
        time.sleep(_SLOW_SECONDS)
        return 0

    return refuses, counts
