"""Lengths that lie: each value in each of a record's four length fields, V1 and V2, within the log and at its end."""

from __future__ import annotations

import random
from itertools import product

from tests.fault.case import POLICIES, Case, some_range_size, some_settings
from tests.fault.layout import laid_records, overwrite
from tests.fault.stores import SEGMENT, small_store

FIELDS = ("TOTALSIZE", "BODYLENGTH", "TOPICLENGTH", "PROPERTIESLENGTH")
VALUES = ("0", "1", "-1", "minimum", "maximum", "remaining - 1", "remaining", "remaining + 1")
PLACES = ("first", "middle", "last")
ALL = list(product(FIELDS, VALUES, (1, 2), PLACES, POLICIES))


def lying(value: str, length: int, remaining: int) -> bytes:
    """``value`` in a field of ``length`` bytes with so many bytes left in the segment behind it."""
    low, high = -(1 << (8 * length - 1)), (1 << (8 * length - 1)) - 1
    number = {"minimum": low, "maximum": high}.get(value)
    if number is None:
        number = remaining + int(value[9:].replace(" ", "") or 0) if value.startswith("remaining") else int(value)
    # What does not fit is cut, as a writer that casts would do.
    return (number & ((1 << 8 * length) - 1)).to_bytes(length, "big")


def make(seed: int, number: int) -> Case:
    """Case ``number`` of ALL."""
    field, value, version, place, policy = ALL[number % len(ALL)]
    rng = random.Random(f"sizes {seed} {number}")
    segments = small_store(seed + number // len(ALL))
    records = [record for record in laid_records(segments) if record.version == version]
    record = {"first": records[0], "middle": rng.choice(records), "last": records[-1]}[place]
    at, length = record.fields[field]
    # TOTALSIZE counts from its own first byte, the others from their end.
    behind = SEGMENT - at if field == "TOTALSIZE" else SEGMENT - at - length
    spoilt = overwrite(segments, record.segment, at, lying(value, length, behind))
    settings = some_settings(rng, on_damage=policy)
    return Case("sizes", seed, number, f"V{version} {field} {value}, {place}", spoilt, settings, some_range_size(rng))
