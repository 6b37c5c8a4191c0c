"""What a slot of a ConsumeQueue file holds beside what the log gives it, and how that is put into words.

``found``: int64 (3, n) for a plain queue, (8, n) for a batch one: the fields of its unit in their order, a column a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.units import BATCH_LAYOUT, PRE_BLANK_SIZE

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

OK, MISSING, PRE_BLANK, NO_RECORD, SIZE, TAGS, BATCH, OTHER, SHIFTED = range(9)
KINDS: Final = {
    MISSING: "queue-unit-missing",
    PRE_BLANK: "queue-pre-blank",
    NO_RECORD: "queue-unit-no-record",
    SIZE: "queue-unit-size",
    TAGS: "queue-unit-tags",
    BATCH: "queue-unit-batch",
    OTHER: "queue-unit-other",
}
FIELDS: Final = BATCH_LAYOUT.names
"""The fields of a batch unit; a plain one has the first three."""


def is_empty(found: Int64s) -> Mask:
    """Which slots are all zeros: bool (n,)."""
    empty: Mask = (found == 0).all(axis=0)
    return empty


def is_pre_blank(found: Int64s) -> Mask:
    """Which slots are (0, 2147483647, 0) (``ConsumeQueue.fillPreBlank``): bool (n,)."""
    blank: Mask = (found[0] == 0) & (found[1] == PRE_BLANK_SIZE) & (found[2] == 0)
    return blank


def is_bad(phy_offset: Int64s, size: Int64s) -> Mask:
    """Which units cannot point to any record: bool (n,)."""
    bad: Mask = (phy_offset < 0) | (size <= 0) | (phy_offset > INT64_MAX - size)
    return bad


def slot_text(found: Int64s, expected: Int64s | None = None) -> str:
    """What stands in a slot, and what should. Where both are of one record, only the fields that are wrong."""
    here = found.tolist()
    if expected is None:
        return named_fields(here)
    wanted = expected[1:].tolist()
    if not any(here):
        return f"nothing instead of {named_fields(wanted)}"
    if here[0] != wanted[0]:
        return f"{named_fields(here)} instead of {named_fields(wanted)}"
    wrong = [k for k, value in enumerate(here) if value != wanted[k]]
    return ", ".join(f"{FIELDS[k]} {here[k]} instead of {wanted[k]}" for k in wrong)


def named_fields(values: Sequence[int], names: Sequence[str] = FIELDS) -> str:
    """Fields and their values, as ``phy_offset 773, size 222, tagsCode 42``."""
    return ", ".join(f"{name} {value}" for name, value in zip(names, values, strict=False))
