"""Advise what mends the differences that a verify found: a repair where the log is damaged, else a build, or nothing."""

import contextlib
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import advice
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.fitting import index_files, queue_files
from rocketmq_reindex.jobs.store.folders import Notes, entries_in
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.work import take_sizes
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.storage_format.checks.differences import CHECKPOINT, INDEX, KINDS, LOG, PARTS, QUEUES, Example, Tally
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.record.message import Message

NO_BUILD = "no build is advised"
_LOOK_FIRST: Final = "look first whether the disk that holds the segment is mounted, and its name right; if it is lost: "
MISSING_SEGMENT: Final = "log-segment-missing"
"""the kind of difference"""


@dataclass
class Mend:
    """How to mend what was found."""

    build: BuildSettings
    topics_config: str = ""
    reasons: dict[str, list[str]] = field(default_factory=dict)
    """why a part is not to be built, by part"""
    unasked: set[str] = field(default_factory=set)
    """those of them that only say that nobody asked to compare the part"""
    options: list[str] = field(default_factory=list)
    """more options of a build of queues"""
    damaged: bool = False
    """a build refuses the log unless --on-damage says what to do"""
    repairs: bool = False
    """a repair of the log mends it, and is advised first"""
    first: int = -1
    """offset of the first damage, or -1"""
    cut: int = -1
    """offset where a broker that starts cuts its log, or -1"""
    unclean: bool = False
    """there is a file ``abort``: a checkpoint that is built alone then vouches for no more than the old one"""
    timers: bool = False
    """units of ``timerlog`` do not lead to their messages: a build of all parts makes these files from the log, too"""
    made: tuple[str, ...] = ()
    """parts that the command makes which mends all"""
    unsized: tuple[str, ...] = ()
    """parts whose sizes no file shows, and nobody named"""

    def leave_out(self, parts: Iterable[str], reason: str, *, repairs: bool = True) -> None:
        """Advise no build of these parts, for this reason; with ``repairs=False`` no repair, either."""
        self.repairs &= repairs
        for part in parts:
            self.reasons.setdefault(part, []).append(reason)

    def of_kind(self, kind: str) -> str:
        """Return what mends one kind of difference: a command, other advice, or why there is none."""
        parts = self._parts(kind)
        look_first = _LOOK_FIRST if kind == MISSING_SEGMENT else ""
        # It makes all parts. A missing segment may only be out of reach.
        if self.repairs and parts:
            return f"{look_first}{self._repair()}"
        if why := self._why(parts):
            return f"{NO_BUILD}: {why[0]}"
        if not parts:
            return KINDS[kind].advice
        return f"{look_first}{self._command(parts)}"

    def of_all(self, kinds: Iterable[str]) -> tuple[str | None, list[str]]:
        """Return the command that mends all kinds of which the build loses nothing, and why there is none for the others."""
        wanted = [self._parts(kind) for kind in kinds]
        reasons = {reason for parts in wanted for reason in self._why(parts)}
        mended = {part for parts in wanted if not self._why(parts) for part in parts}
        parts = tuple(part for part in self.build.only if part in mended)
        self.made = (QUEUES, INDEX, CHECKPOINT) if self.repairs else parts
        if self.repairs:
            # It makes all parts, whatever was compared.
            return self._repair(), sorted(reasons - self.unasked)
        return self._command(parts) if parts else None, sorted(reasons)

    def of_sizes(self) -> list[str]:
        """Return a note on sizes that nothing shows, where the command of ``of_all`` makes such files."""
        return advice.of_sizes([part for part in self.unsized if part in self.made], "the command that mends")

    def other_ways(self) -> list[advice.Way]:
        """Return the builds that may take the place of a repair, with what they lose."""
        if not self.repairs or any(self.reasons.values()):
            return []
        stop = advice.Way(advice.stopped(self.first), self._command(self.build.only, "stop"))
        salvage = advice.Way(advice.salvaged(self.cut), self._command(self.build.only, "salvage"))
        if self.cut < 0:
            return [stop, salvage]
        return [stop, advice.Way(advice.stopped(self.cut), self._command(self.build.only, "salvage", self.cut)), salvage]

    def _repair(self) -> str:
        return advice.repair(self.build, self.topics_config)

    def _parts(self, kind: str) -> tuple[str, ...]:
        """Return the parts that a build has to make anew."""
        parts = KINDS[kind].mend
        return (QUEUES, INDEX, CHECKPOINT) if self.unclean and CHECKPOINT in parts else parts

    def _why(self, parts: Iterable[str]) -> list[str]:
        return [reason for part in parts for reason in self.reasons.get(part, ())]

    def _command(self, parts: tuple[str, ...], on_damage: str = "", until: int = -1) -> str:
        words = advice.opening("build", self.build)
        words += ["--only", ",".join(parts)] if set(parts) != set(self.build.only) else []
        words += advice.options(self.build, self.topics_config)
        words += self.options if QUEUES in parts else []
        # It goes with a build of the whole log, in the order of the queue offsets.
        whole = {*parts} == {QUEUES, INDEX, CHECKPOINT} and until < 0 and "--queue-order" not in self.options
        words += ["--write-delay"] if self.timers and whole else []
        on_damage = on_damage or ("salvage" if self.damaged else "")
        words += ["--on-damage", on_damage] if on_damage else []
        words += ["--until-offset", str(until)] if until >= 0 else []
        return showing.shell(map(showing.redacted, words))


@dataclass
class LogFindings:
    """What the log holds that matters to the build that is advised."""

    inner_batches: int = 0
    """records that are inner batches"""
    first: int = -1
    """offset of the first damage that a repair mends, or -1"""
    cut: int = -1
    """offset where a broker that starts cuts the log, or -1"""
    max_fill: int = 0
    """--max-fill that a build needs, 0 where its own is enough"""
    copied: bool = False
    """the log has one of DLedger: where it is damaged, its node copies it from the leader"""
    undecided: str = ""
    """what the operator has to look at first: old records behind the log's end, or a disk that is not mounted"""


def advise(
    settings: VerifySettings, tally: Tally, log: LogFindings, orders: dict[str, int], idle_queues: int, store: str
) -> Mend:
    """Return what a build of this store needs, and what it would lose.

    ``settings`` are those after ``take_sizes``; ``store`` is what the advice calls the store.
    """
    if log.first >= 0 and INDEX not in settings.only:
        # A repair makes all parts: the sizes of those that were not compared matter, too.
        with contextlib.suppress(errors.InputError):
            settings = dataclasses.replace(take_sizes(dataclasses.replace(settings, only=PARTS))[0], only=settings.only)
    damaged = log.first >= 0 or any(KINDS[kind].part == LOG and KINDS[kind].mend for kind in tally.counts)
    mend = Mend(
        dataclasses.replace(settings.mending_build(store), max_fill=max(settings.max_fill, log.max_fill)),
        settings.topics_config,
        damaged=damaged,
        repairs=log.first >= 0,
        first=log.first,
        cut=log.cut,
        unclean="abort-file" in tally.counts,
        timers=any(kind.startswith("timer-") for kind in tally.counts),
    )
    if not tally.counts:
        return mend
    mend.unsized = _unsized(settings)
    if damaged and log.copied and not log.undecided:
        mend.leave_out((QUEUES, INDEX, CHECKPOINT), f"the log is damaged: {advice.COPIED}", repairs=False)
    if log.undecided:
        mend.leave_out((QUEUES, INDEX, CHECKPOINT), log.undecided, repairs=False)
    for part in (QUEUES, INDEX):
        if part not in settings.only:
            reason = f"{part} was not compared, so nothing tells what a build would lose: verify it, too"
            mend.leave_out((part,), reason)
            mend.unasked.add(reason)
    if settings.sample < 1 and QUEUES in settings.only:
        mend.leave_out((QUEUES,), "a sample does not tell what a build of consumequeue would lose: verify all of it")
    with contextlib.closing(_Records(settings)) as records:
        light = records.light_queue(tally)
    if not settings.sizes_known:
        text = "no file says how many slots and items an IndexFile has: give --hash-slots and --index-items"
        mend.leave_out((INDEX,), text, repairs=False)
    if light:
        text = f"{light} is a light queue, which a build drops without --lmq: verify with --lmq"
        mend.leave_out((QUEUES,), text, repairs=False)
    batches = entries_in(files.join(settings.store, layouts.BATCH_QUEUES))
    if (log.inner_batches or batches) and not settings.batch_topics:
        text = "there are batch queues, which a build drops without --topics-config: verify with it"
        mend.leave_out((QUEUES,), text, repairs=False)
    if settings.beside.light_alone and not settings.broker_conf:
        text = "light queues are in RocksDB alone, and a build writes them so by a broker.conf: verify with --broker-conf"
        mend.leave_out((QUEUES,), text, repairs=False)
    elif settings.database or (settings.database_beside and not settings.beside.light_alone):
        mend.options += ["--consumequeue-type", "rocksdb" if settings.database else "both"]
    if idle_queues:
        text = f"queues that hold units of expired records alone: {idle_queues}: a build drops them"
        mend.leave_out(
            (QUEUES,), f"{text}, and a broker then numbers their messages from 0: --expired-queues keep keeps their ends"
        )
    if remade := orders.get("made anew"):
        text = f"queues that were made anew, and are out of order since then: {remade}"
        mend.leave_out((QUEUES,), f"{text}: a build puts their units elsewhere than the broker did")
    if orders.get("broker") and orders.get("logical"):
        text = "some queues out of order stand as --queue-order logical puts them, others as broker does"
        mend.leave_out((QUEUES,), f"{text}: a build moves the ones or the others")
    elif orders.get("broker") and not settings.database and not settings.database_beside:
        mend.options += ["--queue-order", "broker"]
    return mend


def _unsized(settings: VerifySettings) -> tuple[str, ...]:
    if settings.broker_conf:
        return ()
    found = list[str]()
    if not (settings.database or settings.is_named("cq_file_size")) and not any(
        queue_files(files.join(settings.store, QUEUES))
    ):
        found.append(QUEUES)
    if not settings.is_named("hash_slots") and not index_files(settings.store):
        found.append(INDEX)
    return tuple(found)


class _Records:
    """The records behind the first examples of some differences: a few, which are read one by one."""

    def __init__(self, settings: VerifySettings) -> None:
        self._settings = settings
        self._log: StoreLog | None = None

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def light_queue(self, tally: Tally) -> str:
        """Return the name of a queue whose units are of records that name it as a light queue; "" for none."""
        # A name in a database is no folder's: it may lead out of the store.
        if self._settings.lmq or self._settings.database:
            return ""
        for kind in ("queue-unit-extra", "queue-unit-other"):
            for example in tally.examples.get(kind, ()):
                if name := self._light_queue(example):
                    return name
        return ""

    def _light_queue(self, example: Example) -> str:
        folder, topic, *_, file = example.where.split("/")
        start = layouts.first_byte(file)
        with contextlib.suppress(OSError, errors.InputError, ValueError):
            if start is None or folder != layouts.QUEUES:
                return ""
            with files.Reader(files.join(self._settings.store, *example.where.split("/"))) as reader:
                (unit,) = np.frombuffer(reader.read(example.at * UNIT_SIZE - start, UNIT_SIZE), UNIT)
            message = self._message(int(unit["phy_offset"]))
            if message and topic in message.properties.get("INNER_MULTI_DISPATCH", "").split(","):
                return showing.escape(topic)
        return ""

    def _message(self, phy_offset: int) -> Message | None:
        self._log = self._log or StoreLog(self._settings.roots, Notes())
        message = self._log.message(phy_offset)
        return message if isinstance(message, Message) else None
