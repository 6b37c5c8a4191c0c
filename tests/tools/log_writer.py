"""Writes synthetic commitlogs, segment after segment, as the broker lays them out."""

from dataclasses import dataclass, replace
from pathlib import Path

from tests.tools.encode import COMMIT, MIN_BLANK, ROLLBACK, Message, blank, encode, property_bytes

_HOLE = 1 << 24


@dataclass(frozen=True)
class Put:
    """Where a message went: physical offset, bytes, position in its queue."""

    offset: int
    size: int
    queue_offset: int
    message: Message


class LogWriter:
    """Appends messages to `folder`/{20 digits}, rolling to a new segment where the broker would.

    Queue offsets count up per (topic, queue), prepared and rollback records get 0. LMQ offsets count
    up per (name, queue); records that a 5.x broker does not dispatch to LMQs name the next but do not take it.
    Use as a context manager, or call close(): the last segment is then filled with zeros.
    """

    def __init__(self, folder: Path, segment_size: int = 1 << 16, first_offset: int = 0) -> None:
        if first_offset % segment_size:
            raise ValueError("the first segment starts at a multiple of the segment size")
        self.folder = folder
        self.segment_size = segment_size
        self.base = first_offset
        self.segment = bytearray()
        self.puts: list[Put] = []
        self.queue_ends: dict[tuple[str | bytes, int], int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "LogWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def end(self) -> int:
        return self.base + len(self.segment)

    def place(self, size: int) -> int:
        """Where a record of `size` bytes would begin."""
        if size + MIN_BLANK > self.segment_size:
            raise ValueError(f"a record of {size} bytes does not fit a segment of {self.segment_size}")
        room = self.segment_size - len(self.segment)
        return self.base + self.segment_size if size + MIN_BLANK > room else self.end

    def append(self, message: Message) -> Put:
        message, queue_offset = self._number(message)
        record = encode(message, self.end, queue_offset)
        if self.place(len(record)) != self.end:
            self.roll()
            record = encode(message, self.end, queue_offset)
        self.puts.append(Put(self.end, len(record), queue_offset, message))
        self.segment += record
        return self.puts[-1]

    def append_raw(self, data: bytes) -> int:
        """Bytes as they are, at the log's end; returns their offset."""
        offset = self.end
        self.segment += data
        return offset

    def roll(self) -> None:
        """End the segment with a BLANK filler and begin the next one."""
        rest = self.segment_size - len(self.segment)
        if rest:
            self.segment += blank(rest)
        self._write()
        self.base += self.segment_size
        self.segment = bytearray()

    def close(self) -> None:
        """Write the last segment, its rest zeros."""
        self._write()

    def _write(self) -> None:
        if len(self.segment) > self.segment_size:
            raise ValueError("raw bytes ran over the segment's end")
        rest = self.segment_size - len(self.segment)
        with (self.folder / f"{self.base:020d}").open("wb") as file:
            file.write(self.segment)
            # The zeros of a large file are a hole: to write them takes longer than all else.
            file.write(bytes(rest if rest < _HOLE else 0))
            file.truncate(self.segment_size)

    def _peek(self, name: str | bytes, queue_id: int) -> int:
        return self.queue_ends.get((name, queue_id), 0)

    def _take(self, name: str | bytes, queue_id: int) -> int:
        number = self._peek(name, queue_id)
        self.queue_ends[name, queue_id] = number + 1
        return number

    def _number(self, message: Message) -> tuple[Message, int]:
        """The message with its LMQ properties, and its queue offset."""
        dispatched = message.sysflag & ROLLBACK in (0, COMMIT)
        if message.lmq:
            count = self._take if dispatched and not _without_lmq(message.topic) else self._peek
            offsets = [count(n, 0 if n.startswith("%LMQ%") else message.queue_id) for n in message.lmq]
            more = {
                "INNER_MULTI_DISPATCH": ",".join(message.lmq),
                "INNER_MULTI_QUEUE_OFFSET": ",".join(str(o) for o in offsets),
            }
            own = property_bytes(message.properties)
            own += b"\x02" if own and not own.endswith(b"\x02") else b""
            message = replace(message, properties=own + property_bytes(more))
        if message.queue_offset is not None:
            if dispatched:
                self.queue_ends[message.topic, message.queue_id] = message.queue_offset + 1
            return message, message.queue_offset
        return message, self._take(message.topic, message.queue_id) if dispatched else 0


def _without_lmq(topic: str | bytes) -> bool:
    """Topics that MultiDispatchUtils leaves alone."""
    name = topic.encode() if isinstance(topic, str) else topic
    return name.startswith((b"%RETRY%", b"rmq_sys_")) or name == b"SCHEDULE_TOPIC_XXXX"


def overwrite(folder: Path, offset: int, data: bytes) -> None:
    """Change bytes of a commitlog, inside of one segment."""
    path = max(path for path in folder.iterdir() if int(path.name) <= offset)
    with path.open("r+b") as file:
        file.seek(offset - int(path.name))
        file.write(data)
