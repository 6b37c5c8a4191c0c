"""A store's own parts under the names PART.previous, PART.previous.2 and so on: the highest number is the newest.

No number is used again while it, or a higher one, is there. A copy that is to go is first renamed into the work folder, so that
a kill leaves no half of one under its name.
"""

from __future__ import annotations

import os
import re

from rocketmq_reindex.jobs.fetching.pinned import Pinned
from rocketmq_reindex.jobs.fetching.record import Record
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


def numbers(store: str, part: str) -> list[int]:
    """The numbers of what lies in ``store`` under names of earlier parts, ascending; ``PART.previous`` is number 1."""
    folder, base = os.path.split(os.path.join(store, part))
    found = (_number(base, name) for name in (os.listdir(folder) if os.path.isdir(folder) else ()))
    return sorted(number for number in found if number)


def _number(base: str, name: str) -> int:
    """The number in the name of an earlier part; 0 where it is none."""
    match = re.fullmatch(re.escape(base) + r"\.previous(?:\.([1-9][0-9]*))?", name)
    return 0 if match is None or match[1] == "1" else int(match[1] or 1)


def is_name(part: str, name: str) -> bool:
    """Whether a copy of ``part`` may have this name."""
    return _number(part, name) > 0


def name_of(part: str, number: int) -> str:
    """The name of an earlier part, in its store."""
    return f"{part}.previous" + (f".{number}" if number > 1 else "")


def next_name(store: str, part: str) -> str:
    """The name for the store's own part, behind all that are there."""
    return name_of(part, max(numbers(store, part), default=0) + 1)


def copies(store: str, parts: tuple[str, ...], record: Record) -> list[str]:
    """The copies of ``parts`` that fetches are known to have put there."""
    names = (name_of(part, number) for part in parts for number in numbers(store, part))
    return [name for name in names if record.is_copy(store, name)]


def surplus(store: str, parts: tuple[str, ...], record: Record, keep: int) -> tuple[list[str], list[str]]:
    """The copies of each part but those of its newest ``keep`` fetches, and notes on what no fetch is known to have put there.

    A fetch has two of one part where a broker ran between a kill and the next fetch.
    """
    found, notes = list[str](), list[str]()
    for part in parts:
        names = [name_of(part, number) for number in reversed(numbers(store, part))]
        ours = [name for name in names if record.is_copy(store, name)]
        fetches = sorted({record.copies[name].fetch for name in ours}, reverse=True)[:keep]
        found += [name for name in ours if record.copies[name].fetch not in fetches]
        if others := [name for name in names if name not in ours]:
            which = ", ".join(map(escape, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            notes.append(f"{which}: not known to be as a fetch left it, so it stays: remove it when the broker is well")
    return found, notes


def retire(store: Pinned, names: list[str], folder: str) -> None:
    """Remove ``names`` from ``store``, through the new folder ``folder`` on its file system. Raises InputError, OSError."""
    if not names:
        return
    os.mkdir(folder)
    for number, name in enumerate(names):
        inner, base = os.path.split(name)
        with store.inner(inner) as parent:
            os.rename(os.path.join(parent.path, base), os.path.join(folder, str(number)))
    files.sync(store.path)
    files.remove_tree(folder)
