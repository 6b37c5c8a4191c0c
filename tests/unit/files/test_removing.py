"""Removing says why something stays, as one line."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from rocketmq_reindex import files


def test_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    path = str(tmp_path / "tree")

    def rmtree(path: str, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), path)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    assert files.remove_tree(path) == "Operation not permitted"
    monkeypatch.undo()
    assert files.remove_tree(path) == files.remove_tree(path) == ""


def test_behind_a_uri(tmp_path: Path) -> None:
    """A folder, a file, and what is not there."""
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(b"x")
    (tmp_path / "file").write_bytes(b"x")
    for name in ("tree", "file", "none"):
        assert files.remove_tree(f"file://{tmp_path}/{name}") == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Got the following 2 errors when deleting objects:\n- key 'a: b': Access Denied\n- key 'c': X\n", "Access Denied"),
        ("AWS Error ACCESS_DENIED during DeleteObjects operation: Access Denied\nmore", "AWS Error ACCESS_DENIED during "),
        ("s3://me:hunter2@bucket is\x1b bad", r"s3://***@bucket is\x1b bad"),
        ("", "OSError"),
    ],
)  # fmt: skip
def test_a_reason_is_one_line(text: str, reason: str) -> None:
    assert files.why(OSError(text)).startswith(reason)
    assert "\n" not in files.why(OSError(text))
