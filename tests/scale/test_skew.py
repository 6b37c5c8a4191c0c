"""A hot queue among small ones: the work of writing it is spread over all tasks, and small queues share few tasks."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.jobs.engines.engine import TASKS_PER_CORE, plan_shuffle
from rocketmq_reindex.jobs.spark.engine import bucket_keys
from rocketmq_reindex.storage_format.queue.cells import bucket_of
from tests.bench.template_log import message_of, write_log
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter

FILE_UNITS = 300_000


def loads(hot: int, small: int, buckets: int, cores: int) -> npt.NDArray[np.float64]:
    """Units that each task writes: ``hot`` messages of one queue and 1,000 each of ``small`` others."""
    parts = -(-hot // FILE_UNITS)
    crc = np.array([zlib.crc32(b"topic-%06d" % k) for k in range(small + 1)], np.uint32)
    crc = np.concatenate([np.repeat(crc[:1], parts), crc[1:]])
    part = np.concatenate([np.arange(parts), np.zeros(small, np.int64)])
    units = np.concatenate([np.full(parts, hot / parts), np.full(small, 1_000.0)])
    partitions, count = plan_shuffle(buckets, cores, 0)
    keys = np.array(bucket_keys(count, partitions))[bucket_of(crc, np.zeros(len(crc), np.int32), part, count)]
    _, task = np.unique(keys, return_inverse=True)
    written: npt.NDArray[np.float64] = np.zeros(partitions)
    np.add.at(written, task, units)
    return written


@pytest.mark.parametrize(("hot", "buckets", "cores"), [(10_000_000, 6, 2), (10_000_000, 16, 2), (1_000_000_000, 500, 16)])
def test_a_hot_queue_keeps_all_tasks_busy(hot: int, buckets: int, cores: int) -> None:
    found = loads(hot, 1_000, buckets, cores)
    assert len(found) <= TASKS_PER_CORE * cores
    files_each = hot / FILE_UNITS / len(found)
    # No task has more than one file, or a tenth, above its share.
    assert found.max() < (1.1 + 1 / files_each) * found.mean()


def test_small_queues_share_few_tasks() -> None:
    found = loads(1, 100_000, 16, 2)
    assert len(found) == 8
    assert found.max() < 1.1 * found.mean()


def test_the_fast_writer_writes_what_the_plain_one_does(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    queues = rng.integers(0, 20, 1_000).astype(np.int32)
    write_log(tmp_path / "fast", queues, 4, body=50, segment_size=1 << 16)
    with LogWriter(tmp_path / "plain", 1 << 16) as writer:
        for number, queue in enumerate(queues.tolist()):
            writer.append(message_of(number, queue, 4, 50))
    fast, plain = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("fast", "plain"))
    assert fast == plain
    engine = InlineEngine(bucket_count=16, partitions=8)
    summary = local_build("", tmp_path / "out", engine, commitlogs=(str(tmp_path / "fast"),), **SMALL)
    assert (summary.exit, summary.records, summary.units, summary.items) == (0, 1_000, 1_000, 3_000)
