"""Root without its right to read and write any file, so that a test of permissions means the same for every user."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Final

_VERSION: Final = 0x20080522
"""``_LINUX_CAPABILITY_VERSION_3``: three words for each 32 capabilities"""
_EFFECTIVE: Final = 0
_OVERRIDE: Final = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH"""


@contextlib.contextmanager
def bound_by_permissions() -> Iterator[None]:
    """Within it this thread, and those it starts, are bound by the permissions of files."""
    libc = ctypes.CDLL(None, use_errno=True)
    header, words = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()

    def call(name: str) -> None:
        if getattr(libc, name)(header, words):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)

    call("capget")
    before = words[_EFFECTIVE]
    words[_EFFECTIVE] = before & ~_OVERRIDE
    call("capset")
    try:
        yield
    finally:
        words[_EFFECTIVE] = before
        call("capset")
