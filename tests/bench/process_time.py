"""Processor time of a process and of all below it, living or reaped: what Spark's JVM and its Python workers took."""

from __future__ import annotations

import os
from collections import defaultdict

from tests.tools.faulty_processes import stat


def tree_seconds(root: int) -> float:
    """Seconds in user and system mode; a child that has ended counts with the one that waited for it."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = stat(int(name))
        except OSError:
            continue
        # proc(5): fields 4, and 14 to 17; what stands before the third has been cut off.
        children[int(fields[1])].append(int(name))
        ticks[int(name)] = sum(int(field) for field in fields[11:15])
    total, left = 0, [root]
    while left:
        number = left.pop()
        total += ticks.get(number, 0)
        left += children[number]
    return total / os.sysconf("SC_CLK_TCK")
