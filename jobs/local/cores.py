"""How many processes work at once on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Final

from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape

_LOCAL: Final = re.compile(r"local(?:\[\s*([1-9][0-9]{0,5}|\*)\s*(?:,\s*[0-9]+\s*)?\])?")
_GROUPS: Final = Path("/sys/fs/cgroup")


def cores_of(master: str) -> int:
    """Return the processes that ``--master`` asks for: N for local[N], 1 for local, else the processors of this process.

    Raises UsageError for a master elsewhere.
    """
    found = _LOCAL.fullmatch(master or "local[*]")
    if found is None:
        raise UsageError(
            f"--master {escape(master)}: --engine local runs on this machine alone: take local[N], or --engine spark"
        )
    return own_cores() if found[1] == "*" else int(found[1] or 1)


def own_cores() -> int:
    """Return the processors that this process may use: by its affinity, and by the limit of its container."""
    there = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(there, _quota(_GROUPS, Path("/proc/self/cgroup"), there)))


def _quota(groups: Path, own: Path, there: int) -> int:
    """Return the processors that control groups (version 2) leave this process, rounded up; ``there`` without a limit."""
    least = there
    with contextlib.suppress(OSError, ValueError):
        names = [line[3:] for line in own.read_text().splitlines() if line.startswith("0::")]
        folder = groups / "".join(names).lstrip("/")
        for group in (folder, *folder.parents):
            with contextlib.suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text().split()
                if quota != "max":
                    least = min(least, -(-int(quota) // int(period)))
            if group == groups:
                break
    return least
