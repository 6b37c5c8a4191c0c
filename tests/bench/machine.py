"""The machine and the programs of a race, and whether there is room for it: no names of hosts or people."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.bench.logs import BENCH, GIB, ROOT
from tests.bench.sides import PEER, PEER_JAVA

PROCESSES = 6 * GIB
"""What the peer's JVM, ours and its Python workers may take beside the page cache."""
DISK_FULL = 0.10
"""RocketMQ 5.x takes a disk of which less than this is free for full, and ends without a clean shutdown."""


def _field(file: str, name: str) -> str:
    found = re.search(rf"^{name}\s*:\s*(.+)$", Path(file).read_text(), re.MULTILINE)
    return found[1].strip() if found else "?"


def _said(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def describe_machine() -> dict[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else Path("java")
    return {
        "processor": _field("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / GIB:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "Java": _said(str(java), "-version").partition("\n")[0],
        **{name: version(name) for name in ("pyspark", "numba", "numpy", "pyarrow")},
        "peer": f"RocketMQ {PEER}, {os.environ.get('ORACLE_JAVA_OPTS', PEER_JAVA)}",
        "commit": _said("git", "describe", "--always", "--dirty", "--exclude=*"),
        "load before": f"{os.getloadavg()[0]:.2f}",
    }


def steal_seconds() -> float:
    """Seconds that the machine's cores wanted to run and another guest of the same host ran (proc(5): steal)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def check_disk(missing: int, work: int) -> None:
    """``missing`` bytes of logs are still to be made; ``work`` is what both sides write of one of them.

    Ends the program with one line where that does not fit.
    """
    disk = shutil.disk_usage(BENCH)
    # What is kept back for root is part of neither (UtilAll.getDiskPartitionSpaceUsedPercent).
    kept = int(DISK_FULL * (disk.used + disk.free))
    if disk.free < missing + work + kept:
        raise SystemExit(
            f"{BENCH}: {disk.free / GIB:.0f} GiB free, and the race needs {(missing + work) / GIB:.0f} GiB beside the "
            f"{kept / GIB:.0f} GiB that RocketMQ wants left free: make room, or take a smaller SCALE="
        )


def fits_memory(size: int) -> bool:
    """Whether the page cache can hold so many bytes, a log with what is written of it, beside the processes."""
    available = int(_field("/proc/meminfo", "MemAvailable").split()[0]) * 1024
    needed = size + PROCESSES
    if available < needed:
        print(
            f"warning: {available / GIB:.0f} GiB of memory are available, a warm page cache needs {needed / GIB:.0f} GiB: "
            "the disk is measured, too"
        )
    return available >= needed
