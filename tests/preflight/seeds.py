"""Sound stores, each for several seeds that spoil a copy of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from tests.preflight.real import RealStores


class _Base(Protocol):
    @property
    def path(self) -> Path: ...


B = TypeVar("B", bound=_Base)


def based(
    make: Callable[[RealStores, Path, int], B], real: RealStores, scratch: Path, seeds: range, per_base: int
) -> Iterator[tuple[int, B]]:
    """Each seed with its sound store, which ``make`` makes for ``per_base`` of them. A store depends on its own seed alone."""
    base: tuple[int, B] | None = None
    for seed in seeds:
        of_base = seed // per_base
        if base is None or base[0] != of_base:
            if base:
                shutil.rmtree(base[1].path, ignore_errors=True)
            base = of_base, make(real, scratch / f"base-{of_base}", of_base)
        yield seed, base[1]
