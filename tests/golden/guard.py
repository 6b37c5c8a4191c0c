"""A build leaves its input as it was, and nothing beside its output."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def _state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            path.stat().st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted([folder, *folder.rglob("*")])
    }


@contextlib.contextmanager
def guarded(store: Path, out: Path) -> Iterator[None]:
    """Raises AssertionError when a run changes a byte or a time of ``store``, or leaves anything but ``out`` beside ``out``."""
    before, beside = _state(store), set(out.parent.iterdir())
    yield
    assert _state(store) == before, "the input was changed"
    assert set(out.parent.iterdir()) - {out} == beside - {out}, "something was left beside the output"
