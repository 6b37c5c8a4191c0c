"""Units of batch ConsumeQueues: their layout, the runs their order is judged from, and the task that writes them."""

from __future__ import annotations

import random
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.storage_format.queue import cells
from rocketmq_reindex.storage_format.queue.consume_queue import batch_runs, batch_units
from rocketmq_reindex.storage_format.queue.order import Run
from rocketmq_reindex.storage_format.queue.placement import BatchPlacement, order_logical
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write.queues import FilesResult, WriteBatches
from tests.tools.batch_log import batch_files, batch_queue

Unit = tuple[int, int, int, int, int, int]
"""As ``cells.BATCH_COLUMNS``: first queue offset, place, size, tagsCode, store time, messages."""


def columns(units: list[Unit]) -> npt.NDArray[np.int64]:
    table: npt.NDArray[np.int64] = np.array(units, dtype=np.int64).reshape(-1, 6)
    return np.ascontiguousarray(table.T)


def units_of(spans: list[tuple[int, int]], place: int = 0) -> list[Unit]:
    return [(base, place + 100 * k, 90 - k % 7, -k, 1000 + k, count) for k, (base, count) in enumerate(spans)]


def test_the_layout() -> None:
    image = batch_units(columns([(7, 2**40, 123, -5, 1700, 32767)])).tobytes()
    assert BATCH_UNIT_SIZE == len(image) == 46
    assert struct.unpack(">qiqqqhii", image) == (2**40, 123, -5, 1700, 7, 32767, -1, 0)


def test_runs(seed: int) -> None:
    """Stretches without a gap, however short; units without a message belong to none."""
    rng = random.Random(seed)
    spans, base = [], 0
    for _ in range(300):
        base += rng.choice((0, 0, 0, 5, -3 if base > 3 else 0))
        spans.append((base, rng.choice((0, 1, 2, 30))))
        base += spans[-1][1]
    units = units_of(spans)
    runs = batch_runs(columns(units)).T.tolist()
    counted = [unit for unit in units if unit[5]]
    assert sum(run[4] for run in runs) == len(counted)
    at = 0
    for first, messages, place, end, records in runs:
        mine, at = counted[at : at + records], at + records
        assert (first, place, end) == (mine[0][0], mine[0][1], mine[-1][1] + mine[-1][2])
        assert messages == sum(unit[5] for unit in mine)
        assert records != 2
        assert all(after[0] == before[0] + before[5] for before, after in pairwise(mine))
    assert batch_runs(columns([])).shape == batch_runs(columns(units_of([(3, 0)]))).shape == (cells.BATCH_RUN_COLUMNS, 0)


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_placement_goes_block_by_block(cut: int) -> None:
    """A life that ends inside a batch, a gap, a record out of line: the same for every way the units come."""
    spans = [(0, 20), (20, 20), (40, 20), (25, 5), (30, 5), (35, 5), (100_000, 9), (140, 1), (141, 1), (142, 1), (60, 2)]
    units = units_of(spans)
    order = order_logical([Run(*run) for run in batch_runs(columns(units)).T.tolist()], [])
    assert [one.phy_offset for one in order.lost] == [600]
    assert order.decisions[-1] == ("pending", 60, 1)
    placement = BatchPlacement(order.kept, order.fills)
    placed = [placement.apply(columns(units[low : low + cut])) for low in range(0, len(units), cut)]
    expected = [(0, 20), (20, 5), (25, 5), (30, 5), (35, 5), (40, 100), (140, 1), (141, 1), (142, 1)]
    assert [(row[0], row[5]) for block in placed for row in block.T.tolist()] == expected
    assert order_logical([Run(0, 20, 0, 90, 1), Run(20, 40, 100, 290, 2)], []).lost == []


def row(bucket: int, queue: int, units: list[Unit]) -> handover.Row:
    cell = cells.pack([b"B"], np.array([queue], np.int32), np.array([len(units)], np.int32), columns(units))
    return handover.Row(handover.BATCHES, bucket, 0, 0, cell, units[0][1])


def test_queues_that_share_a_bucket(tmp_path: Path) -> None:
    """Buckets are hashes: cells of two queues may come in turns."""
    staging = StagingFolder(str(tmp_path))
    staging.make()
    parts = [units_of([(5 * k + at, 1) for at in range(5)], 1000 * k) for k in range(4)]
    rows = [row(1, queue, part) for part in parts for queue in (0, 1)] + [row(2, 2, parts[0])]
    result = FilesResult.from_json(next(WriteBatches(staging, 46 * 8, "", False)(handover.batches(rows))).column(0)[0].as_py())
    for queue in (0, 1):
        assert [unit[4] for unit in batch_queue(Path(staging.tree), "B", queue)] == list(range(20))
    assert [unit[4] for unit in batch_queue(Path(staging.tree), "B", 2)] == list(range(5))
    assert (result.files, result.units, result.bytes) == (7, 45, 45 * 46)
    assert len(Path(result.part).read_text().splitlines()) == len(batch_files(Path(staging.tree))) == 7
    assert not list(Path(staging.temporary).iterdir())


def test_a_task_that_fails_leaves_no_file(tmp_path: Path) -> None:
    staging = StagingFolder(str(tmp_path))
    staging.make()
    rows = [row(1, 0, units_of([(0, 1)])), handover.Row(handover.BATCHES, 1, 0, 0, b"no cell", 1)]
    with pytest.raises(ValueError, match="buffer"):
        list(WriteBatches(staging, 46 * 8, "", False)(handover.batches(rows)))
    assert not list(Path(staging.temporary).iterdir())
    assert batch_files(Path(staging.tree)) == {}
