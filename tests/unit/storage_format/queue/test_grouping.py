"""A block of units grouped by queue: nothing lost, order kept, runs and pieces cut where they must be."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import numpy.typing as npt
from hypothesis import given, strategies as st

from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.cells import QueueBlock, rows_of

Unit = tuple[int, int, int, int, int]
"""queue, queue offset, place, size, tagsCode"""

STEPS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, 1, 1, 1, 0, 2, -3, 50])), max_size=60)


def units_of(steps: list[tuple[int, int]]) -> list[Unit]:
    """Units in commitlog order whose queue offsets go on by the given steps."""
    ends = dict.fromkeys(range(4), 5)
    units = []
    for number, (queue, step) in enumerate(steps):
        ends[queue] = max(0, ends[queue] + step)
        units.append((queue, ends[queue], 100 * number, 50 + number, -number))
    return units


def block_of(units: list[Unit], queues: int = 4) -> QueueBlock:
    table = np.array(units, dtype=np.int64).reshape(-1, 5)
    queue, size = table[:, 0].astype(np.int32), table[:, 3].astype(np.int32)
    return QueueBlock(queue, table[:, 1], table[:, 2], size, table[:, 4], queues)


@given(STEPS)
def test_grouped_by_queue_in_their_order(steps: list[tuple[int, int]]) -> None:
    units = units_of(steps)
    block = block_of(units)
    for queue in range(4):
        low, high = block.bounds[queue : queue + 2]
        assert block.columns[:, low:high].T.tolist() == [list(unit[1:]) for unit in units if unit[0] == queue]
        assert (block.queue[low:high] == queue).all()


@given(STEPS)
def test_runs_say_where_offsets_are_consecutive(steps: list[tuple[int, int]]) -> None:
    units = units_of(steps)
    queues, runs = block_of(units).runs()
    again = {queue: list[int]() for queue in range(4)}
    for queue, (first, rows, place, end) in zip(queues.tolist(), runs.T.tolist(), strict=True):
        mine = [unit for unit in units if unit[0] == queue][len(again[queue]) :][:rows]
        assert (place, end) == (mine[0][2], mine[-1][2] + mine[-1][3])
        again[queue] += range(first, first + rows)
    assert again == {queue: [unit[1] for unit in units if unit[0] == queue] for queue in range(4)}
    # Only pairs are taken apart: what else follows on is one run.
    assert 2 not in runs[1]
    for (queue, (first, rows)), (other, (following, more)) in pairwise(zip(queues.tolist(), runs[:2].T.tolist(), strict=True)):
        if queue == other and first + rows == following:
            assert rows == more == 1


@given(STEPS, st.integers(1, 9))
def test_pieces_keep_to_one_file(steps: list[tuple[int, int]], units_per_file: int) -> None:
    block = block_of(units_of(steps))
    queues, numbers, starts, counts = block.pieces(units_per_file)
    assert rows_of(starts, counts).tolist() == list(range(block.columns.shape[1]))
    for queue, number, start, count in zip(queues, numbers, starts, counts, strict=True):
        rows = slice(int(start), int(start + count))
        assert (block.queue[rows] == queue).all()
        assert (block.columns[0, rows] // units_per_file == number).all()
    for k in range(1, len(queues)):
        assert (queues[k], numbers[k]) != (queues[k - 1], numbers[k - 1])


def test_long_pieces_are_cut_to_fit_a_cell() -> None:
    most = cells.CELL_BYTES // (8 * cells.UNIT_COLUMNS)
    lengths = [most - 1, 2 * most, 3 * most + 1, 0, 1]
    units = [(queue, k, k, 1, 0) for queue, length in enumerate(lengths) for k in range(length)]
    queues, _, starts, counts = block_of(units, 5).pieces(10**9)
    assert queues.tolist() == [0, 1, 1, 2, 2, 2, 2, 4]
    assert counts.tolist() == [most - 1, most, most, most, most, most, 1, 1]
    assert rows_of(starts, counts).tolist() == list(range(len(units)))


def test_no_units() -> None:
    block = block_of([])
    assert [len(part) for part in block.pieces(10)] == [0] * 4
    queues, runs = block.runs()
    assert len(queues) == 0
    assert runs.shape == (cells.RUN_COLUMNS, 0)


def test_grouping_many(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queue: npt.NDArray[np.int32] = rng.integers(0, 500, 200_000, dtype=np.int32)
    place = np.cumsum(rng.integers(100, 200, len(queue)))
    block = QueueBlock(queue, place * 3, place, queue + 1, -place, 700)
    order = np.argsort(queue, kind="stable")
    assert (block.columns == np.stack([place * 3, place, queue + 1, -place])[:, order]).all()
    assert (block.queue == queue[order]).all()
    assert block.bounds[-1] == len(queue)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 5)), max_size=10))
def test_rows_of(slices: list[tuple[int, int]]) -> None:
    starts, counts = (np.array([pair[k] for pair in slices], dtype=np.int64) for k in (0, 1))
    assert rows_of(starts, counts).tolist() == [start + k for start, count in slices for k in range(count)]


def test_random_blocks_cover_everything(seed: int) -> None:
    """However a block is cut in two, the rows of its queues together are the same."""
    rng = random.Random(seed)
    units = units_of([(rng.randrange(4), rng.choice((1, 1, 1, 0, 7))) for _ in range(300)])
    cut = rng.randrange(300)
    whole, parts = block_of(units), [block_of(units[:cut]), block_of(units[cut:])]
    for queue in range(4):
        rows = [part.columns[:, part.bounds[queue] : part.bounds[queue + 1]] for part in parts]
        assert (np.concatenate(rows, axis=1) == whole.columns[:, whole.bounds[queue] : whole.bounds[queue + 1]]).all()
