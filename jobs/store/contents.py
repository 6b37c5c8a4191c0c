"""What a store holds, whole or broken: the message at an offset of its log, and the offsets of a key by its IndexFiles."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.store.folders import Notes, entries
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index import layout as index_header
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message, read_message, record_heads
from rocketmq_reindex.storage_format.scan.ranges import HEAD, foreign, has_entry
from rocketmq_reindex.storage_format.showing import escape, form, reason
from rocketmq_reindex.udfs.scan.segments import lead_of

# -------------------------------------------------------------------------------------------------------------------------- log
# The commitlog of a store, whole or not: which segment holds an offset, and the message there.

EXPIRED: Final = "lies before the log's first byte (expired)"
NO_LOG: Final = "lies in no segment: the store has none"
BEYOND: Final = "lies behind the log's last byte"
HOLE: Final = "lies in a segment that is missing"
FILLER: Final = "is the BLANK at a segment's end"
LOST: Final = "stands for lost bytes: a repair put it there"
NOTHING: Final = r.REASONS[r.ZERO]
BLOCK: Final = 4096
WALKED: Final = 5000
"""records that are passed at most from a known one on, in search of the last"""
_OPEN_MAX: Final = 64
_LOOK_BACK: Final = (1 << 16, *range(1 << 20, (1 << 23) + 1, 1 << 20))
"""bytes before an offset in which the record around it is looked for: a body has 4 MiB at most by default"""


@dataclass(frozen=True)
class SegmentFile:
    """One file of the log: absolute offset of its first byte, bytes, and the bytes in front of each record (``Segment``)."""

    path: str
    start: int
    size: int
    lead: int = 0


def list_log(roots: Sequence[str], notes: Notes) -> list[SegmentFile]:
    """Return the segments in ``roots`` by their start. Other files are added to ``notes``."""
    segments = []
    for root in roots:
        listed = entries(root, notes)
        if listed is None:
            notes.add("no commitlog", f"{escape(root)}: is not there: no message can be read")
        lead = lead_of(root, listed or [])
        for entry in listed or []:
            start = layouts.first_byte(entry.name)
            if entry.kind == files.FILE and start is not None:
                segments.append(SegmentFile(entry.path, start, entry.size, lead))
            else:
                notes.add("not a segment", f"{escape(entry.path)}: is no segment: not looked at", lost=False)
    return sorted(segments, key=lambda segment: segment.start)


def message_at(pages: files.Pages, start: int, phy_offset: int, lead: int = 0) -> Message | int:
    """Return the message at an absolute offset of a segment that begins at ``start``, or the code of what stands there.

    In a segment with a ``lead`` the offset may also be that of the entry which holds the message: one record ends there, and
    the next entry begins. Raises OSError and InputError where it cannot be read.
    """
    low = phy_offset - start
    if lead:
        head = pages.read(low, lead)
        if len(head) == lead and has_entry(head) and r.ENTRY_LAYOUT.unpack(head)[r.ENTRY_POSITION] == phy_offset:
            phy_offset, low = phy_offset + lead, low + lead
        elif int.from_bytes(head[:4], "big", signed=True) == r.ENTRY_BLANK:
            return r.FILLER
    return read_message(lambda at, count: pages.read(low + at, count), phy_offset, pages.size - low)


class StoreLog:
    """Messages by their physical offset. For a message that cannot be read there is a text that says why."""

    def __init__(self, roots: Sequence[str], notes: Notes) -> None:
        self.segments = list_log(roots, notes)
        self._starts = [segment.start for segment in self.segments]
        self._open: dict[str, files.Pages] = {}

    @property
    def start(self) -> int:
        """The offset of the first byte; 0 without segments."""
        return self.segments[0].start if self.segments else 0

    @property
    def end(self) -> int:
        """The offset behind the last byte; 0 without segments."""
        return self.segments[-1].start + self.segments[-1].size if self.segments else 0

    def pages(self, segment: SegmentFile) -> files.Pages:
        """Return an open segment, read in pages. Raises OSError and InputError."""
        pages = self._open.get(segment.path)
        if pages is None:
            if len(self._open) >= _OPEN_MAX:
                self._open.pop(next(iter(self._open))).close()
            pages = self._open[segment.path] = files.Pages(segment.path)
        return pages

    def segment_of(self, phy_offset: int) -> SegmentFile | str:
        """Return the segment that holds an absolute offset, or a text that says why there is none."""
        number = bisect_right(self._starts, phy_offset) - 1
        if number < 0:
            return EXPIRED if self.segments else NO_LOG
        segment = self.segments[number]
        if phy_offset >= segment.start + segment.size:
            return BEYOND if number == len(self.segments) - 1 else HOLE
        return segment

    def message(self, phy_offset: int) -> Message | str:
        """Return the message at an absolute offset, or a text that says why there is none."""
        segment = self.segment_of(phy_offset)
        if isinstance(segment, str):
            return segment
        try:
            pages = self.pages(segment)
            record = message_at(pages, segment.start, phy_offset, segment.lead)
        except (OSError, InputError) as error:
            return f"cannot be read: {reason(error)}"
        if isinstance(record, Message):
            return LOST if record.is_filler else record
        if record == r.FILLER:
            return FILLER
        if phy_offset == segment.start and (begins := foreign(pages.read(segment.lead, HEAD))):
            return f"{r.REASONS.get(record, 'is no record')}: the segment {begins}"
        return r.REASONS.get(record, "is no record")

    def around(self, phy_offset: int) -> Message | None:
        """Return the message whose record holds an absolute offset behind its first byte, if that is found.

        A record names its own place: the nearest one before the offset that does so, and reaches over it, is the one.
        """
        segment = self.segment_of(phy_offset)
        if isinstance(segment, str):
            return None
        end = min(phy_offset + r.AT_SYS_FLAG, segment.start + segment.size)
        for length in _LOOK_BACK:
            low = max(segment.start, phy_offset - length)
            try:
                data = (pages := self.pages(segment)).read(low - segment.start, end - low)
                for begin in record_heads(data, low)[::-1]:
                    record = message_at(pages, segment.start, begin) if segment.start <= begin < phy_offset else None
                    if isinstance(record, Message) and record.phy_offset + record.size > phy_offset:
                        return record
            except (OSError, InputError):
                return None
            end = low + r.AT_SYS_FLAG - r.AT_MAGIC
        return None

    def body(self, message: Message, size_max: int) -> bytes:
        """Return at most ``size_max`` bytes of the body as it is stored. Raises OSError and InputError."""
        segment = self.segment_of(message.phy_offset)
        if isinstance(segment, str):
            raise InputError(f"offset {message.phy_offset}: {segment}")
        at = message.phy_offset - segment.start + message.body_at
        return self.pages(segment).read(at, min(size_max, message.body_size))

    def close(self) -> None:
        """Close all open segments."""
        for pages in self._open.values():
            pages.close()
        self._open.clear()


class RecordWalk:
    """Gives the records of a part of a log one after another, over the ends of segments; of at most ``most`` looks.

    ``at`` is how far it came. ``stop`` is what stands there, if that is no record; "" else.
    """

    def __init__(self, log: StoreLog, low: int, high: int, most: int) -> None:
        self._log, self._high, self._most = log, high, most
        self.at, self.stop = low, ""

    def __iter__(self) -> Iterator[Message]:
        for _ in range(self._most):
            if self.at >= self._high:
                return
            found = self._log.message(self.at)
            if isinstance(found, Message):
                yield found
                self.at = found.phy_offset + found.size
            elif found == FILLER:
                self.at = next((segment.start for segment in self._log.segments if segment.start > self.at), self._high)
            else:
                self.stop = found
                return


def last_record(log: StoreLog) -> Message | None:
    """Return the last record of the log, as a search for the end of what is written tells; None where none is found.

    A segment is made whole, and zeros stand behind its last record. Damage in the last segment may hide what follows.
    """
    # When a broker goes on in the next segment it has made another one behind that (AllocateMappedFileService).
    for segment in reversed(log.segments[-3:]):
        at = written(log, segment)
        record = (log.around(segment.start + at - 1) or _first(log, segment)) if at else None
        if record is not None:
            return _walked(log, record)
    return None


def _first(log: StoreLog, segment: SegmentFile) -> Message | None:
    record = log.message(segment.start)
    return record if isinstance(record, Message) else None


def written(log: StoreLog, segment: SegmentFile) -> int:
    """Return the byte behind the last one in a segment that is not zero, by a binary search; 0 where none is, or it is
    unreadable."""
    try:
        pages = log.pages(segment)
        low, high = 0, -(-segment.size // BLOCK)
        while low < high:
            middle = (low + high) // 2
            if any(pages.read(middle * BLOCK, BLOCK)):
                low = middle + 1
            else:
                high = middle
        begin = max(0, low - 1) * BLOCK
        return begin + len(pages.read(begin, BLOCK).rstrip(b"\0"))
    except (OSError, InputError):
        return 0


def _walked(log: StoreLog, message: Message) -> Message:
    """Return the last record from one on. At a segment's end the next one goes on."""
    for _ in range(WALKED):
        following = log.message(message.phy_offset + message.size)
        if not isinstance(following, Message):
            break
        message = following
    return message


# ------------------------------------------------------------------------------------------------------------------ index files
# The physical offsets of a key, from all IndexFiles of a store.
#
# The broker leaves files and items out by their times. These are rounded, and they are wrong for a file's first item and where
# a clock went back. They are not used here: to look into a file costs a slot and a chain, and the record has its own store
# time.


class IndexSizes(NamedTuple):
    """How many slots and items an IndexFile has."""

    slots: int
    items: int


def _sizes(pair: tuple[int, int] | None) -> IndexSizes | None:
    return None if pair is None else IndexSizes(*pair)


@dataclass
class OpenIndexFile:
    """An IndexFile that has a header; ``sizes`` is None where they are not known."""

    path: str
    pages: files.Pages
    sizes: IndexSizes | None = None

    @property
    def header(self) -> index_header.IndexHeader:
        """The header as it stands in the file now."""
        return index_header.IndexHeader.from_bytes(self.pages.read(0, index_header.HEADER_SIZE))


class IndexFiles:
    """The IndexFiles in a folder, or so many of the ``newest``, or ``one`` by its name, and others where it says no sizes.

    ``present`` is false where there is no such folder.
    """

    def __init__(self, folder: str, sizes: IndexSizes | None, notes: Notes, newest: int | None = None, one: str = "") -> None:
        self._notes = notes
        listed = entries(folder, notes)
        self.present = listed is not None
        self.files: list[OpenIndexFile] = []
        """oldest first"""
        named = []
        for entry in listed or []:
            if entry.kind == files.FILE and layouts.is_index_file(entry.name):
                named.append(entry)
            else:
                notes.add("not an IndexFile", f"{escape(entry.path)}: is no IndexFile: not looked at", lost=False)
        first, rest = ([each for each in named if (each.name == one) == is_one] for is_one in (True, False))
        for some in (first, rest if newest is None else rest[-newest:]):
            if not any(map(self._quick, self.files)):
                for entry in some:
                    self._open(entry)
        self._find_sizes(sizes)

    def _open(self, entry: files.Entry) -> None:
        try:
            pages = files.Pages(entry.path)
        except (OSError, InputError) as error:
            self.unread(entry.path, reason(error))
            return
        if pages.size > files.MAPPED_MAX:
            self.unread(entry.path, f"has {pages.size:,} bytes, more than any IndexFile")
            pages.close()
            return
        if pages.size < index_header.HEADER_SIZE:
            self.unread(entry.path, f"has {pages.size} {form(pages.size, 'byte', 'bytes')}, less than a header")
            pages.close()
            return
        self.files.append(OpenIndexFile(entry.path, pages))

    def unread(self, path: str, why: str) -> None:
        """Note that a file cannot be read, or not whole."""
        self._notes.add("unreadable IndexFile", f"{escape(path)}: {why}: its keys are not found; --scan reads the log instead")

    def _find_sizes(self, configured: IndexSizes | None) -> None:
        """Of each file: given, said by itself, or said by another one; a broker's files are alike."""
        known = configured
        for file in self.files:
            if configured is not None:
                file.sizes = configured
                continue
            file.sizes = self._quick(file)
            known = known or file.sizes
        for file in self.files:
            # Of another size than its neighbours: a broker whose settings were changed, or a torn file.
            if file.sizes is None and (known is None or file.pages.size != index_header.file_size(*known)):
                file.sizes = self._slow(file)
            known = known or file.sizes
        for file in self.files:
            file.sizes = file.sizes or known

    def _quick(self, file: OpenIndexFile) -> IndexSizes | None:
        try:
            return _sizes(index_header.quick_sizes(file.pages.read, file.pages.size))
        except (OSError, InputError) as error:
            self.unread(file.path, reason(error))
            return None

    def _slow(self, file: OpenIndexFile) -> IndexSizes | None:
        """Return the sizes, guessed from all of a file that is not full; None where none fit."""
        from rocketmq_reindex.storage_format.index.file import guess_sizes

        try:
            with files.Reader(file.path) as reader:
                return _sizes(guess_sizes(reader.whole()))
        except (OSError, InputError):
            return None

    def phy_offsets(self, key_hash: int) -> Iterator[int]:
        """Yield the physical offsets of the items with a hash, newest file first, newest item first."""
        for file in reversed(self.files):
            yield from self._offsets_in(file, key_hash)

    def _offsets_in(self, file: OpenIndexFile, key_hash: int) -> Iterator[int]:
        try:
            yield from self._lookup(file, key_hash)
        except (OSError, InputError) as error:
            self.unread(file.path, reason(error))

    def _lookup(self, file: OpenIndexFile, key_hash: int) -> Iterator[int]:
        header = file.header
        if file.sizes is None:
            if header.index_count > 1:
                self.unread(file.path, "its slots and items are not known (--hash-slots, --index-items)")
            return
        slots, items = file.sizes
        size = index_header.file_size(slots, items)
        if file.pages.size != size:
            self._notes.add(
                "IndexFile of a wrong size",
                f"{escape(file.path)}: has {file.pages.size:,} bytes, not the {size:,} of {slots:,} slots "
                f"and {items:,} items: looked into all the same",
                lost=file.pages.size < size,
            )
        read = file.pages.read
        hits = index_header.all_hits(read, index_header.LookupHeader(header.index_count, slots, items), key_hash)
        yield from hits
        if hits.end == index_header.FOUND_ALL and header.index_count > 1:
            return
        # A header that counts too few items hides the others: what lies in the file is looked at, too.
        hidden = list(index_header.all_hits(read, index_header.LookupHeader(items, slots, items), key_hash))
        if hits.end != index_header.FOUND_ALL or hidden:
            fault = hits.end if hits.end != index_header.FOUND_ALL else "indexCount is below the number of items"
            self._notes.add(
                "broken IndexFile",
                f"{escape(file.path)}: {fault}: some of its entries may not be found; --scan reads the log instead, and "
                "`rmq-reindex build STORE --out DIR --only index,checkpoint` makes it anew",
            )
        yield from hidden

    def close(self) -> None:
        for file in self.files:
            file.pages.close()
