"""The journal of a replay: what is about to be sent, and what became of it, so that no message is sent twice.

A file of lines, which grows only. The first says of what log, choice and target it is. Each other one has a letter, the offset
of the message in the log, a text, and the CRC-32 of what is before it:

| line | it says |
| --- | --- |
| ``i OFFSET`` | the message is about to be sent: it is on the disk before that |
| ``a OFFSET ID`` | it was stored, with this message id |
| ``n OFFSET REASON`` | it was not stored, for sure |
| ``d OFFSET REASON`` | whether it was stored is unknown |
| ``w OFFSET`` | of all chosen messages below this offset it is said what became of them |

An ``i`` without a line behind it is a message whose answer was lost. Messages are sent in the order of the log but for a
few, so what lies below the last ``w`` need not be held in memory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

INTENT, ANSWER, REFUSED, DOUBTFUL, BELOW = "i", "a", "n", "d", "w"
VERSION: Final = 1
_KINDS: Final = frozenset((INTENT, ANSWER, REFUSED, DOUBTFUL, BELOW))
_REASON_MAX: Final = 300
"""characters of a reason"""
_LINE_MAX: Final = 1 << 20
"""bytes of a line: the first one has the choice in it"""
_OPTIONS: Final = {"topics": "topic", "tags": "tag", "keys": "key", "delays": "delay-levels"}
"""those that the first line has by another name"""


def line(kind: str, offset: int, text: str = "") -> bytes:
    """Return one line of a journal. ``text`` is escaped: it has no end of a line in it."""
    return _sealed(f"{kind} {offset} {text}".rstrip())


def _sealed(text: str) -> bytes:
    data = text.encode("utf-8", "backslashreplace")
    return b"%s %08x\n" % (data, zlib.crc32(data))


def _opened(raw: bytes) -> str | None:
    """Return the text of a line without its end; None where it is not as it was written."""
    data, blank, crc = raw.rpartition(b" ")
    if not blank or crc != b"%08x" % zlib.crc32(data):
        return None
    return data.decode("utf-8", "replace")


@dataclass
class Told:
    """What a journal says of messages, by their offsets in the log. Below ``below`` all is said that is not held here."""

    below: int = 0
    answered: set[int] = field(default_factory=set)
    """those from ``below`` on that were stored"""
    refused: set[int] = field(default_factory=set)
    doubtful: dict[int, str] = field(default_factory=dict)
    """with the reason; without one for a message whose answer was lost"""

    def add(self, kind: str, offset: int, text: str) -> None:
        """Add what a line says."""
        if kind == BELOW:
            self.below = max(self.below, offset)
            self.answered = {known for known in self.answered if known >= self.below}
        elif kind == INTENT:
            self.refused.discard(offset)
            self.doubtful[offset] = ""
        elif kind == DOUBTFUL:
            self.doubtful[offset] = text
        else:
            self.doubtful.pop(offset, None)
            (self.answered if kind == ANSWER else self.refused).add(offset)

    def is_new(self, offset: int) -> bool:
        """Return whether a chosen message is still to be sent: nothing is said of it, or that it was not stored."""
        return offset in self.refused or not (offset < self.below or offset in self.answered or offset in self.doubtful)


class Journal:
    """The journal in one file, which no other run uses meanwhile. ``told`` is what earlier runs wrote into it.

    ``bound`` says of what log, choice and target it is, as JSON. ``id`` is the journal's own: new message ids are made of it.
    """

    def __init__(self, path: str, bound: Mapping[str, Any], *, write: bool = True) -> None:
        """Open the journal, or make it. Raises InputError where it is of another replay, damaged, or used by another run.

        Without ``write`` it is only read, and need not be there.
        """
        self.path, self.told, self.id = path, Told(), ""
        self._file: int | None = None
        self._waiting: list[bytes] = []
        self._size = 0
        """bytes of the file that are whole lines"""
        if not write and not os.path.lexists(path):
            return
        folder, since = os.path.dirname(os.path.abspath(path)), -1
        with contextlib.suppress(OSError):
            # Where there is no such folder, making the file says so.
            since = files.handle_for_sync(folder, self) if write else -1
        is_new = write and self._make(path)
        self._file = os.open(path, os.O_RDWR if write else os.O_RDONLY)
        try:
            try:
                fcntl.flock(self._file, (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except OSError:
                raise self._wrong("another replay uses it: wait until that has ended") from None
            if os.fstat(self._file).st_size == 0 and write:
                self._begin(bound)
            else:
                self._read(bound, write)
            if is_new:
                files.sync(folder, since)
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _make(path: str) -> bool:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return False
        return True

    def _wrong(self, what: str) -> InputError:
        return InputError(f"--journal {escape(self.path)}: {what}")

    def _begin(self, bound: Mapping[str, Any]) -> None:
        self.id = os.urandom(8).hex()
        first = _sealed(json.dumps({"journal": VERSION, "id": self.id, **bound}, sort_keys=True))
        if len(first) > _LINE_MAX:
            raise self._wrong("the choice is too long to be kept in it: choose less at once")
        self._waiting.append(first)
        self.flush()

    def _read(self, bound: Mapping[str, Any], write: bool) -> None:
        """Read what is there. What a run that was killed has left of a last line is cut off."""
        assert self._file is not None
        good = number = 0
        bad = False
        with open(self._file, "rb", closefd=False) as stream:
            for raw in iter(lambda: stream.readline(_LINE_MAX), b""):
                number += 1
                text = _opened(raw[:-1]) if raw.endswith(b"\n") else None
                if text is not None and bad:
                    raise self._wrong(f"line {number - 1} is damaged, and others follow it: what was sent is not sure")
                if text is None:
                    bad = True
                    continue
                if number == 1:
                    self._check(text, bound)
                else:
                    self._take(text, number)
                good += len(raw)
        if not self.id:
            raise self._wrong("is no journal of a replay")
        if bad and write:
            os.ftruncate(self._file, good)
        self._size = good

    def _check(self, text: str, bound: Mapping[str, Any]) -> None:
        try:
            first = json.loads(text)
        except ValueError:
            first = None
        if not isinstance(first, dict) or first.get("journal") != VERSION or not isinstance(first.get("id"), str):
            raise self._wrong("is no journal of a replay")
        other = list[str]()
        for name, value in json.loads(json.dumps(bound)).items():
            before = first.get(name)
            if name in ("choice", "target") and isinstance(before, dict):
                parts = [part for part, given in value.items() if before.get(part) != given]
                other += [f"--{_OPTIONS.get(part, part).replace('_', '-')}" for part in parts]
            elif before != value:
                other.append(name)
        if other:
            raise self._wrong(f"is of a replay with another {' and another '.join(other)}: name a new file")
        self.id = first["id"]

    def _take(self, text: str, number: int) -> None:
        kind, _, rest = text.partition(" ")
        offset, _, words = rest.partition(" ")
        if kind not in _KINDS or not offset.isdecimal():
            raise self._wrong(f"line {number} is of no kind that this version knows")
        self.told.add(kind, int(offset), words)

    def intents(self, offsets: Iterable[int]) -> None:
        """Say that these messages are about to be sent. Once this returns it is on the disk, and all that was said before."""
        for offset in offsets:
            self._waiting.append(line(INTENT, offset))
        self.flush()

    def say(self, kind: str, offset: int, text: str = "") -> None:
        """Say what became of a message. It is written with the next intents, or by ``flush``."""
        self._waiting.append(line(kind, offset, escape(text, _REASON_MAX)))

    def flush(self) -> None:
        """Write what was said, so that it is on the disk when this returns."""
        if self._file is None or not self._waiting:
            return
        # A ctrl-C may come anywhere: what was not written whole is written once more, over what there is of it.
        data, lines = b"".join(self._waiting), len(self._waiting)
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], self._size + done)
        os.fsync(self._file)
        self._size += len(data)
        del self._waiting[:lines]

    def close(self) -> None:
        """Close the file; what was said and not flushed is lost."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
