"""Real stores take a log with fillers in the place of records: whole, and with no unit and no index item for them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketmq_reindex.storage_format.repair import Demands, fillers, lost_pieces
from tests.preflight.disk import read_disk
from tests.preflight.real import RealStart, RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import VERSIONS
from tests.tools.encode import EPOCH
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message
from tests.tools.tiers import ends

SEGMENT = 1 << 14
SIZES = Sizes(SEGMENT, cq_file=2000, hash_slots=50, index_items=2000)
RECORDS = 400
PLAIN = Demands()
CRC = Demands(property_crc=True)
BOTH = Demands(property_crc=True, dup_info=True)


class Filled(NamedTuple):
    """A store whose log has fillers: ``lost`` are the bytes [low, high) that they stand for, ``end`` is the log's end."""

    store: Path
    puts: list[Put]
    lost: list[tuple[int, int]]
    end: int

    @property
    def kept(self) -> list[Put]:
        """The records that are no fillers."""
        return [put for put in self.puts if not any(low <= put.offset < high for low, high in self.lost)]

    def fill(self, low: int, high: int, demands: Demands, sizes: Sequence[int] = ()) -> None:
        """Put fillers of these ``sizes``, and one for the rest, over [low, high)."""
        time, at = self._time(low), low
        for size in sizes:
            self._write(at, b"".join(fillers(at, size, time, demands)))
            at += size
        self._write(at, b"".join(fillers(at, high - at, time, demands)))
        self.lost.append((low, high))

    def lose(self, low: int, high: int, demands: Demands) -> None:
        """Put over [low, high) of one segment what a repair puts there."""
        start = low // SEGMENT * SEGMENT
        pieces = lost_pieces(low, high, (start, start + SEGMENT), self._time(low), demands)
        assert pieces
        for piece in pieces:
            self._write(piece.low, b"".join(piece.made()).ljust(piece.size, b"\0"))
        self.lost.append((low, high))

    def _time(self, low: int) -> int:
        return max((put.message.store_timestamp for put in self.puts if put.offset < low), default=EPOCH)

    def _write(self, at: int, data: bytes) -> None:
        path = self.store / "commitlog" / f"{at // SEGMENT * SEGMENT:020d}"
        with path.open("r+b") as file:
            file.seek(at % SEGMENT)
            file.write(data)


def filled(store: Path, demands: Demands) -> Filled:
    """A log of several segments: lost are records in the middle, at a segment's start and end, all of one, and the last one."""
    more = {"DUP_INFO": "0_0"} if demands.dup_info else {}
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(RECORDS):
            writer.append(
                Message(
                    queue_id=number % 3, body=bytes(20 + 37 * number % 90), properties={"KEYS": f"key-{number}", **more},
                    store_timestamp=EPOCH + number, crc_property=demands.property_crc,
                )
            )  # fmt: skip
        found = Filled(store, writer.puts, [], writer.end)
    puts, least = found.puts, demands.filler_min
    of_segment = [[put for put in puts if put.offset // SEGMENT == number] for number in range(found.end // SEGMENT + 1)]
    assert len(of_segment) >= 5
    # The smallest fillers that there are, one byte more each, and records one by one.
    run = puts[20:30]
    sizes = [*range(least, least + 5), least]
    found.fill(run[0].offset, run[-1].offset + run[-1].size, demands, sizes)
    one = puts[40]
    found.fill(one.offset, one.offset + one.size, demands)
    first = of_segment[1][:3]
    found.fill(first[0].offset, first[-1].offset + first[-1].size, demands, [least])
    found.lose(of_segment[1][-2].offset, 2 * SEGMENT, demands)
    found.lose(2 * SEGMENT, 3 * SEGMENT, demands)
    last = puts[-1]
    found.fill(last.offset, last.offset + last.size, demands)
    return found


def check(told: RealStart, log: Filled, items_from: int = 0) -> None:
    """All of the log is there, and the queues serve exactly the records that are no fillers, in their order.

    ``items_from``: the index has the records from that offset on.
    """
    assert told.loads, told.reason
    assert (told.min_offset, told.max_offset, told.behind) == (0, log.end, 0)
    # A broker asks for the queues of delayed messages: they have no unit.
    queues = {name: queue for name, queue in (told.queues or {}).items() if queue.max_offset}
    assert sorted(queues) == [("TopicA", number) for number in range(3)]
    for number in range(3):
        served = [at for at in queues["TopicA", number].served if at >= 0]
        assert served == [put.offset for put in log.kept if put.message.queue_id == number]
    disk = read_disk(log.store, SIZES.hash_slots)
    assert len(disk.segments) >= len({put.offset // SEGMENT for put in log.puts})
    units = sorted(unit[0] for units in disk.units.values() for unit in units.values() if unit[1] != 2**31 - 1)
    assert units == [put.offset for put in log.kept]
    items = sorted(offset for _, offset in disk.all_items())
    assert items == [put.offset for put in log.kept if put.offset >= items_from]


def settings_of(version: str) -> list[tuple[Demands, dict[str, str]]]:
    """The demands of a log, and the settings under which a broker of the version asks for them."""
    found: list[tuple[Demands, dict[str, str]]] = [(PLAIN, {})]
    if version >= "5":
        found.append((CRC, {"forceVerifyPropCRC": "true"}))
    if version >= "5.5":
        found.append((PLAIN, {"enableAcceleratedRecovery": "true"}))
    return found


@pytest.mark.parametrize("version", ends(VERSIONS))
def test_a_log_with_fillers(version: str, tmp_path: Path) -> None:
    """A bare log, with and without ``abort``; then again with what the store has made, with a checkpoint and ``abort``."""
    with RealStores(version, tmp_path / "java") as real:
        for number, (demands, more) in enumerate(settings_of(version)):
            log, conf = filled(tmp_path / f"log-{number}", demands), Conf(SIZES, more)
            for abort in (False, True):
                store = tmp_path / f"store-{number}-{abort}"
                shutil.copytree(log.store, store)
                mine = log._replace(store=store)
                if abort:
                    (store / "abort").touch()
                check(real.start(store, conf), mine)
                real.close(store)
                assert (store / "checkpoint").stat().st_size
                (store / "abort").touch()
                told = real.start(store, conf)
                # 5.5 leaves no time of the index in the checkpoint: after a crash it makes the index of what it recovers anew.
                check(told, mine, items_from=told.lowest if version >= "5.5" else 0)
                real.leave(store)
