"""An object store: what its errors mean, requests that are tried again, and how a watcher of the run is told."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyarrow import fs as pafs

# ---------------------------------------------------------------------------------------------------------------------- waiting
# Tell whoever watches a run that a request to a store is being tried again, and how long that will take.

Hears = Callable[[str], None]
"""Takes one line. It may be called from any thread, and raises nothing."""
SELDOM: Final = 5.0
"""Seconds between two lines of a process, however many requests wait."""

_listeners: list[Hears] = []
_lock = threading.Lock()
_last = [-SELDOM]


def _forget() -> None:
    # A fork has none of the threads that may hold the lock.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def heard_by(hears: Hears) -> Iterator[None]:
    """While this context is open, lines go to ``hears`` instead of a logger. Of several the last one hears."""
    _listeners.append(hears)
    try:
        yield
    finally:
        _listeners.remove(hears)


def tell(text: str) -> None:
    """Pass on one line: to who listens, else to a logger, which shows it on stderr. Of an executor that is its log."""
    if _listeners:
        _listeners[-1](text)
    else:
        logging.getLogger("rmq-reindex.files").warning("%s", text)


def say(text: str) -> None:
    """``tell`` one line, unless another one came less than SELDOM seconds before."""
    with _lock:
        now = time.monotonic()
        if now - _last[0] < SELDOM:
            return
        _last[0] = now
    tell(text)


# ---------------------------------------------------------------------------------------------------------------------- answers
# What the errors of an object store mean: whether to ask again, and which words say what is wrong.
#
# pyarrow gives an error of AWS's SDK as text alone: ``When ... key 'K' in bucket 'B': AWS Error CODE during OPERATION
# operation: MESSAGE``. ``CODE`` is UNKNOWN with the HTTP status where the SDK knows no better.

_ERROR: Final = re.compile(
    r"AWS Error (?P<code>[A-Z_0-9]+)(?: \(HTTP status (?P<status>\d+)\))? during (?P<operation>\w+) operation: "
)
_REQUEST: Final = re.compile(r" \(Request ID: [^)]*\)")
_UNKNOWN: Final = re.compile(r"Unable to parse ExceptionName: (\S+) Message: ")
_TRANSIENT: Final = frozenset(
    {"INTERNAL_FAILURE", "SERVICE_UNAVAILABLE", "THROTTLING", "SLOW_DOWN", "REQUEST_TIMEOUT", "NETWORK_CONNECTION"}
)
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429, 500, 502, 503, 504, 509, 529})
_TRANSIENT_WORDS: Final = re.compile(
    r"(?i)internal error|reduce your request rate|slow ?down|service ?unavailable|"
    r"\b(UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED)\b|\b(500|502|503|504) "
)
"""What removing many objects says of one of them, and what the other clouds' libraries say once they have given up."""
_QUOTED: Final = re.compile(r"'[^'\n]*'")
_NO_CONNECTION: Final = re.compile(r"curlCode: (?P<curl>\d+)")
_TLS: Final = frozenset({35, 51, 53, 54, 58, 59, 60, 64, 66, 77, 80, 82, 83, 90, 91})
_NO_ADDRESS: Final = 6
_FLUSH: Final = "Failed to flush response stream"
_NO_BODY: Final = "No response body"
_LENGTH: Final = 300
_KEYS: Final = "look at AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, at AWS_PROFILE, or at the URI"
_ADVICE: Final = {
    "INVALID_ACCESS_KEY_ID": f"the store does not know this access key: {_KEYS}",
    "SIGNATURE_DOES_NOT_MATCH": f"the secret key does not fit the access key: {_KEYS}",
}
NO_BUCKET: Final = "there is no such bucket: make the bucket first, or name another"
_BUCKET: Final = {
    "NO_SUCH_BUCKET": NO_BUCKET,
    "NoSuchBucket": NO_BUCKET,
    "InvalidBucketName": "is no name of a bucket: bucket names have 3 to 63 small letters, digits, dots and hyphens",
}
"""By the code of the answer: the bucket itself is wrong, whatever was asked of it."""


def lacks_reason(error: OSError) -> bool:
    """Return whether the answer had no body, as that to a HEAD: a GET of the same then says what is wrong."""
    return _NO_BODY in str(error)


def hides_reason(error: OSError) -> bool:
    """Return whether the reason was lost: the SDK wants to write an error's text to where the bytes go, and it is too long for
    it."""
    return _FLUSH in str(error)


def tries(error: OSError, tries_max: int) -> int:
    """Return how often at most a request is tried that ended with ``error``: once where the same answer would come again."""
    if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)):
        return 1
    text = str(error)
    aws_error, connection = _ERROR.search(text), _NO_CONNECTION.search(text)
    if connection and int(connection["curl"]) in _TLS:
        return 1
    if connection and int(connection["curl"]) == _NO_ADDRESS:
        # A name server may be slow for once. Mostly the name is wrong.
        return min(tries_max, 4)
    if aws_error:
        is_transient = aws_error["code"] in _TRANSIENT or int(aws_error["status"] or 0) in _TRANSIENT_STATUS
        return tries_max if is_transient else 1
    # What is in quotes is a name.
    return tries_max if _TRANSIENT_WORDS.search(_QUOTED.sub("", text)) else 1


def reason(error: OSError) -> str:
    """Return what the answer says, in one line, with its code and the request."""
    text = error.strerror or str(error)
    aws_error = _ERROR.search(text)
    if not aws_error:
        return text
    message = _REQUEST.sub("", text[aws_error.end() :]).strip().rstrip(".")
    code = aws_error["code"] if not aws_error["status"] else f"HTTP status {aws_error['status']}"
    if unknown := _UNKNOWN.match(message):
        code, message = unknown[1], message[unknown.end() :]
    if message in ("", _NO_BODY) or _FLUSH in message:
        return f"{aws_error['operation']} ended with {code} and no reason"
    advice = f": {_ADVICE[code]}" if code in _ADVICE else ""
    return escape(f"{message} ({code}, {aws_error['operation']})", _LENGTH) + advice


def final_error(error: OSError, place: str, number: int, seconds: float) -> Exception:
    """Return the error to raise for the last answer of ``number``, in ``seconds`` s: it names ``place``, a URI with bucket and
    key."""
    answer = reason(error)
    for code, words in _BUCKET.items():
        if f"({code}, " in answer:
            scheme, _, path = place.partition("://")
            return InputError(f"{escape(f'{scheme}://' + path.partition('/')[0])}: {words}")
    often = f" (tried {number} times in {seconds:.0f} s)" if number > 1 else ""
    return OSError(error.errno or errno.EIO, f"{answer}{often}", error.filename or place)


# ----------------------------------------------------------------------------------------------------------------- object store
# An object store whose requests are tried again where the answer was none: the one place that knows of it.
#
# AWS's SDK tries some requests again by itself, silently, and calls a 503 on a small object final. So it is told to try once,
# and every request is tried again here, with growing pauses. A large file goes in parts, which pyarrow sends in the background:
# of an upload in which one has failed nothing more can be sent. The SDK tries each part a few times, within a fraction of a
# second, and then the whole file is sent again from here.
#
# A request may have been done although its answer was lost. To read, list or copy again does no harm, nor does writing the same
# bytes under the same name. What was to be removed may be gone by then.

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


def patiently(call: Callable[[], Result], place: str, judge: Judges = lambda error: error, tries_max: int = TRIES) -> Result:
    """Return what ``call`` returns. After an error that may pass it is called again, up to ``tries_max`` times in all.

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
        if number >= tries(last, tries_max) or seconds + pause > _SECONDS:
            raise final_error(last, place, number, seconds) from last
        if pause >= _QUIET or seconds >= SELDOM:
            often = f"try {number + 1} of {tries_max} in {pause:.1f} s"
            say(f"waiting for {escape(place)}: {escape(reason(last), 200)}: {often}")
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

    def do(self, path: str, call: Callable[[], Result], tries_max: int = TRIES) -> Result:
        """Return what ``patiently`` does, for a request that concerns the object ``path``."""
        return patiently(call, f"{self._scheme}://{path}", lambda error: self._explained(error, path), tries_max)

    def _explained(self, error: OSError, path: str) -> OSError:
        """Ask once for the reason that an answer did not give."""
        if hides_reason(error):
            # What is refused is refused to a HEAD as well.
            answer = _error_of(lambda: self.once.get_file_info(path))
            error = answer if answer is not None and tries(answer, TRIES) == 1 else error
        if lacks_reason(error) and tries(error, TRIES) == 1:
            error = _error_of(lambda: self._list(path)) or error
        return error

    def _list(self, path: str) -> Any:
        from pyarrow import fs as pafs

        return self.once.get_file_info(pafs.FileSelector(path, allow_not_found=True))

    def get_file_info(self, path_or_selector: str | pafs.FileSelector) -> Any:
        """Return what is at a path, or all that a selector finds. Raises InputError, too, where not even the bucket is
        there."""
        path = path_or_selector if isinstance(path_or_selector, str) else path_or_selector.base_dir
        infos = self.do(path, lambda: self.once.get_file_info(path_or_selector))
        if isinstance(path_or_selector, str) and infos.type.name == "NotFound":
            self._check_bucket(path)
        return infos

    def _check_bucket(self, path: str) -> None:
        """An answer to a HEAD does not tell an object that is missing from a bucket that is."""
        bucket, slash, _ = path.strip("/").partition("/")
        if not slash or bucket in self._buckets:
            return
        try:
            info = self.do(bucket, lambda: self.once.get_file_info(bucket))
        except OSError:
            return  # it may not be asked for
        if info.type.name == "NotFound":
            raise InputError(f"{escape(f'{self._scheme}://{bucket}')}: {NO_BUCKET}")
        self._buckets.add(bucket)

    def open_input_file(self, path: str) -> ObjectFile:
        """Return an object, open to read ranges of it."""
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
        """Return its size in bytes."""
        return self._size

    def seek(self, at: int) -> None:
        """Where ``readinto`` reads. No request."""
        self._at = at

    def _checked(self, at: int, count: int, received: int) -> None:
        if received < min(count, self._size - at):
            raise OSError(f"AWS Error NETWORK_CONNECTION during GetObject operation: {received} of {count} bytes came")

    def readinto(self, view: memoryview) -> int:
        """Fill ``view`` from where ``seek`` said. Return how many bytes there were before the object's end."""
        at = self._at

        def read() -> int:
            self._file.seek(at)
            received = int(self._file.readinto(view))
            self._checked(at, len(view), received)
            return received

        return int(self._store.do(self._path, read)) if at < self._size else 0

    def read_at(self, count: int, at: int) -> bytes:
        """Return ``count`` bytes from ``at`` on, fewer at the object's end. Any thread may call it."""

        def read() -> bytes:
            data: bytes = self._file.read_at(count, at)
            self._checked(at, count, len(data))
            return data

        answer: bytes = self._store.do(self._path, read)
        return answer

    def close(self) -> None:
        """No request."""
        self._file.close()


def _error_of(call: Callable[[], object]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None
