"""What a killed verify left in DIR/work goes with the next build to DIR; a verify that still shows signs of life stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketmq_reindex.files import systems
from rocketmq_reindex.jobs.publishing import builds
from rocketmq_reindex.jobs.publishing.layout import Leftovers


def test_only_dead_ones_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "_MOUNTED", (f"{tmp_path}/",))
    out = tmp_path / "out"
    names = f"rmq-reindex-verify-{'0' * 32}", f"rmq-reindex-verify-{'1' * 32}", "mine"
    folders = {name: out / "work" / name for name in names}
    for number, folder in enumerate(folders.values()):
        folder.mkdir(parents=True)
        (folder / "alive-7").write_text("alive\n")
        (folder / "blocks").write_text("items")
        if not number:
            an_hour_ago = (folder / "alive-7").stat().st_mtime - builds.DEAD_NANOSECONDS / 10**9
            os.utime(folder / "alive-7", (an_hour_ago, an_hour_ago))
    with builds.staging(str(out), trim=False, leftovers=Leftovers()) as staging:
        (own,) = {path.name for path in (out / "work").iterdir()} - set(folders)
        assert Path(staging.root).name == own
    assert [path.exists() for path in folders.values()] == [False, True, True]
