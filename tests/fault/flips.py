"""Bit flips: one bit of one field, the fields taken in turn so that none is left out."""

from __future__ import annotations

import random
from collections import defaultdict
from functools import lru_cache

from tests.fault.case import Case, some_range_size, some_settings
from tests.fault.layout import Field, fields_of, flip
from tests.fault.stores import small_store


@lru_cache(maxsize=4)
def _by_name(store_seed: int) -> dict[str, list[Field]]:
    found: dict[str, list[Field]] = defaultdict(list)
    for one in fields_of(small_store(store_seed)):
        found[one.name].append(one)
    return found


@lru_cache(maxsize=1024)
def _names(store_seed: int) -> list[str]:
    names = sorted(_by_name(store_seed))
    random.Random(store_seed).shuffle(names)
    return names


def _turn(seed: int, number: int) -> tuple[int, int]:
    """Which store case ``number`` is of, and which of its fields: each store stays until all its fields were hit."""
    store_seed = seed
    while number >= len(_names(store_seed)):
        number -= len(_names(store_seed))
        store_seed += 1
    return store_seed, number


def field_names(seed: int, count: int) -> set[str]:
    """Every field of the stores that so many cases go through as a whole."""
    last, _ = _turn(seed, count)
    return {name for store_seed in range(seed, last) for name in _names(store_seed)}


def make(seed: int, number: int) -> Case:
    """Case ``number``."""
    store_seed, turn = _turn(seed, number)
    rng = random.Random(f"flip {seed} {number}")
    name = _names(store_seed)[turn]
    one = rng.choice(_by_name(store_seed)[name])
    at = one.at + rng.randrange(one.length)
    segments = flip(small_store(store_seed), one.segment, at, rng.randrange(8))
    return Case("flips", seed, number, name, segments, some_settings(rng), some_range_size(rng))
