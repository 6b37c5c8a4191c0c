"""A preflight of any number of files holds few of them open."""

from __future__ import annotations

import os
from pathlib import Path

from rocketmq_reindex.jobs.preflighting import folders
from rocketmq_reindex.jobs.preflighting.folders import Maps


def test_as_many_handles_as_mappings(tmp_path: Path) -> None:
    """A process may have 1,024 by default, and a store has files by the thousand."""
    for number in range(folders._MAPPED_MAX + 50):
        (tmp_path / f"{number}").write_bytes(b"x%d" % number)
    maps, before = Maps(), len(os.listdir("/proc/self/fd"))
    for number in range(folders._MAPPED_MAX + 50):
        path = tmp_path / f"{number}"
        assert maps.get(str(path), path.stat().st_size).tobytes() == b"x%d" % number
        assert len(os.listdir("/proc/self/fd")) - before <= min(number + 1, folders._MAPPED_MAX)
