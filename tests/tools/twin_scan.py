"""Scan small logs and do what else is compiled; print all of it. Run with and without numba by test_python_twin.

python -m tests.tools.twin_scan SEGMENT_SIZE: reads folders, one a line, and prints a line for each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numba
import numpy as np

from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.queue.cells import QueueBlock
from rocketmq_reindex.storage_format.record.layout import CRC_ALL
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.scans import MemoryLog, scan_log


def everything(folder: Path, segment_size: int) -> str:
    """Units, items, makers, summaries, holes, grouped units and linked items as JSON."""
    log = MemoryLog(folder, segment_size)
    out: dict[str, object] = {}
    for version, lmq in (("5.5", True), ("4.9", False)):
        settings = ScanSettings(CRC_ALL, version, lmq, delays=(1000, 5000), window=60_000, chunk=4096, block_rows=4000)
        first, last = log.segments[0].start, log.segments[-1].data_end
        scan = scan_log(log, list(range(first, last, 5000)), settings)
        units, items = np.array([unit[1:] for unit in scan.units]), np.array(scan.items)
        queue = (units[:, 0] % 3).astype(np.int32)
        block = QueueBlock(queue, units[:, 1], units[:, 2], units[:, 3].astype(np.int32), units[:, 4], 3)
        slots, prev = np.zeros(97, np.int32), np.zeros(len(items), np.int32)
        words = np.zeros((len(items), ix.WORDS), np.uint32)
        words[:, 4], words[:, 2] = items[:, 0], items[:, 2] & 0xFFFFFFFF
        words[:, 3] = items[:, 2] >> 32
        used = ix.link_items(words, 1, slots, prev)
        packed = np.zeros_like(words)
        ix.pack_items(words, prev, int(items[0, 2]), 0, True, packed)
        out[version] = {
            "units": scan.units,
            "items": scan.items,
            "found": {number: (json.loads(f.summary.to_json()), f.makers, f.blocks) for number, f in scan.found.items()},
            "holes": [vars(hole) for hole in scan.chain.holes],
            "grouped": block.columns.tolist(),
            "linked": [used, slots.tolist(), prev.tolist()],
            "packed": packed.tolist(),
        }
    return json.dumps(out, default=int)


if __name__ == "__main__":
    print("plain" if numba.config.DISABLE_JIT else "compiled")
    for line in sys.stdin:
        print(everything(Path(line.rstrip("\n")), int(sys.argv[1])), flush=True)
