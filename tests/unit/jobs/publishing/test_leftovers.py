"""What could not be removed: counted by folder, each thing once, and gone from the list when a later attempt removes it."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing.layout import Leftovers


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that cannot be removed."""
    names, removes = {f"b{k}" for k in range(5)}, files.remove_tree

    def remove_tree(path: str) -> str:
        return "not yours" if files.base(path) in names else removes(path)

    monkeypatch.setattr(files, "remove_tree", remove_tree)
    for k in range(6):
        (tmp_path / "builds" / f"b{k}" / "deep").mkdir(parents=True)
        (tmp_path / "builds" / f"b{k}" / "deep" / "x").write_bytes(bytes(k))
        (tmp_path / "builds" / f"b{k}" / "y").write_bytes(b"12")
    (tmp_path / "lone").write_bytes(b"1234")
    return names


def test_it_is_counted_by_folder(tmp_path: Path, stuck: set[str]) -> None:
    stuck.add("lone")
    left = Leftovers()
    assert not left.remove(str(tmp_path / "lone"))
    assert left.remove(str(tmp_path / "builds" / "b5"))
    assert left.remove(str(tmp_path / "none"))
    for _ in range(2):
        left.remove_all(str(tmp_path / "builds" / f"b{k}") for k in range(5))
    builds, lone = left.entries()
    assert builds == {
        "folder": str(tmp_path / "builds"), "names": ["b0", "b1", "b2"], "count": 5, "files": 10, "bytes": 20,
        "reason": "not yours",
    }  # fmt: skip
    assert (lone["folder"], lone["names"], lone["files"], lone["bytes"]) == (str(tmp_path), ["lone"], 1, 4)
    assert left.warnings()[0].endswith(
        "/builds: b0, b1, b2 and 2 more could not be removed (not yours): 10 files, 20 bytes stay there"
    )
    # As the record of a run's start in the Delta tables is a copy of its summary.
    assert copy.deepcopy(left).entries() == left.entries()
    stuck.clear()
    left.remove_all([str(tmp_path / "lone"), *(str(tmp_path / "builds" / f"b{k}") for k in range(5))])
    assert left.entries() == []
