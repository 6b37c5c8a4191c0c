"""A log from a cold disk: its scan beside ``cat`` of the same segments, which are dropped from the page cache before each turn.

    python -m tests.bench.cold [STORE] [--segments 2] [--tasks 2] [--rounds 5]

The scan is that of a build, in so many processes, without what carries and writes its rows. Beside both stands the same scan
with the log in the page cache: where that is longer than ``cat``, the processor is what limits it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from tests.bench.logs import GIB, make_log, segments


def drop(paths: list[Path]) -> None:
    """Have the system forget the pages of these files. Ends the program where it keeps them: their disk would not be cold."""
    os.sync()
    for path in paths:
        handle, size = os.open(path, os.O_RDONLY), path.stat().st_size
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        try:
            os.preadv(handle, [bytearray(1)], size // 2, os.RWF_NOWAIT)
        except BlockingIOError:
            os.close(handle)
        else:
            sys.exit(f"{path}: stays in the page cache: a process has mapped it, or its file system keeps it in memory")


def scan(path: Path, scanner: RangeScanner, let_go: bool) -> int:
    """Scan one segment; returns its records."""
    start, end = int(path.name), int(path.name) + path.stat().st_size
    spec = RangeSpec(0, str(path), start, end, end, start, end, True)
    with SegmentReader(spec.path, start, ahead=end, let_go=let_go) as segment:
        for _ in scanner.scan(spec, segment.read, segment.view):
            pass
    return scanner.summary.records


def scan_all(paths: list[Path], tasks: int, scanner: RangeScanner) -> None:
    """Scan segments in ``tasks`` processes."""
    let_go = files.outgrows_cache(sum(path.stat().st_size for path in paths))
    children = []
    for task in range(tasks):
        child = os.fork()
        if not child:
            code = 1
            try:
                for path in paths[task::tasks]:
                    scan(path, scanner, let_go)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        sys.exit("a scan failed")


def cat(paths: list[Path]) -> None:
    """``cat`` to /dev/null."""
    subprocess.run(["cat", *map(str, paths)], stdout=subprocess.DEVNULL, check=True)


def timed(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds of the work, and of all processors in processes that it started."""
    before, begin = os.times(), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - begin, os.times()
    return seconds, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print minimum and median of each side, and their ratios."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.cold", description="a scan from a cold disk, beside cat")
    parser.add_argument("store", nargs="?", type=Path, help="the store whose first segments are read (made when left out)")
    parser.add_argument("--segments", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=2, help="processes of the scan")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    paths = segments(options.store or make_log("orders", options.segments * GIB, 7))[: options.segments]
    drop(paths)
    scanner = RangeScanner(ScanSettings())
    records = sum(scan(path, scanner, False) for path in paths)  # compiles the loops, too

    def scans() -> None:
        scan_all(paths, options.tasks, scanner)

    taken: dict[str, list[tuple[float, float]]] = {"cat, cold": [], "scan, cold": [], "scan, cached": []}
    for _ in range(options.rounds):
        drop(paths)
        taken["cat, cold"].append(timed(lambda: cat(paths)))
        drop(paths)
        taken["scan, cold"].append(timed(scans))
        drop(paths)
        cat(paths)
        taken["scan, cached"].append(timed(scans))
    size = sum(path.stat().st_size for path in paths)
    print(f"{size:,} bytes, {records:,} records, {options.tasks} tasks, {options.rounds} rounds, load {os.getloadavg()[0]:.1f}")
    for name, rounds in taken.items():
        seconds, processor = ([found[k] for found in rounds] for k in (0, 1))
        middle = statistics.median(seconds)
        print(f"{name:12} min {min(seconds):6.2f} s, median {middle:6.2f} s, processor {min(processor):6.2f} s")
    for what, pick in (("minimum", min), ("median", statistics.median)):
        read, cold, warm = (pick(found[0] for found in rounds) for rounds in taken.values())
        print(f"{what}: cold scan is {cold / read:.2f} times cat, {cold / max(read, warm):.2f} times the longer of the others")


if __name__ == "__main__":
    main()
