"""What becomes of each unit of a queue whose offsets repeat or have gaps (`--queue-order logical`)."""

from dataclasses import dataclass
from itertools import pairwise

# What a unit does to its queue.
APPEND, GENERATION, JUMP, OUT, PENDING = "append", "generation", "jump", "out-of-line", "pending"


@dataclass(frozen=True)
class Unit:
    """One entry of a queue: where the record lies, its length, its tags code, the queue offset it names.

    `again`: how often more the record names the same light queue. A 5.x broker's counter goes up for each.
    """

    record: int
    size: int
    tags_code: int
    queue_offset: int
    again: int = 0


@dataclass(frozen=True)
class Verdict:
    """`count`: positions dropped by a generation, or missing below a jump; `at`: the position that it takes."""

    unit: Unit
    does: str
    at: int
    count: int = 0


def judge(units: list[Unit], damage: list[tuple[int, int]]) -> list[Verdict]:
    """A verdict for each unit, in the log's order. `damage`: (start, end) of what is lost of the log."""
    verdicts: list[Verdict] = []
    end: int | None = None  # position of the next unit in line
    behind = 0  # how far units stand below the offsets they name
    start = 0
    previous = 0  # the record whose unit last stood in line
    strays = 0  # offsets that units out of line used up since then
    follows = [before.queue_offset + 1 + before.again == after.queue_offset for before, after in pairwise(units)]
    # The last units that follow on each other: too few yet to continue the first of them.
    last = next((n for n in range(len(follows), 0, -1) if not follows[n - 1]), 0)
    for number, unit in enumerate(units):
        broken = next((n for n in range(number, len(follows)) if not follows[n]), None)
        following = units[broken + 1].queue_offset if broken is not None else -1
        rises = broken is not None and following > units[broken].queue_offset + 1 + units[broken].again
        if rises and broken is not None and follows[broken + 1 : broken + 3] != [True, True]:
            ends = following == units[broken].queue_offset + 2 + units[broken].again and all(follows[broken + 1 :])
            rises = ends or any(units[broken].record < lost < units[broken + 1].record for lost, _ in damage)
        continued = follows[number : number + 2] == [True, True]
        lost_between = any(previous < lost < unit.record for lost, _ in damage)
        # A broker that starts counts from its units again.
        back = behind if end is not None and unit.queue_offset - behind >= end else 0
        here = unit.queue_offset - back
        ends_above = end is not None and here == end + 1 and broken is None
        if end is None:
            verdict = Verdict(unit, APPEND, here)
            start = here
        elif here == end:
            verdict = Verdict(unit, APPEND, here)
        elif here < end and (continued or (here == 0 and not (broken == number and following == end + 1))):
            verdict = Verdict(unit, GENERATION, here, end - max(here, start))
            start = min(start, here)
        elif here > end and (continued or lost_between or rises or here - end == strays or ends_above):
            verdict = Verdict(unit, JUMP, here, here - end)
        else:
            verdicts.append(Verdict(unit, PENDING if number >= last else OUT, here))
            strays += 1 + unit.again
            continue
        verdicts.append(verdict)
        end = here + 1
        behind = back + unit.again
        previous = unit.record
        strays = 0
    return verdicts


class TooManyMissing(Exception):
    """More positions are missing than could be filled one by one."""


def settle(verdicts: list[Verdict], most: int = 10**7) -> tuple[dict[int, Unit], dict[int, Unit]]:
    """(units by position, fills by position): what stands after all generations.

    A missing position repeats the next unit that stands above it. Raises TooManyMissing for more than `most` of them.
    """
    standing: dict[int, Unit] = {}
    for verdict in verdicts:
        if verdict.does in (OUT, PENDING):
            continue
        if verdict.does == GENERATION:
            standing = {at: unit for at, unit in standing.items() if at < verdict.at}
        standing[verdict.at] = verdict.unit
    fills: dict[int, Unit] = {}
    taken = sorted(standing)
    if sum(above - below - 1 for below, above in pairwise(taken)) > most:
        raise TooManyMissing
    for below, above in pairwise(taken):
        for missing in range(below + 1, above):
            fills[missing] = standing[above]
    return standing, fills
