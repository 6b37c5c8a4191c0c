"""What becomes of each unit of a queue whose offsets repeat or have gaps (`--queue-order logical`)."""

from dataclasses import dataclass
from itertools import pairwise

# What a unit does to its queue.
APPEND, GENERATION, JUMP, OUT = "append", "generation", "jump", "out-of-line"


@dataclass(frozen=True)
class Unit:
    """One entry of a queue: where the record lies, its length, its tags code, the queue offset it names."""

    record: int
    size: int
    tags_code: int
    queue_offset: int


@dataclass(frozen=True)
class Verdict:
    """`count`: positions dropped by a generation, or missing below a jump."""

    unit: Unit
    does: str
    count: int = 0


def judge(units: list[Unit], damage: list[tuple[int, int]]) -> list[Verdict]:
    """A verdict for each unit, in the log's order. `damage`: (start, end) of what is lost of the log."""
    verdicts: list[Verdict] = []
    end: int | None = None
    start = 0
    previous = 0  # the record whose unit last stood in line
    for number, unit in enumerate(units):
        here = unit.queue_offset
        following = [u.queue_offset for u in units[number + 1 : number + 3]]
        continued = following == [here + 1, here + 2]
        lost_between = any(previous < lost < unit.record for lost, _ in damage)
        if end is None:
            verdict = Verdict(unit, APPEND)
            start = here
        elif here == end:
            verdict = Verdict(unit, APPEND)
        elif here < end and (here == 0 or continued):
            verdict = Verdict(unit, GENERATION, end - max(here, start))
            start = min(start, here)
        elif here > end and (continued or lost_between):
            verdict = Verdict(unit, JUMP, here - end)
        else:
            verdicts.append(Verdict(unit, OUT))
            continue
        verdicts.append(verdict)
        end = here + 1
        previous = unit.record
    return verdicts


class TooManyMissing(Exception):
    """More positions are missing than could be filled one by one."""


def settle(verdicts: list[Verdict], most: int = 10**7) -> tuple[dict[int, Unit], dict[int, Unit]]:
    """(units by position, fills by position): what stands after all generations.

    A missing position repeats the next unit that stands above it. Raises TooManyMissing for more than `most` of them.
    """
    standing: dict[int, Unit] = {}
    for verdict in verdicts:
        if verdict.does == OUT:
            continue
        if verdict.does == GENERATION:
            standing = {at: unit for at, unit in standing.items() if at < verdict.unit.queue_offset}
        standing[verdict.unit.queue_offset] = verdict.unit
    fills: dict[int, Unit] = {}
    taken = sorted(standing)
    if sum(above - below - 1 for below, above in pairwise(taken)) > most:
        raise TooManyMissing
    for below, above in pairwise(taken):
        for missing in range(below + 1, above):
            fills[missing] = standing[above]
    return standing, fills
