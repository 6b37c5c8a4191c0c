"""Whether the folders of a build hold its files and nothing else. Entries are counted: there may be a million."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rocketmq_reindex.udfs import files

_FOLDERS: Final = ("batchconsumequeue", "consumequeue", "index")


def has_other_files(target: str, paths: Iterable[str], only: Iterable[str]) -> bool:
    """Return whether the folders of ``target`` hold more or less than the files at ``paths`` and the folders around these.

    ``paths`` are sorted, and each is known to be there. A part of ``only`` has its folder even without any file.
    """
    found = {folder: files.count_below(files.join(target, folder)) for folder in _FOLDERS}
    return found != {folder: 0 if folder in only else -1 for folder in _FOLDERS} | _counts(paths)


def _counts(paths: Iterable[str]) -> dict[str, int]:
    """Return the number of files and folders below each top folder."""
    counts: Counter[str] = Counter()
    before: list[str] = []
    for path in paths:
        parents = path.split("/")[:-1]
        same = 0
        while same < min(len(parents), len(before)) and parents[same] == before[same]:
            same += 1
        counts[parents[0]] += 1 + len(parents) - max(1, same)
        before = parents
    return counts
