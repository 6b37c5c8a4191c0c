"""What an hourly run costs: ``python -m tests.bench.incremental``.

100 segments are there, the last one of which came after the build before. Prints seconds and bytes read of the incremental run,
of one that finds nothing new, and of the full build, by itself and with its rows in the Delta tables, as the incremental run
writes them; compares what the two wrote.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.bench.template_log import message_of, write_log
from tests.tools.encode import MIN_BLANK, encode

QUEUES_A_TOPIC = 8


def make(store: Path, segments: int, segment_size: int, queues: int, body: int) -> int:
    """A log of so many segments, the last one full as well; returns its records."""
    size = len(encode(message_of(0, 0, QUEUES_A_TOPIC, body), 0))
    records = (segment_size - MIN_BLANK) // size * segments
    numbers = np.random.default_rng(1).integers(0, queues, records).astype(np.int32)
    write_log(store / "commitlog", numbers, QUEUES_A_TOPIC, body, segment_size)
    return records


def run(name: str, *words: str) -> dict[str, Any]:
    """One build as a process of its own, with what it says of itself."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "rocketmq_reindex", "build", *words, "--json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    summary: dict[str, Any] = json.loads(found.stdout)
    if summary["exit"]:
        raise SystemExit(f"{name}: {summary['error']}")
    wall, told = time.monotonic() - begin, summary.get("incremental") or {}
    print(
        f"{name:<24} {wall:7.1f} s (session {summary['seconds']['session']:.1f}, build {summary['seconds']['build']:.1f})"
        f"  read {told.get('bytes_read', summary['bytes']) / 1e6:9,.1f} MB"
        f"  ranges known {told.get('ranges_known', 0):3} of {told.get('ranges', 0):3},  files kept {told.get('files_kept', 0)}",
        flush=True,
    )
    return summary


def alike(one: Path, other: Path) -> bool:
    names = [sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()) for root in (one, other)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(one, other, names[0], shallow=False)[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--segment-size", type=int, default=32 << 20)
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--body", type=int, default=300)
    parser.add_argument("--index-items", type=int, default=1_000_000, help="of an IndexFile: so that a small log has many")
    parser.add_argument("--cq-file-size", type=int, default=600_000)
    parser.add_argument("--master", default="")
    parser.add_argument("--folder", type=Path, help="for the log and the builds (a temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="incremental-", dir=given.folder) as name:
        root = Path(name)
        store, last = root / "store", root / "last"
        records = make(store, given.segments, given.segment_size, given.queues, given.body)
        size = sum(path.stat().st_size for path in (store / "commitlog").iterdir())
        print(f"{given.segments} segments of {given.segment_size >> 20} MiB, {records:,} records, {given.queues} queues")
        newest = max((store / "commitlog").iterdir())
        os.rename(newest, last)
        words = [str(store), "--index-items", str(given.index_items), "--hash-slots", str(given.index_items // 4)]
        words += ["--cq-file-size", str(given.cq_file_size), *(["--master", given.master] if given.master else [])]
        kept = ["--out", str(root / "out"), "--incremental", "--tables", str(root / "tables")]
        run("first, one segment less", *words, *kept)
        os.rename(last, newest)
        run("incremental, 1 more", *words, *kept)
        run("nothing new", *words, *kept)
        run("full", *words, "--out", str(root / "full"))
        run("full, recorded as well", *words, "--out", str(root / "full"), "--overwrite", "--tables", str(root / "tables"))
        scans = sum(path.stat().st_size for path in (root / "tables").rglob("*") if path.is_file())
        print(f"the scan store has {scans / 1e6:,.1f} MB, {100 * scans / size:.1f} % of the log")
        same = alike(root / "out", root / "full")
        print("both wrote the same bytes" if same else "the two builds differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
