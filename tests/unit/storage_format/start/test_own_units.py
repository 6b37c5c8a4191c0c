"""The units that a start gives a queue are the same wherever they lie: blanks, the spool, memory."""

from __future__ import annotations

import random

import numpy as np

from rocketmq_reindex.jobs.preflighting.spool import TemporarySpool
from rocketmq_reindex.storage_format.start.own_units import OwnUnits, QueueNumbers


def test_any_steps(seed: int) -> None:
    rng = random.Random(seed)
    with TemporarySpool() as spool:
        numbers = QueueNumbers()
        units, wanted = OwnUnits(spool, numbers, numbers.add()), list[tuple[int, int]]()
        for step in range(300):
            match rng.randrange(4):
                case 0:
                    units.spill()
                case 1:
                    count = rng.randrange(len(wanted) + 2)
                    units.truncate(count)
                    del wanted[count:]
                case _:
                    more = [(1000 * step + number, 100 + number) for number in range(rng.randrange(1, 6))]
                    units.extend(np.array([at for at, _ in more], np.int64), np.array([size for _, size in more], np.int32))
                    wanted += more
            assert units.count == len(wanted)
            phy_offset, size = units.read(0, len(wanted))
            assert list(zip(phy_offset.tolist(), size.tolist(), strict=True)) == wanted
