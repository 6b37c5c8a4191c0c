"""A build leaves its input as it was, and nothing beside its output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def _state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    paths = sorted([folder, *folder.rglob("*")])
    stats = {path: path.stat() for path in paths}
    return {
        path.as_posix(): (stats[path].st_mtime_ns, stats[path].st_mode, path.read_bytes() if path.is_file() else b"")
        for path in paths
    }


@contextlib.contextmanager
def guarded(store: Path, out: Path) -> Iterator[None]:
    """Raises AssertionError when a run changes a byte or a time of ``store``, or leaves anything but ``out`` beside ``out``."""
    before, beside = _state(store), set(out.parent.iterdir())
    yield
    assert _state(store) == before, "the input was changed"
    assert set(out.parent.iterdir()) - {out} == beside - {out}, "something was left beside the output"
