"""A queue as the log holds it: its records and the damage between them, drawn for the tests of queue order."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from rocketmq_reindex.storage_format.queue.cells import QueueBlock
from rocketmq_reindex.storage_format.queue.order import Run
from rocketmq_reindex.storage_format.queue.placement import PlacementTable
from tests.reference.queue_order import Unit

QUEUE, OTHER = 3, 1


@dataclass
class QueueLog:
    """``units``: the queue's records in commitlog order; ``lost``: [start, end) of damage between records."""

    units: list[Unit] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)

    @property
    def holes(self) -> list[int]:
        return [start for start, _ in self.lost]


STEP = st.one_of(
    st.just("next"),
    st.just("next"),
    st.just("next"),
    st.sampled_from(["zero", "again", "one", "same"]),
    st.tuples(st.sampled_from(["jump", "back"]), st.integers(1, 6)),
)
STEPS = st.lists(st.tuples(STEP, st.sampled_from(["", "", "", "", "hole", "other"])), max_size=40)


def make_log(first: int, steps: list[tuple[str | tuple[str, int], str]]) -> QueueLog:
    """Records at offsets that go on, repeat, jump and go back, with damage or other queues' records between some."""
    log, place, offset = QueueLog(), 1000, first - 1
    for number, (step, before) in enumerate(steps):
        if before:
            place += 70
        if before == "hole":
            log.lost.append((place - 70, place))
        if isinstance(step, tuple):
            offset = max(0, offset + (step[1] if step[0] == "jump" else -step[1]))
        else:
            offset = {"next": offset + 1, "zero": 0, "again": first, "one": 1, "same": max(offset, 0)}[step]
        size = 100 + number
        log.units.append(Unit(place, size, 7000 + number, offset))
        place += size
    return log


LOGS = st.builds(make_log, st.sampled_from([0, 0, 5, 100]), STEPS)


def blocks_of(log: QueueLog, cuts: list[int]) -> list[QueueBlock]:
    """The queue's records as ranges see them: in blocks, among another queue's records."""
    edges = sorted({0, len(log.units), *(cut % (len(log.units) + 1) for cut in cuts)})
    blocks = []
    for low, high in itertools.pairwise(edges):
        rows = []
        for unit in log.units[low:high]:
            rows.append((QUEUE, unit.queue_offset, unit.record, unit.size, unit.tags_code))
            rows.append((OTHER, unit.queue_offset + 1, unit.record, unit.size, -1))
        table = np.array(rows, dtype=np.int64)
        queue, size = table[:, 0].astype(np.int32), table[:, 3].astype(np.int32)
        blocks.append(QueueBlock(queue, table[:, 1], table[:, 2], size, table[:, 4], QUEUE + 1))
    return blocks


def runs_of(blocks: list[QueueBlock]) -> list[Run]:
    """The queue's runs as a reducer gets them: those of all blocks in commitlog order."""
    runs: list[Run] = []
    for block in blocks:
        queue, columns = block.runs()
        for first, rows, place, end in columns[:, queue == QUEUE].T.tolist():
            runs.append(Run(first, rows, place, end))
    return sorted(runs, key=lambda run: run.phy_offset)


def stand(blocks: list[QueueBlock], table: PlacementTable) -> dict[int, tuple[int, int, int]]:
    """{position: (place, size, tagsCode)} of all units that a placement puts somewhere. No position is taken twice."""
    found: dict[int, tuple[int, int, int]] = {}
    for block in blocks:
        rows = block.columns[:, block.bounds[QUEUE] : block.bounds[QUEUE + 1]]
        for position, place, size, tags_code in table.apply(rows).T.tolist():
            assert position not in found
            found[position] = (place, size, tags_code)
    return found
