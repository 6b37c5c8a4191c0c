"""Byte faults: each build gives the reference's bytes, or refuses as it does. ``make fault`` runs many more."""

from __future__ import annotations

from pathlib import Path

from tests.fault import flips, sizes, truncations
from tests.fault.sweep import sweep

FLIPS = 300
POINTS = 40
PLACES = 50


def test_bit_flips_in_every_field(seed: int, place: Path) -> None:
    hit = sweep("flips", seed, range(FLIPS), place)
    assert sum(hit.values()) == FLIPS
    left_out = flips.field_names(seed, FLIPS) - hit.keys()
    print({name: hit[name] for name in sorted(hit)})
    assert not left_out
    shapes = {name.rpartition(" ")[0] for name in hit if name.startswith("V") and " hosts " in name}
    assert shapes == {f"V{version} hosts {hosts}" for version in (1, 2) for hosts in ("44", "46", "64", "66")}
    for shape in shapes:
        fields = {name.rpartition(" ")[2] for name in hit if name.startswith(shape)}
        assert len(fields) == 19, f"{shape}: {sorted(fields)}"
    assert {"filler TOTALSIZE", "filler MAGICCODE", "filler rest", "zeros at the end"} <= hit.keys()


def test_truncation_at_every_byte_of_the_last_two_records(seed: int, place: Path) -> None:
    count = truncations.every(seed)
    assert count > 200
    sweep("truncations", seed, range(count), place)


def test_truncation_at_random_points(seed: int, place: Path) -> None:
    count = truncations.every(seed)
    sweep("truncations", seed, range(count, count + POINTS), place)


def test_lengths_that_lie(seed: int, place: Path) -> None:
    """Every field, value, version and place, each under one of the policies."""
    chosen = [3 * k + (k + k // 3 + seed) % 3 for k in range(len(sizes.ALL) // 3)]
    hit = sweep("sizes", seed, chosen, place)
    assert len(hit) == len(sizes.ALL) // 3


def test_every_undamaged_record_comes_through(seed: int, place: Path) -> None:
    sweep("salvage", seed, [PLACES], place)
