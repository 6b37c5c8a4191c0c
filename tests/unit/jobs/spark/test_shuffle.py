"""Spark's hash leads each bucket to its task, and cells come by bucket."""

from __future__ import annotations

import struct
from collections import Counter

import mmh3
import pytest

from rocketmq_reindex.jobs.spark.engine import bucket_keys
from rocketmq_reindex.udfs import handover


@pytest.mark.parametrize(("buckets", "partitions"), [(1, 1), (24, 8), (16, 200), (20_480, 256), (500, 500)])
def test_keys_lead_to_partitions(buckets: int, partitions: int) -> None:
    keys = bucket_keys(buckets, partitions)
    assert [mmh3.hash(struct.pack("<i", key), 42) % partitions for key in keys] == [k % partitions for k in range(buckets)]
    filled = Counter(keys).values()
    assert (len(filled), max(filled)) == (min(buckets, partitions), -(-buckets // partitions))


def test_cells_come_by_bucket_across_batches() -> None:
    """In batches of any size, as Spark cuts them; who takes no cell of a bucket gets the next one all the same."""
    rows = [handover.Row(0, k // 5, 0, 0, b"%d" % k, k) for k in range(23)]
    for size in (1, 2, 7, 100):
        cut = [batch for low in range(0, len(rows), size) for batch in handover.batches(rows[low : low + size])]
        taken = [list(cells) for cells in handover.by_bucket(cut)]
        assert taken == [[(b, k, b"%d" % k) for k in range(23) if k // 5 == b] for b in range(5)]
        assert sum(1 for _ in handover.by_bucket(cut)) == 5
    assert list(handover.by_bucket([])) == []
