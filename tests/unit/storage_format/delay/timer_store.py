"""What a broker makes of timer files, slot by slot and unit by unit, as ``TimerMessageStore`` does it with their bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocketmq_reindex.storage_format.delay.timer_files import TimerFile

UNIT = struct.Struct(">iqiqiqiiq")
SLOT = struct.Struct(">qqqii")
BLANK = ((0xBBCCDDEE ^ (1880681586 + 8)) + 2**31) % 2**32 - 2**31
WHEEL = 14 * 24 * 3600


@dataclass(frozen=True)
class Read:
    """A unit that a slot led to."""

    time: int
    place: int
    magic: int
    phy_offset: int
    size: int
    topic_hash: int


def content(file: TimerFile) -> bytes:
    """The whole file; its parts ascend and do not overlap."""
    data, end = bytearray(file.size), 0
    for offset, part in file.parts():
        assert offset >= end
        end = offset + len(part)
        data[offset:end] = part
    assert len(data) == file.size
    return bytes(data)


class TimerStore:
    """The files as a broker loads them; ``log_size`` is its mappedFileSizeTimerLog."""

    def __init__(self, files: Iterable[TimerFile], log_size: int, precision: int) -> None:
        named = {file.path: content(file) for file in files}
        self.check = struct.unpack_from(">qqqq", named.pop(("config", "timercheck")))
        self.wheel = named.pop(("timerwheel",))
        assert len(self.wheel) == WHEEL * SLOT.size
        assert list(named) == [("timerlog", f"{i * log_size:020d}") for i in range(len(named))]
        assert all(len(data) == log_size for data in named.values())
        self.log, self.log_size, self.precision = b"".join(named.values()), log_size, precision

    def slot(self, time: int) -> tuple[int, int, int]:
        """first pos, last pos, num of the slot of this time (``TimerWheel.getSlot``)."""
        at, first, last, count, magic = SLOT.unpack_from(self.wheel, time // self.precision % WHEEL * SLOT.size)
        assert magic == 0
        return (first, last, count) if at == time // self.precision else (-1, -1, 0)

    def units(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each unit in the log's order, until one that is none (``recoverAndRevise``)."""
        for start in range(0, len(self.log), self.log_size):
            for place in range(start, start + self.log_size - UNIT.size, UNIT.size):
                size, _, magic = struct.unpack_from(">iqi", self.log, place)
                if magic == BLANK:
                    assert size == start + self.log_size - place
                    break
                if size != UNIT.size or magic | 0xF != 0xF:
                    return
                yield place, UNIT.unpack_from(self.log, place)

    def slots(self) -> list[int]:
        """The times of all slots that have units."""
        times = (SLOT.unpack_from(self.wheel, at)[:3] for at in range(0, len(self.wheel), SLOT.size))
        return sorted(time * self.precision for time, _, last in times if time)

    def delivered(self, until: int) -> list[list[Read]]:
        """The units of each slot from lastReadTimeMs up to ``until``, without it, as ``dequeue`` reads them."""
        found = []
        for time in range(self.check[0], until, self.precision):
            _, place, _ = self.slot(time)
            chain = []
            while place != -1:
                size, previous, magic, _, _, phy_offset, record_size, topic_hash, reserved = UNIT.unpack_from(self.log, place)
                assert (size, reserved) == (UNIT.size, 0)
                chain.append(Read(time, place, magic, phy_offset, record_size, topic_hash))
                place = previous
            if chain:
                found.append(chain[::-1])
        return found
