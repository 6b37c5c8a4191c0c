"""The errors that end a run, the listener to which a run says how far it is, and findings.

A finding is about a derived file (ConsumeQueue, IndexFile, checkpoint) by itself: a code, never an exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


# ----------------------------------------------------------------------------------------------------------------------- errors
# The errors that end a run. Each says what is wrong, where (file and offset), and what to do: in one line, or with further
# lines that begin with blanks.
#
# A UsageError has a line for each word of a command that is wrong.


def errors_of(text: str) -> list[str]:
    """Return the errors in a text: each line is one, with the lines behind it that begin with blanks."""
    errors = list[str]()
    for line in text.split("\n"):
        if errors and line.startswith("  "):
            errors[-1] += f"\n{line}"
        else:
            errors.append(line)
    return errors


def error_lines(text: str) -> str:
    """Return the text of an error as it is printed: two wrong options are two errors."""
    return "\n".join(f"error: {error}" for error in errors_of(text))


class ExitStatus(IntEnum):
    """With what a command ends, if no signal ends it. It is shown as its number."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    LOST = 3
    """done, and records are lost"""
    FOUND = 4
    """differences, or what a start would lose or hide"""
    REFUSED = 5

    __repr__ = int.__repr__
    __str__ = int.__repr__


class ReindexError(Exception):
    """The run failed, and nothing was published (exit status 1)."""

    exit_status = ExitStatus.FAILED
    """what the command's exit status would be"""
    result: object | None = None
    """in the Python API: what was found before the error, as the function's result"""


class UsageError(ReindexError):
    """The arguments are wrong, which shows without reading any file (exit status 2)."""

    exit_status = ExitStatus.USAGE


class InputError(ReindexError):
    """The input, or the folder for the output, cannot be used as it is (exit status 1)."""


class RefusedError(ReindexError):
    """The chosen policy refuses damage or the order of a queue (exit status 5). The same input is refused again."""

    exit_status = ExitStatus.REFUSED


# ----------------------------------------------------------------------------------------------------------- progress listeners
# Long work of one process says to a listener how far it is.


class ProgressListener(Protocol):
    """A listener to the progress of work."""

    def begin(self, stage: str, size: int) -> None:
        """A stage begins that reads at most ``size`` bytes."""

    def moved(self, size: int) -> None:
        """So many bytes more of the stage are done."""

    def end(self) -> None:
        """The stage is over: what is printed next stands below it."""


class NoListener:
    """A listener that shows nothing."""

    def begin(self, stage: str, size: int) -> None:
        pass

    def moved(self, size: int) -> None:
        pass

    def end(self) -> None:
        pass


# --------------------------------------------------------------------------------------------------------------------- findings


class UnreadableError(ValueError):
    """The bytes, or the name, cannot be those of a file of this kind."""


@dataclass(frozen=True)
class Finding:
    """One kind of fault in a file.

    ``code`` is a key of CODES, ``at`` the first place where it was met (in the unit that CODES names, -1 for none), ``count``
    in how many places it was met. ``expected`` is what should stand there, where the file itself says it.
    """

    code: str
    at: int
    count: int
    expected: int | None = None

    @property
    def text(self) -> str:
        """The code in words."""
        return CODES[self.code]


CODES: Final = {
    # ConsumeQueue; ``at`` is a position in the queue: logical byte / 20
    "queue-name": "the file's first logical byte is no multiple of its size",
    "queue-size": "the file has not the size that the broker wants: it would not start",
    "queue-unit": "unit with a negative position, no size, or past the largest offset",
    "queue-hole": "zeros where a unit should be, before a later one",
    "queue-pre-blank": "pre-blank after a unit",
    "queue-backwards": "unit that lies before the one before it",
    "queue-overlap": "unit whose record begins inside the record of the one before it",
    # consumequeue_ext; ``at`` is a byte of the file, but of its name
    "ext-name": "the first logical byte of the file of consumequeue_ext is no multiple of its size",
    "ext-unit": "bytes behind the last unit that are no unit",
    "ext-bit-map": "unit whose bit map has another size than the unit has room for",
    "ext-stray": "bytes behind the end of the file's units that are not zero",
    # IndexFile; ``at`` is a byte of the file, a slot or an item, as the name says
    "index-size": "file size is not that of its slots and items (at: the size)",
    "index-count": "header's indexCount is not the number of items + 1 (at: indexCount)",
    "index-slot-count": "header's hashSlotCount is not the number of slots in use (at: hashSlotCount)",
    "index-begin-offset": "header's beginPhyOffset is not the first item's (at: beginPhyOffset)",
    "index-end-offset": "header's endPhyOffset is not the last item's (at: endPhyOffset)",
    "index-end-time": "header's endTimestamp is not the last item's time (at: endTimestamp)",
    "index-empty-offset": "header of a file without items: beginPhyOffset is not endPhyOffset, or negative (at: endPhyOffset)",
    "index-empty-time": "header of a file without items: beginTimestamp is not endTimestamp, or negative (at: endTimestamp)",
    "index-item-zero": "the place of item 0 is not zero (at: byte)",
    "index-item-stray": "bytes behind the last item (at: item)",
    "index-slot-range": "slot with a number that no item has (at: slot)",
    "index-slot-foreign": "slot that begins with an item of another slot (at: slot)",
    "index-slot-old": "slot that does not begin with its newest item (at: slot)",
    "index-item-hash": "item with a negative hash (at: item)",
    "index-item-place": "item with a negative offset, or one below the item before (at: item)",
    "index-item-time": "item with a negative timeDiff: a lookup ends at it (at: item)",
    "index-link-range": "item that links to itself, to a later one, or to none that exists (at: item)",
    "index-link-foreign": "item that links to an item of another slot (at: item)",
    "index-link-gap": "item that does not link to the item before it in its slot (at: item)",
    "index-link-circular": "item in a circle of links: the broker's lookup never ends (at: item)",
    "index-item-lost": "item that its slot does not lead to: no lookup finds it (at: item)",
    # epochFileCheckpoint; ``at`` is a line, from 0 on
    "epoch-number": "line that is no number where one should be (at: line)",
    "epoch-line": "line that is no entry (at: line)",
    "epoch-count": "another number of entries than the first line says",
    "epoch-crc": "CRC that is not that of the entries (at: line)",
    "epoch-order": "epoch that is not above the one before, in number and offset (at: line)",
    # checkpoint; ``at`` is a byte of the file
    "checkpoint-size": "not 4,096 bytes",
    "checkpoint-negative": "negative time or offset",
    "checkpoint-rest": "bytes behind the fields that are not zero",
}


def from_bits(bits: npt.NDArray[np.uint8], all_bits: int, names: tuple[str, ...], first: int) -> list[Finding]:
    """Return findings of ``bits``, uint8 (n,): bit i of element k stands for the fault ``names[i]`` at ``first + k``.

    ``all_bits`` has all bits that are set anywhere.
    """
    # Not above: a command that reads no array should not wait for numpy.
    import numpy as np

    findings = []
    for number, name in enumerate(names):
        if all_bits >> number & 1:
            hit = (bits & (1 << number)) != 0
            findings.append(Finding(name, first + int(np.argmax(hit)), int(np.count_nonzero(hit))))
    return findings
