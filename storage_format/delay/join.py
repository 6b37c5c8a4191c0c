"""Which scheduled messages were delivered, by the records of one digest in the order of the log."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import COPY, FIRED, HALF, SCHEDULED, TIMED, Int64s, Rows
from rocketmq_reindex.storage_format.kernels.jit import jit

OPEN, SETTLED, UNCLEAR = range(3)
"""Of a record: nothing follows it; it was delivered, rolled on or written anew; others are like it, and some were delivered"""
Bools = npt.NDArray[np.bool_]
_COPIES: Final = (COPY, FIRED)


@jit
def _settle(first: Bools, kind: Int64s, rolls: Int64s, out: Int64s) -> None:
    begin = head = 0
    for n in range(len(kind)):
        if first[n]:
            begin = head = n
        if kind[n] == COPY or kind[n] == FIRED:
            while head < n and (out[head] != OPEN or kind[head] == COPY or kind[head] == FIRED):
                head += 1
            if head < n:
                out[head] = SETTLED
            out[n] = SETTLED
        elif kind[n] == TIMED and rolls[n] > 0:
            again = False
            for m in range(begin, n):
                if kind[m] != TIMED:
                    continue
                if rolls[m] == rolls[n] - 1 and out[m] == OPEN:
                    out[m] = SETTLED
                    again = False
                    break
                again = again or rolls[m] == rolls[n]
            if again:
                # A broker that was killed rolls the same message once more.
                out[n] = SETTLED
        elif kind[n] == HALF and n > begin:
            out[n - 1] = SETTLED


def join(rows: Rows) -> tuple[Rows, Int64s]:
    """The rows of EVIDENCE by digest, each digest in the order of the log; and of each OPEN, SETTLED or UNCLEAR.

    The i-th copy of a digest settles its i-th scheduled record, if that is before it. A roll settles the record with one roll
    less. Of half messages all but the last are settled.
    """
    rows = rows[np.lexsort((rows["phy_offset"], rows["digest2"], rows["digest"]))]
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows["digest"][1:] != rows["digest"][:-1]) | (rows["digest2"][1:] != rows["digest2"][:-1])
    out = np.zeros(len(rows), np.int64)
    if not len(rows):
        return rows, out
    kind = np.ascontiguousarray(rows["kind"])
    _settle(first, kind, np.ascontiguousarray(rows["rolls"]), out)
    starts = np.flatnonzero(first)
    group = np.cumsum(first) - 1
    waiting = (kind == SCHEDULED) | (kind == TIMED)
    copies = np.add.reduceat(np.isin(kind, _COPIES).astype(np.int64), starts)[group]
    several = np.add.reduceat(waiting.astype(np.int64), starts)[group] > 1
    out[waiting & (out == OPEN) & several & (copies > 0) & (rows["keyed"] == 0)] = UNCLEAR
    return rows, out
