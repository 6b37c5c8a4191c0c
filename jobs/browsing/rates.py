"""Messages over time, of a store and of its topics: by a sample of the queues' units, or of the log where no queue has any.

A unit's position is a count, and its record has the time. Between two units of the sample the messages are spread evenly.
"""

from __future__ import annotations

import contextlib
import itertools
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rocketmq_reindex.jobs.browsing import log_sample
from rocketmq_reindex.jobs.browsing.options import Facts
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueue
from rocketmq_reindex.storage_format import topics as storage_format_topics
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.queue.units import UNIT, QueueUnits, Unit
from rocketmq_reindex.storage_format.record import meaning
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs.times import show_time

BINS: Final = 48
QUEUES_MAX: Final = 400
"""queues that are looked into"""
SAMPLES: Final = 2000
"""units of all queues that are looked at, beside those that binary searches pass"""
OF_A_QUEUE: Final = 4, 250
"""units of one queue, at least and at most"""
SLOTS_MAX: Final = 5000
"""slots of one queue that are looked at: a search for a time passes those whose records cannot be read"""
TOPICS_SHOWN: Final = 24
HOUR: Final = 3_600_000


class RateStretch(NamedTuple):
    """Messages that were stored between two times, in milliseconds; where these are one, at that time."""

    begin: int
    end: int
    messages: float


@dataclass
class SampledTopic:
    """What a sample says of a topic."""

    topic: str
    stretches: list[RateStretch] = field(default_factory=list)

    def add(self, first: int, second: int, messages: float) -> None:
        """Add messages that were stored between two times. A clock may have gone back."""
        if messages > 0:
            self.stretches.append(RateStretch(min(first, second), max(first, second), messages))


@dataclass
class _Sample:
    """What was sampled of a store."""

    topics: dict[str, SampledTopic] = field(default_factory=dict)
    queues: int = 0
    looked_into: int = 0
    units: int = 0

    def of(self, topic: str) -> SampledTopic:
        return self.topics.setdefault(topic, SampledTopic(topic))

    def span(self) -> tuple[int, int] | None:
        """Return the first and the last time; None without any message."""
        every = [stretch for topic in self.topics.values() for stretch in topic.stretches]
        return (min(each.begin for each in every), max(each.end for each in every)) if every else None


def rates(search: Search, notes: Notes, hours: int | None, only: str | None) -> Facts:
    """Return messages by time of the last ``hours`` before the last message, or of all time; of one topic, if named.

    Raises InputError.
    """
    names = [only] if only is not None else [name for name in search.queues.topics() if not _is_light(name)]
    queues = [(name, number) for name in sorted(names, key=_rank) for number in search.queues.ids(name)]
    found = _of_queues(search, notes, queues, hours)
    part = "queues"
    if not found.topics and only is None:
        found, part = _of_log(search), "log"
    span = found.span()
    if span is None:
        return {
            "part": part, "begin": None, "end": None, "binSeconds": None, "total": [], "messages": 0, "topicCount": 0,
            "topics": [], "queues": found.queues, "queuesLookedInto": found.looked_into, "sampled": found.units,
        }  # fmt: skip
    begin = span[0] if hours is None else max(span[0], span[1] + 1 - hours * HOUR)
    # A log of a moment: a second.
    end = max(span[1] + 1, begin + 1000)
    drawn = [(topic, binned(topic.stretches, begin, end)) for topic in found.topics.values()]
    drawn = sorted(((topic, bins) for topic, bins in drawn if sum(bins)), key=lambda pair: (-sum(pair[1]), pair[0].topic))
    total = whole_numbers([sum(bins[k] for _, bins in drawn) for k in range(BINS)])
    rows = [(topic.topic, whole_numbers(bins)) for topic, bins in drawn[:TOPICS_SHOWN]]
    return {
        "part": part, "begin": show_time(begin), "end": show_time(end), "binSeconds": (end - begin) / BINS / 1000,
        "total": total, "messages": sum(total), "topicCount": len(drawn),
        "topics": [{"topic": n, "kind": meaning.kind_of(n), "messages": sum(bins), "bins": bins} for n, bins in rows],
        "queues": found.queues, "queuesLookedInto": found.looked_into, "sampled": found.units,
    }  # fmt: skip


def _is_light(topic: str) -> bool:
    """Return whether its messages are those of other topics again."""
    return topic.startswith(storage_format_topics.LMQ_PREFIX)


def _rank(topic: str) -> tuple[bool, str]:
    return meaning.kind_of(topic) != meaning.MESSAGE, topic


def binned(stretches: Sequence[RateStretch], begin: int, end: int) -> list[float]:
    """Return how many messages lie in each of BINS equal parts of a time. What lies before and behind it is left out."""
    bins, width = [0.0] * BINS, (end - begin) / BINS
    for stretch in stretches:
        length = stretch.end - stretch.begin
        low, high = max(stretch.begin, begin), min(stretch.end, end)
        if not length:
            if begin <= low < end:
                bins[min(BINS - 1, int((low - begin) / width))] += stretch.messages
            continue
        if high <= low:
            continue
        for k in range(int((low - begin) / width), min(BINS - 1, int((high - begin) / width)) + 1):
            inside = min(high, begin + (k + 1) * width) - max(low, begin + k * width)
            bins[k] += stretch.messages * max(0.0, inside) / length
    return bins


def whole_numbers(bins: Sequence[float]) -> list[int]:
    """Return the numbers rounded, so that their sum is the sum rounded."""
    told, total, before = [], 0.0, 0
    for value in bins:
        total += value
        told.append(round(total) - before)
        before = round(total)
    return told


# ----------------------------------------------------------------------------------------------------------------------- queues


def _of_queues(search: Search, notes: Notes, queues: Sequence[tuple[str, int]], hours: int | None) -> _Sample:
    found = _Sample(queues=len(queues))
    looked = queues[:QUEUES_MAX]
    least, most = OF_A_QUEUE
    samples = min(most, max(least, SAMPLES // max(1, len(looked))))
    last = None if hours is None else log_sample.last_time(search.log)
    since = None if hours is None or last is None else last - hours * HOUR
    for topic, number in looked:
        queue = search.queues.open(topic, number, search.log, notes)
        found.looked_into += 1
        if queue is None:
            continue
        with contextlib.closing(queue):
            queue.units.left = SLOTS_MAX
            try:
                probes = list(_probes(search, queue, samples, since))
                for stretch in _stretches(queue.units, probes):
                    found.of(topic).add(*stretch)
            except InputError as error:
                notes.add("a queue's times", f"{queue.place}: {error}")
                continue
        found.units += len(probes)
    return found


class _Probe(NamedTuple):
    """What stands in a slot, and when its record was stored; None where that cannot be read."""

    unit: Unit
    time: int | None


def _probes(search: Search, queue: StoreQueue, samples: int, since: int | None) -> Iterator[_Probe]:
    """Yield evenly spread slots from the first unit whose record the log has to the last one.

    With ``since`` they begin with the last unit before that time.
    """
    units = queue.units
    low = units.first_where(lambda unit: unit.phy_offset >= search.log.start)
    if since is not None:
        low = max(low, queue.position_at_time(since, False) - 1)
    high = units.end - 1
    step = max(1.0, (high - low) / (samples - 1))
    passed = -1
    for number in range(samples):
        position = min(high, low + round(number * step))
        if position == passed or position < low:
            break
        passed = position
        unit = units.at(position)
        message = search.log.message(unit.phy_offset) if unit.kind == UNIT else ""
        yield _Probe(unit, message.store_time if isinstance(message, Message) else None)


def _stretches(units: QueueUnits, probes: Sequence[_Probe]) -> Iterator[RateStretch]:
    """Yield the messages between each two slots, with the times that are known; and the last one."""
    times = [probe.time for probe in probes if probe.time is not None]
    if not times:
        return
    known = times[0]
    for probe, behind in itertools.pairwise(probes):
        begin = known if probe.time is None else probe.time
        known = begin if behind.time is None else behind.time
        yield RateStretch(begin, known, _messages(units, probe.unit, behind.unit))
    if probes[-1].unit.kind == UNIT:
        yield RateStretch(known, known, probes[-1].unit.messages)


def _messages(units: QueueUnits, first: Unit, second: Unit) -> int:
    """Return the messages from one slot to another. Where one alone has a unit, there is an edge between: it is looked for."""
    has_unit = second.kind == UNIT
    if (first.kind == UNIT) == has_unit:
        return second.base - first.base if has_unit else 0
    between = range(first.position + 1, second.position)
    edge = first.position + 1 + bisect_left(between, True, key=lambda position: (units.at(position).kind == UNIT) == has_unit)
    if has_unit:
        return second.base - units.at(edge).base
    last = units.at(edge - 1)
    return last.base + last.messages - first.base


# -------------------------------------------------------------------------------------------------------------------------- log


def _of_log(search: Search) -> _Sample:
    found = _Sample()
    places = [place for place in log_sample.sample(search.log) if place.time is not None]
    last = log_sample.last_time(search.log)
    ends = [*(place.time for place in places[1:]), last]
    for place, end in zip(places, ends, strict=True) if places else ():
        assert place.time is not None
        found.units += place.records.total()
        for topic in place.records:
            found.of(topic).add(place.time, place.time if end is None else end, place.messages(topic))
    return found
