"""Images of records by the thousand, each long: a search takes time by the log's bytes, however they are cut into ranges."""

from __future__ import annotations

import time
from math import inf

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.unit.storage_format.scan.test_many_images import all_as_long, all_to_the_end

MIB = 1 << 20


ROUNDS, MOST_ROUNDS = 3, 20


def seconds(log: bytearray, high: int) -> float:
    """CPU time of the scan of ``log`` up to ``high``."""
    data = np.frombuffer(bytes(log), np.uint8)

    def read(at: int, out: npt.NDArray[np.uint8]) -> None:
        out[:] = data[at : at + len(out)]

    scanner = RangeScanner(ScanSettings(block_rows=70_000))
    begin = time.process_time()
    # No chunk to digest begins in the range.
    for _ in scanner.scan(RangeSpec(0, "", -1, len(log) - 1, len(log), 0, high, True), read):
        pass
    took = time.process_time() - begin
    assert scanner.summary.records == 0
    return took


@pytest.mark.parametrize("whole", [True, False])
def test_twice_as_much_takes_twice_as_long(whole: bool) -> None:
    """``whole`` False: the images reach out of the range, so that for each of them more is to be read. 4 would be quadratic."""
    small, large = (all_to_the_end(size * MIB) if whole else all_as_long((2 * size + 1) * MIB, size * MIB) for size in (8, 16))
    high = [len(small), len(large)] if whole else [9 * MIB, 17 * MIB]
    seconds(small, high[0] // 8)  # compiled, or loaded
    # In turn, and the least of each: who shares a core with others takes longer for the same work, for seconds on end.
    before = after = inf
    for turn in range(MOST_ROUNDS):
        before, after = min(before, seconds(small, high[0])), min(after, seconds(large, high[1]))
        if turn + 1 >= ROUNDS and after < 3 * before + 0.05:
            break
    assert after < 3 * before + 0.05
