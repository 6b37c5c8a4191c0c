"""Spoil a store before it is started, in one to three ways that a seed draws."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.preflight import spoil_log, spoil_queues, spoil_rest
from tests.preflight.settings import Conf, Sizes, random_flags
from tests.preflight.spoiling import Spoiler, Stores


@dataclass(frozen=True)
class Spoilt:
    """A spoilt store: what befell it, and the settings it is started with."""

    path: Path
    conf: Conf
    deeds: tuple[str, ...]
    abnormal: bool


Deed = Callable[[Spoiler], str | None]
KINDS: Sequence[tuple[float, Sequence[Deed]]] = (
    (3.0, spoil_queues.LOST), (3.0, spoil_queues.DAMAGED), (3.0, spoil_log.DAMAGED), (2.0, spoil_log.SEGMENTS),
    (2.0, spoil_rest.CHECKPOINT), (2.0, spoil_rest.INDEX), (0.7, spoil_rest.FILES),
)  # fmt: skip
LAST = (spoil_log.wrong_name, *spoil_rest.FILES)
"""The others know no files with such names."""


def befall(
    path: Path, sizes: Sizes, rng: random.Random, weighted: Sequence[tuple[float, Sequence[Deed]]] = KINDS,
    last: Sequence[Deed] = LAST,
) -> tuple[tuple[str, ...], bool]:  # fmt: skip
    """Spoil the store in ``path`` by deeds that ``rng`` draws, those of ``last`` at the end.

    Returns what befell it, and whether its stop was not clean.
    """
    spoiler = Spoiler(Stores(path, sizes), rng)
    kinds = rng.choices([deeds for _, deeds in weighted], [weight for weight, _ in weighted], k=rng.choice((1, 1, 1, 2, 2, 3)))
    drawn = [rng.choice(deeds) for deeds in kinds]
    told = [deed(spoiler) for deed in sorted(drawn, key=lambda deed: deed in last)]
    abnormal = rng.random() < 0.5
    if abnormal:
        (path / "abort").write_bytes(b"")
    return tuple(words for words in told if words), abnormal


def spoil(path: Path, sizes: Sizes, seed: int) -> Spoilt:
    """Spoil the store in ``path``; one seed, the same deeds."""
    rng = random.Random(seed)
    told, abnormal = befall(path, sizes, rng)
    return Spoilt(path, Conf(sizes, random_flags(rng)), told, abnormal)
