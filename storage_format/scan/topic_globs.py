"""Which globs of topics match a topic of the log, and for those that match none the names near them: most are mistyped."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from rocketmq_reindex.storage_format.names import COMPARED_MAX, near_names


class TopicGlobs:
    """Remembers which of ``globs`` match a name that was met."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._globs = list(dict.fromkeys(globs))
        self._names: list[str] = []
        """the first names that were met"""

    def meet(self, names: Iterable[str]) -> None:
        """Take in names of topics; each should come once."""
        if not self._globs:
            return
        for name in names:
            self._globs = [glob for glob in self._globs if not fnmatch.fnmatchcase(name, glob)]
            if len(self._names) < COMPARED_MAX:
                self._names.append(name)

    def unmatched(self) -> dict[str, list[str]]:
        """Return the globs that match no name so far, each with at most NEAR_MAX names near it."""
        return {glob: near(glob, self._names) for glob in self._globs}


def near(glob: str, names: Iterable[str]) -> list[str]:
    """Return the names that look most like a glob, whatever their case; the most similar one first."""
    return near_names(glob.replace("*", "").replace("?", ""), names)
