"""Where no folder can be renamed: which folder is a build's, and that a run that publishes nothing leaves nothing."""

from __future__ import annotations

from pathlib import Path

from rocketmq_reindex.jobs.publishing import builds, layout
from rocketmq_reindex.jobs.publishing.layout import Leftovers


def test_a_run_that_publishes_nothing_leaves_nothing_of_its_own(tmp_path: Path) -> None:
    out, left = tmp_path / "out", Leftovers()
    with builds.staging(str(out), trim=False, leftovers=left) as staging:
        Path(staging.build, "index", "half").write_bytes(b"written")
    assert [path for path in out.rglob("*") if path.name not in ("builds", "work", "published")] == []
    assert left.entries() == []


def test_the_folder_of_a_build_is_known_by_both_names(tmp_path: Path) -> None:
    build = "0123456789abcdef" * 2
    folders = {name: tmp_path / name for name in (f"builds/{build}", "builds/mine", f"mine/{build}")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    assert [layout.identity(str(folder)) for folder in folders.values()] == [build, None, None]
