"""The units that a start gives a queue are the same wherever they lie: blanks, the spool, memory."""

from __future__ import annotations

import random
import sys

import numpy as np

from rocketmq_reindex.jobs.preflighting.folders import TemporarySpool
from rocketmq_reindex.storage_format.broker_start.kept import MemorySpool
from rocketmq_reindex.storage_format.broker_start.own_units import OwnUnits, QueueNumbers


def test_any_steps(seed: int) -> None:
    rng = random.Random(seed)
    with TemporarySpool() as spool:
        numbers = QueueNumbers()
        units, wanted = OwnUnits(spool, numbers, numbers.add()), list[tuple[int, int]]()
        for step in range(300):
            match rng.randrange(40):
                case 0:
                    count = rng.randrange(len(wanted) + 2)
                    units.truncate(count)
                    del wanted[count:]
                case 1 | 2 | 3:
                    count = max(0, len(wanted) - rng.randrange(9))
                    units.truncate(count)
                    del wanted[count:]
                case less if less < 18:
                    units.spill()
                case _:
                    more = [(1000 * step + number, 100 + number) for number in range(rng.randrange(1, 6))]
                    units.extend(np.array([at for at, _ in more], np.int64), np.array([size for _, size in more], np.int32))
                    wanted += more
            assert units.count == len(wanted)
            phy_offset, size = units.read(0, len(wanted))
            assert list(zip(phy_offset.tolist(), size.tolist(), strict=True)) == wanted
            low = rng.randrange(1000 * step + 1)
            high = low + rng.randrange(20_000)
            pointing = list[tuple[int, int, int]]()
            for first, phy_offset, size in units.pointing(low, high):
                pointing += zip(range(first, first + len(size)), phy_offset.tolist(), size.tolist(), strict=True)
            inside = [one for one in pointing if low <= one[1] <= high]
            assert inside == [(number, *unit) for number, unit in enumerate(wanted) if low <= unit[0] <= high]


def test_memory_does_not_grow_with_each_spill() -> None:
    """A log with very many queues spills each of them for every million units."""
    numbers, sizes = QueueNumbers(), list[int]()
    units = OwnUnits(MemorySpool(), numbers, numbers.add())
    for step in range(4096):
        units.extend(np.array([step], np.int64), np.array([100], np.int32))
        units.spill()
        sizes.append(sys.getsizeof(units._blocks))
    assert units.count == 4096
    assert max(sizes) < 1024
