"""Send a file to a store behind a URI so that nobody ever sees half of it.

A stream of pyarrow publishes what it has when it is closed or garbage-collected, even after a failure. So a file is either sent
under another name and renamed (HDFS), or held here and sent in one call (buckets). What is held can be sent again as a whole
where a part of it could not be sent.
"""

from __future__ import annotations

import contextlib
import mmap
import tempfile
import uuid
from typing import IO, Any, Final, Protocol

from rocketmq_reindex.udfs.files.folders import replace
from rocketmq_reindex.udfs.files.object_store import ObjectStore
from rocketmq_reindex.udfs.files.systems import System, naming

HELD_BYTES: Final = 32 << 20
"""A file with more bytes is held on the local disk."""
_FLUSH_BYTES: Final = 64 << 20
"""The stream may send in the background: to wait for it after so many bytes bounds its memory."""
_ZEROS: Final = bytes(1 << 20)


class Sending(Protocol):
    """One file on its way; all raise OSError but ``abandon``, which raises nothing."""

    def write(self, view: memoryview) -> None:
        """Append bytes."""

    def zeros(self, count: int) -> None:
        """Append ``count`` zeros."""

    def finish(self) -> None:
        """Publish the file."""

    def abandon(self) -> None:
        """Leave nothing."""


def open_sending(system: System, temporary_folder: str, target: str) -> Sending:
    """Begin to send a file to ``target``, a path of ``system``."""
    if system.flat:
        return Held(system, target)
    return Streamed(system, f"{temporary_folder.rstrip('/')}/{uuid.uuid4().hex}", target)


class Streamed:
    """Sends at once, under ``name``, and renames the file to ``target`` at the end."""

    def __init__(self, system: System, name: str, target: str) -> None:
        self._system, self._name, self._target = system, name, target
        assert not isinstance(system.fs, ObjectStore)
        self._stream = system.fs.open_output_stream(name)
        self._since = 0

    def write(self, view: memoryview) -> None:
        self._stream.write(view)
        self._since += len(view)
        if self._since >= _FLUSH_BYTES:
            self._stream.flush()
            self._since = 0

    def zeros(self, count: int) -> None:
        for low in range(0, count, len(_ZEROS)):
            self.write(memoryview(_ZEROS)[: count - low])

    def finish(self) -> None:
        self._stream.close()
        replace(self._system, self._name, self._target)

    def abandon(self) -> None:
        # The streams of fsspec raise errors of any kind.
        with contextlib.suppress(Exception):
            self._stream.close()
        with contextlib.suppress(Exception):
            self._system.fs.delete_file(self._name)


class Held:
    """Holds the file until it is whole, and then sends it in one call: a failure before that publishes nothing."""

    def __init__(self, system: System, target: str) -> None:
        self._system, self._target = system, target
        self._held = bytearray()
        self._spooled: IO[bytes] | None = None

    def write(self, view: memoryview) -> None:
        if self._spooled is None and len(self._held) + len(view) <= HELD_BYTES:
            self._held += view
            return
        with naming(tempfile.gettempdir()):
            if self._spooled is None:
                self._spooled = tempfile.TemporaryFile(prefix="rmq-reindex-")  # noqa: SIM115  it lives as long as this
                self._spooled.write(self._held)
                self._held = bytearray()
            self._spooled.write(view)

    def zeros(self, count: int) -> None:
        for low in range(0, count, len(_ZEROS)):
            self.write(memoryview(_ZEROS)[: count - low])

    def finish(self) -> None:
        data: Any = self._held
        if self._spooled is not None:
            with naming(tempfile.gettempdir()):
                self._spooled.flush()
            data = mmap.mmap(self._spooled.fileno(), 0, access=mmap.ACCESS_READ)
        self._system.fs.send(self._target, data)
        self.abandon()

    def abandon(self) -> None:
        self._held = bytearray()
        if self._spooled is not None:
            self._spooled.close()
            self._spooled = None
