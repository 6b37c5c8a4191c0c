"""Folders of a store that may be broken: what lies in them, why it cannot be read, and warnings about that.

The first bytes of a log tell what is no commitlog: it is refused, and named, instead of a torn tail.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError, ReindexError
from rocketmq_reindex.storage_format.scan.ranges import HEAD, Segment, foreign, has_entry
from rocketmq_reindex.storage_format.showing import escape, reason

if TYPE_CHECKING:
    from rocketmq_reindex.storage_format.scan.chain import Chain


# ------------------------------------------------------------------------------------------------------------------------ notes
# Warnings about what could not be read, while the rest is shown: each kind a few times, then how often.

EACH_MAX: Final = 5


def _print(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _ignore(_text: str) -> None:
    pass


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Notes:
    """Gives a line for each note to ``warn``; ``close`` gives how many of each kind were left out.

    ``say`` takes what is no warning: how the answer is found.
    """

    def __init__(self, warn: Callable[[str], None] = _print, say: Callable[[str], None] = _say) -> None:
        self._warn = warn
        self.say = say
        self._count: Counter[str] = Counter()
        self._seen: set[str] = set()
        self.lost = ""
        """what could not be read first of all that might have held what was asked for"""
        self.unknown = ""
        """what was asked for that the store does not know: a topic without a queue, which its configuration does not have"""

    @classmethod
    def silent(cls) -> Notes:
        """Return notes that nobody reads: the caller says itself what is wrong with the files."""
        return cls(_ignore, _ignore)

    def add(self, kind: str, text: str, lost: bool = True) -> None:
        """Add one note. ``text`` is escaped and has one line; the same text is given once."""
        if text in self._seen:
            return
        self.lost = self.lost or (text if lost else "")
        self._count[kind] += 1
        if self._count[kind] <= EACH_MAX:
            self._seen.add(text)
            self._warn(text)

    def close(self) -> None:
        """Give how many notes of each kind were left out."""
        for kind, count in self._count.items():
            if count > EACH_MAX:
                self._warn(f"{kind}: {count - EACH_MAX} more")
        sys.stderr.flush()


# ---------------------------------------------------------------------------------------------------------------------- folders
# Folders of a store that may be broken: what lies in them, and why it cannot be read, without an end to the run.


def entries(folder: str, notes: Notes) -> list[files.Entry] | None:
    """Return the entries of a folder, by name; None where there is no such folder. Failures are added to ``notes``."""
    try:
        kind = files.entry_of(folder).kind
        if kind == files.ABSENT:
            return None
        if kind != files.FOLDER:
            notes.add("not a folder", f"{escape(folder)}: is not a folder")
            return []
        return files.listing(folder)
    except (OSError, ValueError) as error:
        notes.add("unreadable folder", f"{escape(folder)}: {reason(error)}")
        return []


def entries_in(folder: str) -> list[files.Entry]:
    """Return the entries of a folder; none where it does not exist. Raises OSError and ValueError where it cannot be listed."""
    return files.listing(folder) if files.entry_of(folder).kind == files.FOLDER else []


def check_apart(option: str, place: str, stores: Iterable[str]) -> None:
    """Raise InputError for a place inside of a store, where nothing is written. ``option`` is what names it."""
    for store in stores:
        if files.within(place, store):
            raise InputError(f"{option} {escape(place)}: lies inside {escape(store)}, where nothing is written")


@contextlib.contextmanager
def failures_as_errors(place: str) -> Iterator[None]:
    """Raise InputError for what cannot be read or written. ``place`` stands for a file without a name.

    A pipe that is closed while a command prints is no failure of a file: BrokenPipeError passes.
    """
    try:
        yield
    except (ReindexError, BrokenPipeError):
        raise
    except (OSError, ValueError) as error:
        # ValueError: bytes that are no file of this kind, or a URI that pyarrow does not know.
        where = getattr(error, "filename", None)
        raise InputError(f"{escape(str(where)) if where else escape(place)}: {reason(error)}") from error


# ------------------------------------------------------------------------------------------------------------------ first bytes


def no_record(path: str, lead: int = 0) -> str:
    """Return that the file at ``path`` does not begin with a record, and with what; "" where it does, or is all zeros there.

    ``lead`` is the bytes in front of each record. Raises OSError and InputError where it cannot be read.
    """
    with files.Reader(path) as reader:
        head = reader.read(0, min(HEAD, reader.size()))
    begin = foreign(head[lead:] if lead and has_entry(head) else head)
    return f"{escape(path)}: does not begin with a RocketMQ record ({begin})" if begin else ""


def foreign_log(segments: Sequence[Segment], chain: Chain) -> str:
    """Return that the first segment is none of RocketMQ: it has no good record, and begins with none; "" otherwise.

    The records of a segment with the name of another are sound: its damage says so, and how to mend it.
    """
    first = segments[0] if segments else None
    # Brings numba, which no look at a store needs.
    from rocketmq_reindex.storage_format.scan.chain import misnamed

    wrong = misnamed(chain.holes)
    known = [*_good(chain), *([wrong.offset] if wrong else [])]
    if first is None or any(first.start <= offset < first.segment_end for offset in known):
        return ""
    return no_record(first.path, first.lead)


def check_is_log(segments: Sequence[Segment], chain: Chain) -> None:
    """Raise InputError for a log without a good record whose first segment is none of RocketMQ."""
    if not has_good(chain) and (fault := foreign_log(segments, chain)):
        raise InputError(f"{fault}: name a commitlog")


def has_good(chain: Chain) -> bool:
    """Return whether the log has a good record."""
    return any(offset >= 0 for offset in _good(chain))


def _good(chain: Chain) -> list[int]:
    return [max(summary.last_good, summary.after_tail, summary.later) for summary in chain.accepted]
