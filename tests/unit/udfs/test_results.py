"""What is told of a queue with more lost records than are listed one by one."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.queue.order import OutOfLine, Placement
from rocketmq_reindex.udfs import queue_order


@pytest.mark.parametrize("listed", [1, 2, 3])
def test_the_rest_of_the_lost_records_is_one_stretch(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_order, "LISTED_MAX", listed)
    lost = [OutOfLine(100 * number, 10 + number, 7) for number in range(1, 5)]
    found = queue_order.odd_queue(b"T", 3, Placement(lost=lost))
    assert [(one.phy_offset, one.size) for one in found.lost] == [(100 * k, 10 + k) for k in range(1, listed + 1)]
    assert found.more_lost == queue_order.MoreLost(
        4 - listed, 100 * (listed + 1), 414, sum(10 + k for k in range(listed + 1, 5))
    )
    monkeypatch.setattr(queue_order, "LISTED_MAX", 4)
    assert queue_order.odd_queue(b"T", 3, Placement(lost=lost)).more_lost is None
