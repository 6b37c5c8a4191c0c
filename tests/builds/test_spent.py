"""When a build is made durable, what its files were made of is gone: nobody waits until that is on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import local
from rocketmq_reindex.udfs.staging import StagingFolder
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.make_log import random_log


def test_rows_and_staged_items_are_gone(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random_log(tmp_path / "store" / "commitlog", seed, records=60)
    engine, seen, publish = InlineEngine(), list[tuple[bool, bool]](), local.publish

    def watched(staging: StagingFolder, *more: Any) -> None:
        seen.append((files.entry_of(staging.blocks).kind == files.FOLDER, bool(engine._rows)))
        publish(staging, *more)

    monkeypatch.setattr(local, "publish", watched)
    summary = local_build(tmp_path / "store", tmp_path / "out", engine)
    assert (summary.exit, summary.items > 0, seen) == (0, True, [(False, False)])
