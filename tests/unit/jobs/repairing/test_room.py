"""How much room the copies of a log's segments take that share nothing with the old ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.files.folders import HARD, NONE
from rocketmq_reindex.jobs.repairing.replicas import log_bytes
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs.staging import StagingFolder

SIZE = 1 << 14


@pytest.mark.parametrize(("link", "copied"), [(HARD, (1, 3, 4)), (NONE, (0, 1, 2, 3, 4))])
def test_segments_that_are_copied(link: str, copied: tuple[int, ...], tmp_path: Path) -> None:
    """By hard links all but the mended one, the one in which the log ends, and the one behind it."""
    segments = []
    for number in range(5):
        path = tmp_path / f"{number * SIZE:020d}"
        path.write_bytes(b"x" * SIZE)
        segments.append(Segment(path.name, str(path), number * SIZE, (number + 1) * SIZE, (number + 1) * SIZE))
    staging = StagingFolder(str(tmp_path / "out"))
    staging.make()
    last, changed = 3 * SIZE + 100, frozenset({SIZE})
    assert log_bytes(staging, link, segments, last, changed) == len(copied) * SIZE
