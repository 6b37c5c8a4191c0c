"""How fast ``rr.messages`` reads a log of 1 KiB records: all columns, and headers without bodies.

``python -m tests.bench.messages [--gib 8]`` makes the log in .bench/ once, and prints MB of log a second, the best of three.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import rocketmq_reindex as rr
from tests.bench.logs import BENCH, log_bytes, warm_page_cache
from tests.bench.template_log import write_log

RECORD = 1024
BODY = 866
WAYS: dict[str, dict[str, Any]] = {
    "all columns": {},
    "no bodies": {"body": "none"},
    "headers alone": {
        "body": "none",
        "columns": ["topic", "queueId", "consumeQueueOffset", "commitLogOffset", "msgSize", "storeTimestamp"],
    },
}


def made(gib: int) -> Path:
    """The store, with ``gib`` segments of 1 GiB."""
    store = BENCH / f"messages-{gib}"
    if not store.exists():
        count = gib * ((1 << 30) // RECORD - 1)
        queues = np.random.default_rng(1).integers(0, 64, count).astype(np.int32)
        write_log(store.with_name(f".making-{store.name}") / "commitlog", queues, queues_a_topic=8, body=BODY)
        store.with_name(f".making-{store.name}").rename(store)
    return store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=int, default=8)
    store = made(parser.parse_args().gib)
    size = log_bytes(store)
    warm_page_cache(store)
    for name, keywords in WAYS.items():
        best, rows = float("inf"), 0
        for _ in range(3):
            began = time.perf_counter()
            rows = sum(batch.num_rows for batch in rr.messages(store, **keywords))
            best = min(best, time.perf_counter() - began)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"{name:14} {rows:,} rows, {size / best / 1e6:,.0f} MB/s, {best:.1f} s, peak memory {peak:,} MiB")


if __name__ == "__main__":
    main()
