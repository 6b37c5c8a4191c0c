"""Folders to a store behind a URI."""

from __future__ import annotations

from pathlib import Path

from rocketmq_reindex import files


def upload(folder: Path, uri: str, aside: str) -> None:
    """Every file of ``folder`` below ``uri``; ``aside`` is a folder for half a file where the store needs one."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            target = files.join(uri, path.relative_to(folder).as_posix())
            files.make_folder(files.parent(target))
            files.make_folder(aside)
            files.write_bytes(aside, target, [path.read_bytes()])
