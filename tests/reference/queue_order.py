"""What becomes of each unit of a queue whose offsets repeat or have gaps (`--queue-order logical`)."""

from dataclasses import dataclass, replace
from itertools import pairwise

# What a unit does to its queue.
APPEND, GENERATION, JUMP, OUT, PENDING = "append", "generation", "jump", "out-of-line", "pending"
FILL_MAX = 100_000
RECORD_MIN = 91


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
    """`count`: positions dropped by a generation, or missing below a jump; `at`: the position that it takes.

    `wrong`: of a record out of line, that its offset is sure to be another one.
    """

    unit: Unit
    does: str
    at: int
    count: int = 0
    wrong: bool = False


def judge(units: list[Unit], damage: list[tuple[int, int]], most: int = FILL_MAX) -> list[Verdict]:
    """A verdict for each unit, in the log's order. `damage`: (start, end) of what is lost of the log.

    `most`: offsets that may be missing below a jump for which nothing speaks but that nothing contradicts it.
    """
    verdicts: list[Verdict] = []
    end: int | None = None  # position of the next unit in line
    behind = 0  # how far units stand below the offsets they name
    start = 0
    previous = 0  # where the record ends whose unit last stood in line
    strays: list[int] = []  # verdicts on units out of line since then
    used_up = 0  # offsets of those units
    stretches = _stretches(units)
    number = 0
    while number < len(stretches):
        stretch = stretches[number]
        unit = stretch[0]
        # A broker that starts counts from its units again.
        back = behind if end is not None and unit.queue_offset - behind >= end else 0
        here = unit.queue_offset - back
        following = stretches[number + 1][0].queue_offset if number + 1 < len(stretches) else None
        does, count = APPEND, 0
        if end is None:
            start = here
        elif here < end:
            alone = len(stretch) == 1 and not unit.again and following == end + 1
            if len(stretch) >= 3 if here else not alone:
                does, count = GENERATION, end - max(here, start)
                start = min(start, here)
            else:
                does = OUT
        elif here > end:
            room = _room(previous, unit, damage)
            explained = here - end == used_up or len(stretch) >= 3 or here - end <= room
            rooms = [(some, _room(previous, some[0], damage)) for some in stretches[number + 1 : number + 33]]
            contradicted = _contradicted(end, used_up, stretch, rooms, back)
            if not explained and (here - end > most or contradicted):
                does = OUT
            else:
                does, count = JUMP, here - end
                if here - end == used_up:
                    for stray in strays:
                        wrong = verdicts[stray].at > here and verdicts[stray].at - end > room
                        verdicts[stray] = replace(verdicts[stray], wrong=wrong)
        if does == OUT:
            strays.append(len(verdicts))
            used_up += _length(stretch[:1])
            verdicts.append(Verdict(unit, PENDING if following is None else OUT, here))
            # What stands behind it may be in line.
            stretches[number] = stretch[1:]
            number += not stretches[number]
            continue
        for each in stretch:
            verdicts.append(Verdict(each, does, each.queue_offset - back, count))
            end = each.queue_offset - back + 1
            behind = back = back + each.again
            does, count = APPEND, 0
        previous = stretch[-1].record + stretch[-1].size
        strays, used_up = [], 0
        number += 1
    return verdicts


def _stretches(units: list[Unit]) -> list[list[Unit]]:
    """Units that follow on each other, together."""
    found: list[list[Unit]] = []
    for unit in units:
        if found and found[-1][-1].queue_offset + 1 + found[-1][-1].again == unit.queue_offset:
            found[-1].append(unit)
        else:
            found.append([unit])
    return found


def _length(stretch: list[Unit]) -> int:
    return sum(1 + unit.again for unit in stretch)


def _room(previous: int, unit: Unit, damage: list[tuple[int, int]]) -> int:
    """How many records may be lost before a unit; -1 where no bytes are lost."""
    lost_between = any(previous <= stop <= unit.record for _, stop in damage)
    return (unit.record - previous) // RECORD_MIN if lost_between else -1


def _contradicted(end: int, used_up: int, stretch: list[Unit], later: list[tuple[list[Unit], int]], back: int) -> bool:
    """Whether the queue goes on behind a jump as if it were not there, or had other offsets.

    `later`: stretches, and the room for lost records before each.
    """
    stop = stretch[-1].queue_offset + 1 + stretch[-1].again
    seen = used_up + _length(stretch)
    goes_on = False
    for some, room in later:
        first = some[0].queue_offset
        above = first - back - end
        fits = len(some) >= 3 or above in (0, seen) or (room >= 0 and above - seen <= room)
        if above >= 0 and first < stop and fits:
            goes_on = True
        if len(some) >= 3 or first == 0:
            return goes_on and first != stop
        seen += _length(some)
    return goes_on


class TooManyMissing(Exception):
    """More positions are missing than could be filled one by one."""


def settle(verdicts: list[Verdict], most: int = 10**7, head: int = 0) -> tuple[dict[int, Unit], dict[int, Unit]]:
    """(units by position, fills by position): what stands after all generations.

    A missing position repeats the next unit that stands above it. So do those before the first unit in a file of `head` units.
    Raises TooManyMissing for more than `most` of them.
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
    before = [taken[0] - taken[0] % head - 1] if head and taken else []
    pairs = list(pairwise([*before, *taken]))
    if sum(above - below - 1 for below, above in pairs) > most:
        raise TooManyMissing
    for below, above in pairs:
        for missing in range(below + 1, above):
            fills[missing] = standing[above]
    return standing, fills
