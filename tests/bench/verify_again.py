"""What an hourly verify costs: ``python -m tests.bench.verify_again``.

A log gets one more segment. Prints seconds and bytes read of a full verify of the build, and of incremental ones: the first of
the log, one when the segment has come, one when nothing has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.incremental import make


def run(name: str, *words: str) -> dict[str, Any]:
    """One command as a process of its own, with what it says of itself."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "rocketmq_reindex", *words, "--json"]
    found = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    summary: dict[str, Any] = json.loads(found.stdout)
    if summary["exit"]:
        raise SystemExit(f"{name}: {summary['error'] or summary['findings']}")
    wall, told = time.monotonic() - begin, summary.get("incremental") or {}
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in summary["seconds"].items())
    print(
        f"{name:<28} {wall:6.1f} s ({stages})  read {told.get('bytes_read', summary['bytes']) / 1e6:9,.1f} MB"
        f"  ranges known {told.get('ranges_known', 0):3} of {told.get('ranges', 0):3}",
        flush=True,
    )
    return summary


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=10)
    parser.add_argument("--segment-size", type=int, default=32 << 20)
    parser.add_argument("--queues", type=int, default=64)
    parser.add_argument("--body", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="for the log and the build (a temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="verify-again-", dir=given.folder) as name:
        root = Path(name)
        log, last, out = root / "store" / "commitlog", root / "last", str(root / "out")
        records = make(root / "store", given.segments, given.segment_size, given.queues, given.body)
        size = sum(path.stat().st_size for path in log.iterdir())
        print(f"{given.segments} segments of {given.segment_size >> 20} MiB, {records:,} records, {given.queues} queues")
        newest = max(log.iterdir())
        os.rename(newest, last)
        build = ["build", str(root / "store"), "--out", out, "--incremental", "--tables", str(root / "tables")]
        verify = ["verify", out, "--commitlog", str(log)]
        again = [*verify, "--incremental", "--tables", str(root / "tables")]
        run("build, one segment less", *build)
        run("first incremental verify", *again)
        os.rename(last, newest)
        run("incremental build", *build)
        run("incremental verify, 1 more", *again)
        run("incremental verify, no more", *again)
        run("full verify", *verify)
        for scans in sorted((root / "tables" / "_scans").iterdir()):
            kept = sum(path.stat().st_size for path in scans.rglob("*") if path.is_file())
            print(f"{scans.name}: {kept / 1e6:,.1f} MB, {100 * kept / size:.1f} % of the log")
    return 0


if __name__ == "__main__":
    sys.exit(main())
