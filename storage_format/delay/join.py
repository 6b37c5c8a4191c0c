"""Which scheduled messages were delivered, by the records of one digest in the order of the log."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.delay.evidence import COPY, DISCARD, FIRED, HALF, SCHEDULED, TIMED, Int64s, Rows
from rocketmq_reindex.storage_format.kernels.jit import jit

OPEN, SETTLED, UNCLEAR = range(3)
"""Of a record: nothing follows it; it was delivered, rolled on, written anew or given up; others are like it, and some were
delivered"""
Bools = npt.NDArray[np.bool_]
_COPIES: Final = (COPY, FIRED)


@jit
def _settle(first: Bools, kind: Int64s, rolls: Int64s, out: Int64s) -> None:
    begin = head = renewed = dropped = 0
    for n in range(len(kind)):
        if first[n]:
            begin = head = renewed = dropped = n
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
        elif kind[n] == HALF and rolls[n] > 0:
            # TransactionalMessageServiceImpl.needDiscard counts each check: without the count it is none of its copies.
            while renewed < n:
                if kind[renewed] == HALF:
                    out[renewed] = SETTLED
                renewed += 1
        elif kind[n] == DISCARD:
            # What is given up for its age was counted once more; what had too many checks was not. Another copy with as many
            # checks is given up next.
            while dropped < n and not (
                kind[dropped] == HALF and out[dropped] == OPEN and rolls[n] - 1 <= rolls[dropped] <= rolls[n]
            ):
                dropped += 1
            if dropped < n:
                out[dropped] = SETTLED
                dropped += 1
            out[n] = SETTLED


def join(rows: Rows) -> tuple[Rows, Int64s]:
    """The rows of EVIDENCE by digest, each digest in the order of the log; and of each OPEN, SETTLED or UNCLEAR.

    The i-th copy of a digest settles its i-th scheduled record, if that is before it. A roll settles the record with one roll
    less. The copy of a half message that a check wrote settles all that are before it; one that was given up is settled, too.
    """
    rows = rows[np.lexsort((rows["phy_offset"], rows["digest2"], rows["digest"]))]
    first = _firsts(rows)
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


def last_check(rows: Rows) -> tuple[int, int]:
    """What the last check did, by the rows that ``join`` returned: (where its record lies, queue offset that it had come to).

    A check walks up the queue and writes the half message anew, or gives it up; the record tells one more check than the one
    it was made of. Where several fit, it is the lowest: a broker that was killed may have walked there again. -1: unknown.
    """
    kind, rolls, place = rows["kind"], rows["rolls"], rows["phy_offset"]
    made = np.flatnonzero(((kind == HALF) & (rolls > 0)) | (kind == DISCARD))
    if not len(made):
        return -1, -1
    last = made[np.argmax(place[made])]
    group = np.cumsum(_firsts(rows))
    least = rolls[last] - 1
    fits = (rolls == least) | ((rolls == least + 1) & (kind[last] == DISCARD))
    sources = rows["queue_offset"][(group == group[last]) & (kind == HALF) & (place < place[last]) & fits]
    return int(place[last]), int(sources.min()) if len(sources) else -1


def _firsts(rows: Rows) -> Bools:
    """Whether a row is the first of its digest."""
    first = np.ones(len(rows), np.bool_)
    first[1:] = (rows["digest"][1:] != rows["digest"][:-1]) | (rows["digest2"][1:] != rows["digest2"][:-1])
    return first


def recalled(rows: Rows, step: int) -> Bools:
    """Which rows of EVIDENCE are delete marks and the messages that they cancel: due in the same ``step`` of milliseconds.

    A mark works on the messages of its slot (``TimerMessageStore.dequeue``).
    """
    marks = rows["delete"] > 0
    found: Bools = (rows["key"] != 0) & np.isin(rows["key"], rows["key"][marks])
    pairs = np.zeros(int(np.count_nonzero(found)), np.dtype([("key", "<i8"), ("slot", "<i8")]))
    pairs["key"], pairs["slot"] = rows["key"][found], rows["due"][found] // step
    found[found] = np.isin(pairs, np.intersect1d(pairs[marks[found]], pairs[~marks[found]]))
    return found
