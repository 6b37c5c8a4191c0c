"""An object store whose requests are tried again where the answer was none: the one place that knows of it.

AWS's SDK tries some requests again by itself, silently, and calls a 503 on a small object final. So it is told to try once,
and every request is tried again here, with growing pauses. A large file goes in parts, which pyarrow sends in the background:
of an upload in which one has failed nothing more can be sent. The SDK tries each part a few times, within a fraction of a
second, and then the whole file is sent again from here.

A request may have been done although its answer was lost. To read, list or copy again does no harm, nor does writing the same
bytes under the same name. What was to be removed may be gone by then.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files import answers, waiting

if TYPE_CHECKING:
    from pyarrow import fs as pafs

TRIES: Final = 12
"""of one request"""
_REMOVAL_TRIES: Final = 6
"""What stays is told, and the next run removes it: nobody needs to wait long for that."""
FIRST_PAUSE = 0.1
"""Seconds; each pause is twice as long as the one before, up to _LONGEST."""
_LONGEST: Final = 10.0
_SECONDS: Final = 300.0
"""No request is begun again so long after its first try."""
_QUIET: Final = 1.0
"""A shorter pause is not worth a line."""
_WHOLE_BYTES: Final = 8 << 20
"""What is longer is sent in parts; pyarrow's have 10 MiB, and a shorter file goes in one request."""
_FLUSH_BYTES: Final = 64 << 20
"""pyarrow copies each part and sends it in the background: to wait for it after so many bytes bounds its memory."""

Result = TypeVar("Result")
Judges = Callable[[OSError], OSError]
"""Finds out more about an error; returns it, or one that says more."""


def patiently(call: Callable[[], Result], place: str, judge: Judges = lambda error: error, most: int = TRIES) -> Result:
    """Return what ``call`` returns. After an error that may pass it is called again, up to ``most`` times in all.

    ``place`` is the URI that errors name. Raises FileNotFoundError as it comes, InputError where the bucket is wrong, and
    OSError.
    """
    begin, number = time.monotonic(), 0
    while True:
        number += 1
        try:
            return call()
        except FileNotFoundError:
            raise
        except OSError as error:
            last = judge(error)
        pause = min(FIRST_PAUSE * 2 ** (number - 1), _LONGEST) * random.uniform(0.5, 1.0)
        seconds = time.monotonic() - begin
        if number >= answers.tries(last, most) or seconds + pause > _SECONDS:
            raise answers.told(last, place, number, seconds) from last
        if pause >= _QUIET or seconds >= waiting.SELDOM:
            often = f"try {number + 1} of {most} in {pause:.1f} s"
            waiting.say(f"waiting for {escape(place)}: {escape(answers.reason(last), 200)}: {often}")
        time.sleep(pause)


class ObjectStore:
    """Has the methods of a ``pyarrow.fs.FileSystem`` that this package calls.

    ``once`` tries a request once; ``parts`` sends a file in parts, and tries each of them a few times by itself. ``scheme``
    begins the URIs that errors name. All methods raise what ``patiently`` raises.
    """

    def __init__(self, once: pafs.FileSystem, parts: pafs.FileSystem, scheme: str) -> None:
        self.once, self._parts, self._scheme = once, parts, scheme
        self._buckets: set[str] = set()
        """that are there"""

    @property
    def type_name(self) -> str:
        """pyarrow's word for the kind of the store."""
        return str(self.once.type_name)

    def do(self, path: str, call: Callable[[], Result], most: int = TRIES) -> Result:
        """``patiently`` for a request that concerns the object ``path``."""
        return patiently(call, f"{self._scheme}://{path}", lambda error: self._explained(error, path), most)

    def _explained(self, error: OSError, path: str) -> OSError:
        """Ask once for the reason that an answer did not give."""
        if answers.hides_reason(error):
            # What is refused is refused to a HEAD as well.
            found = _error_of(lambda: self.once.get_file_info(path))
            error = found if found is not None and answers.tries(found, TRIES) == 1 else error
        if answers.lacks_reason(error) and answers.tries(error, TRIES) == 1:
            error = _error_of(lambda: self._list(path)) or error
        return error

    def _list(self, path: str) -> Any:
        from pyarrow import fs as pafs

        return self.once.get_file_info(pafs.FileSelector(path, allow_not_found=True))

    def get_file_info(self, what: str | pafs.FileSelector) -> Any:
        """What is at a path, or all that a selector finds. Raises InputError, too, where not even the bucket is there."""
        path = what if isinstance(what, str) else what.base_dir
        found = self.do(path, lambda: self.once.get_file_info(what))
        if isinstance(what, str) and found.type.name == "NotFound":
            self._check_bucket(path)
        return found

    def _check_bucket(self, path: str) -> None:
        """An answer to a HEAD does not tell an object that is missing from a bucket that is."""
        bucket, slash, _ = path.strip("/").partition("/")
        if not slash or bucket in self._buckets:
            return
        try:
            found = self.do(bucket, lambda: self.once.get_file_info(bucket))
        except OSError:
            return  # it may not be asked for
        if found.type.name == "NotFound":
            raise InputError(f"{escape(f'{self._scheme}://{bucket}')}: {answers.NO_BUCKET}")
        self._buckets.add(bucket)

    def open_input_file(self, path: str) -> ObjectFile:
        """Open an object to read ranges of it."""
        return ObjectFile(self.do(path, lambda: self.once.open_input_file(path)), path, self)

    def send(self, path: str, data: Any) -> None:
        """Write an object that holds ``data``, as a whole or not at all. It replaces one that is there."""
        with memoryview(data) as view:
            system = self.once if len(view) <= _WHOLE_BYTES else self._parts

            def send() -> None:
                stream = system.open_output_stream(path)
                try:
                    for low in range(0, len(view), _FLUSH_BYTES):
                        stream.write(view[low : low + _FLUSH_BYTES])
                        stream.flush()
                except BaseException:
                    # Collected, it would be closed while no other thread may run, and its last part be sent meanwhile.
                    with contextlib.suppress(OSError):
                        stream.close()
                        # No part had failed, the run was interrupted: the object is there, and not whole.
                        self.once.delete_file(path)
                    raise
                stream.close()

            self.do(path, send)

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        """Make the empty object that marks a folder."""
        self.do(path, lambda: self.once.create_dir(path, recursive=recursive))

    def copy_file(self, source: str, target: str) -> None:
        """Copy within the store."""
        self.do(target, lambda: self.once.copy_file(source, target))

    def move(self, source: str, target: str) -> None:
        """Copy, and remove the source."""
        self.copy_file(source, target)
        self.delete_file(source)

    def delete_file(self, path: str) -> None:
        """Remove an object. Raises FileNotFoundError where there was none before the first try."""
        self._delete(path, self.once.delete_file)

    def delete_dir(self, path: str) -> None:
        """Remove all objects whose names begin with ``path`` and a slash."""
        self._delete(path, self.once.delete_dir)

    def _delete(self, path: str, delete: Callable[[str], object]) -> None:
        tried: list[bool] = []

        def once() -> None:
            tried.append(True)
            try:
                delete(path)
            except FileNotFoundError:
                # The first try has removed it, and its answer was lost.
                if len(tried) == 1:
                    raise

        self.do(path, once, _REMOVAL_TRIES)


class ObjectFile:
    """An open object, of the size that it had when it was opened. All methods raise OSError."""

    def __init__(self, file: Any, path: str, store: ObjectStore) -> None:
        self._file, self._path, self._store = file, path, store
        self._size, self._at = int(file.size()), 0

    def size(self) -> int:
        """Its size in bytes."""
        return self._size

    def seek(self, at: int) -> None:
        """Where ``readinto`` reads. No request."""
        self._at = at

    def _checked(self, at: int, count: int, got: int) -> None:
        if got < min(count, self._size - at):
            raise OSError(f"AWS Error NETWORK_CONNECTION during GetObject operation: {got} of {count} bytes came")

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` from where ``seek`` said; returns how many bytes there were before the object's end."""
        at = self._at

        def read() -> int:
            self._file.seek(at)
            got = int(self._file.readinto(view))
            self._checked(at, len(view), got)
            return got

        return int(self._store.do(self._path, read)) if at < self._size else 0

    def read_at(self, count: int, at: int) -> bytes:
        """``count`` bytes from ``at`` on, fewer at the object's end. Any thread may call it."""

        def read() -> bytes:
            data: bytes = self._file.read_at(count, at)
            self._checked(at, count, len(data))
            return data

        found: bytes = self._store.do(self._path, read)
        return found

    def close(self) -> None:
        """No request."""
        self._file.close()


def _error_of(call: Callable[[], object]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None
