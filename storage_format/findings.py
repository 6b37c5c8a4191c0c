"""The findings about a derived file (ConsumeQueue, IndexFile, checkpoint) by itself: codes, never exceptions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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
