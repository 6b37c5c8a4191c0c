"""A folder held by a handle: who may write around it can put a link in its place, and what is done here still happens in it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape

_HANDLES: Final = "/proc/self/fd"
_OF_HANDLE: Final = re.compile(rf"{_HANDLES}/([0-9]+)(.*)", re.DOTALL)


class Pinned:
    """The folder at ``name``, whose last part is no link. ``path`` leads to it whatever becomes of the name.

    Raises InputError for a link and for what is no folder, OSError where it cannot be opened. Without /proc ``path`` is the
    name.
    """

    def __init__(self, name: str, at: str = "") -> None:
        self.name = name
        try:
            self._handle = os.open(at or name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise InputError(f"{escape(name)}: is a link, or no folder: fetch writes through no link: remove it") from None
        self.path = f"{_HANDLES}/{self._handle}" if os.path.isdir(_HANDLES) else at or name

    @contextlib.contextmanager
    def inner(self, name: str) -> Iterator[Pinned]:
        """The folder ``name`` in this one, while a block runs; this one for "". Raises as ``Pinned``."""
        if not name:
            yield self
            return
        found = Pinned(os.path.join(self.name, name), os.path.join(self.path, name))
        try:
            yield found
        finally:
            found.close()

    def status(self) -> os.stat_result:
        """Owner, mode and inode of the folder."""
        return os.fstat(self._handle)

    def is_mine(self) -> bool:
        """Whether this user made it, and nobody else may write to it."""
        found = self.status()
        return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

    def close(self) -> None:
        """Let go of the handle. ``path`` leads nowhere then."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Have the errors of a block name files as they are named outside of this process. The handles are still open."""
    try:
        yield
    except OSError as error:
        if isinstance(error.filename, str) and (found := _OF_HANDLE.fullmatch(error.filename)):
            with contextlib.suppress(OSError):
                error.filename = os.readlink(f"{_HANDLES}/{found[1]}") + found[2]
        raise
