"""What a run should have removed and could not: where it lies and how much it is, so that nobody keeps it unknowingly.

A store may refuse to remove what it let somebody write. What was built is good all the same, and the next run that publishes
tries to remove the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files

_NAMES: Final = 3
"""names of one folder that a warning lists"""
_AT_ONCE: Final = 16


@dataclass(frozen=True)
class _Left:
    files: int
    bytes: int
    reason: str


class Leftovers:
    """Removes things for one run, and knows what stayed."""

    def __init__(self) -> None:
        self._left: dict[str, _Left] = {}

    def remove(self, path: str) -> bool:
        """Remove a folder or file. Returns whether nothing of it is left; raises nothing."""
        reason = files.remove_tree(path)
        if reason:
            self.add(path, reason)
        else:
            # An attempt before this one may have failed.
            self._left.pop(path, None)
        return not reason

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove many files, several at a time."""
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="remove") as pool:
            list(pool.map(self.remove, paths))

    def add(self, path: str, reason: str) -> None:
        """Note that something stays for a reason, which is one line."""
        try:
            found = files.below(path) if files.entry_of(path).kind == files.FOLDER else [files.entry_of(path)]
        except OSError:
            found = []
        self._left[path] = _Left(len(found), sum(entry.size for entry in found), reason)

    def entries(self) -> list[dict[str, Any]]:
        """Return an entry for each folder in which something stays: its path, the first names, files, bytes, a reason."""
        found: dict[str, dict[str, Any]] = {}
        for path, one in sorted(self._left.items()):
            folder = escape(files.parent(path))
            entry = found.setdefault(
                folder, {"folder": folder, "names": [], "count": 0, "files": 0, "bytes": 0, "reason": one.reason}
            )
            entry["count"] += 1
            entry["files"] += one.files
            entry["bytes"] += one.bytes
            if len(entry["names"]) < _NAMES:
                entry["names"].append(escape(files.base(path)))
        return list(found.values())

    def warnings(self) -> list[str]:
        """Return a line for people about each of the ``entries``."""
        return [_warning(entry) for entry in self.entries()]


def files_in(entries: Iterable[Mapping[str, Any]]) -> int:
    """Return how many files the ``entries`` have in all."""
    return sum(int(entry["files"]) for entry in entries)


def _warning(entry: dict[str, Any]) -> str:
    names, more = ", ".join(entry["names"]), entry["count"] - len(entry["names"])
    size = f"{counted(entry['files'], 'file')}, {counted(entry['bytes'], 'byte')}"
    names += f" and {more} more" if more else ""
    return f"{entry['folder']}: {names} could not be removed ({entry['reason']}): {size} stay there"
