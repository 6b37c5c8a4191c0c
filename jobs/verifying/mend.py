"""The build that mends what a verify found, with its options. Where it would lose something, none is advised, and why."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store.folders import entries_of
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.storage_format.checks.differences import CHECKPOINT, INDEX, KINDS, LOG, QUEUES, Example, Tally
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.udfs import files

NO_BUILD = "no build is advised"
_LOOK_FIRST: Final = "look first whether the disk that holds the segment is mounted, and its name right; if it is lost: "
MISSING_SEGMENT: Final = "log-segment-missing"
"""the kind of difference"""
_CARRIED: Final = (*SIZES, "delay_levels", "broker_version", "segment_size", "crc", "max_fill")


@dataclass
class Mend:
    """How to mend what was found."""

    build: BuildSettings
    topics_config: str = ""
    reasons: dict[str, list[str]] = field(default_factory=dict)
    """why a part is not to be built, by part"""
    options: list[str] = field(default_factory=list)
    """more options of a build of queues"""
    damaged: bool = False
    """a build refuses the log unless --on-damage says what to do"""
    cut: int = -1
    """offset where a broker that starts cuts its log, or -1"""
    unclean: bool = False
    """there is a file ``abort``: a checkpoint that is built alone then vouches for no more than the old one"""

    def leave_out(self, parts: Iterable[str], reason: str) -> None:
        """Advise no build of these parts, for this reason."""
        for part in parts:
            self.reasons.setdefault(part, []).append(reason)

    def of_kind(self, kind: str) -> str:
        """Return what mends one kind of difference: a command, other advice, or why there is none."""
        parts = self._parts(kind)
        if why := self._why(parts):
            return f"{NO_BUILD}: {why[0]}"
        if not parts:
            return KINDS[kind].advice
        # A build leaves out what a missing segment held, and the segment may only be out of reach.
        return f"{_LOOK_FIRST if kind == MISSING_SEGMENT else ''}{self._command(parts)}"

    def of_all(self, kinds: Iterable[str]) -> tuple[str | None, list[str]]:
        """Return the command that mends all kinds of which the build loses nothing, and why there is none for the others."""
        wanted = [self._parts(kind) for kind in kinds]
        reasons = {reason for parts in wanted for reason in self._why(parts)}
        mended = {part for parts in wanted if not self._why(parts) for part in parts}
        parts = tuple(part for part in self.build.only if part in mended)
        return self._command(parts) if parts else None, sorted(reasons)

    def _parts(self, kind: str) -> tuple[str, ...]:
        """The parts that a build has to make anew."""
        parts = KINDS[kind].mend
        return (QUEUES, INDEX, CHECKPOINT) if self.unclean and CHECKPOINT in parts else parts

    def _why(self, parts: Iterable[str]) -> list[str]:
        return [reason for part in parts for reason in self.reasons.get(part, ())]

    def _command(self, parts: tuple[str, ...]) -> str:
        build = self.build
        arguments = ["rmq-reindex", "build", build.store, "--out", "DIR"]
        arguments += [argument for root in build.commitlogs for argument in ("--commitlog", root)]
        if set(parts) != set(build.only):
            arguments += ["--only", ",".join(parts)]
        usual = {name.name: name.default for name in dataclasses.fields(BuildSettings)}
        for name in _CARRIED:
            if getattr(build, name) != usual[name]:
                arguments += [f"--{name.replace('_', '-')}", str(getattr(build, name))]
        arguments += ["--lmq"] if build.lmq else []
        arguments += (
            ["--topics-config", self.topics_config or f"{build.store}/config/topics.json"] if build.batch_topics else []
        )
        arguments += self.options if QUEUES in parts else []
        arguments += ["--on-damage", "salvage"] if self.damaged else []
        arguments += ["--until-offset", str(self.cut)] if self.cut >= 0 else []
        return shlex.join(map(redacted, arguments))


@dataclass
class LogFindings:
    """What the log holds that matters to the build that is advised."""

    inner_batches: int = 0
    """records that are inner batches"""
    damaged: bool = False
    cut: int = -1
    """offset where a broker that starts cuts the log, or -1"""
    max_fill: int = 0
    """--max-fill that a build needs, 0 where its own is enough"""
    undecided: str = ""
    """what the operator has to look at first: old records behind the log's end, or a disk that is not mounted"""


def advise(
    settings: VerifySettings, tally: Tally, log: LogFindings, orders: dict[str, int], idle_queues: int, store: str
) -> Mend:
    """Return what a build of this store needs, and what it would lose.

    ``settings`` are those after ``take_sizes``; ``store`` is what the advice calls the store.
    """
    damaged = log.damaged or any(KINDS[kind].part == LOG and KINDS[kind].mend for kind in tally.counts)
    mend = Mend(
        dataclasses.replace(settings.mending_build(store), max_fill=max(settings.max_fill, log.max_fill)),
        settings.topics_config,
        damaged=damaged,
        cut=log.cut,
        unclean="abort-file" in tally.counts,
    )
    if not tally.counts:
        return mend
    if log.undecided:
        mend.leave_out((QUEUES, INDEX, CHECKPOINT), log.undecided)
    for part in (QUEUES, INDEX):
        if part not in settings.only:
            mend.leave_out((part,), f"{part} was not compared, so nothing tells what a build would lose: verify it, too")
    if settings.sample < 1 and QUEUES in settings.only:
        mend.leave_out((QUEUES,), "a sample does not tell what a build of consumequeue would lose: verify all of it")
    with contextlib.closing(_Records(settings)) as records:
        light = records.light_queue(tally)
    if not settings.sizes_known:
        mend.leave_out((INDEX,), "no file says how many slots and items an IndexFile has: give --hash-slots and --index-items")
    if light:
        mend.leave_out((QUEUES,), f"{light} is a light queue, which a build drops without --lmq: verify with --lmq")
    batches = entries_of(files.join(settings.store, "batchconsumequeue"))
    if (log.inner_batches or batches) and not settings.batch_topics:
        mend.leave_out((QUEUES,), "there are batch queues, which a build drops without --topics-config: verify with it")
    if idle_queues:
        text = f"queues that hold units of expired records alone: {idle_queues}: a build drops them"
        mend.leave_out((QUEUES,), f"{text}, and a broker then numbers their messages from 0: keep their folders")
    if remade := orders.get("made anew"):
        text = f"queues that were made anew, and are out of order since then: {remade}"
        mend.leave_out((QUEUES,), f"{text}: a build puts their units elsewhere than the broker did")
    if orders.get("broker") and orders.get("logical"):
        text = "some queues out of order stand as --queue-order logical puts them, others as broker does"
        mend.leave_out((QUEUES,), f"{text}: a build moves the ones or the others")
    elif orders.get("broker"):
        mend.options += ["--queue-order", "broker"]
    return mend


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
        if self._settings.lmq:
            return ""
        for kind in ("queue-unit-extra", "queue-unit-other"):
            for example in tally.examples.get(kind, ()):
                if name := self._light_queue(example):
                    return name
        return ""

    def _light_queue(self, example: Example) -> str:
        folder, topic, *_, file = example.where.split("/")
        start = first_byte(file)
        with contextlib.suppress(OSError, InputError, ValueError):
            if start is None or folder != "consumequeue":
                return ""
            with files.Reader(files.join(self._settings.store, *example.where.split("/"))) as reader:
                (unit,) = np.frombuffer(reader.read(example.at * UNIT_SIZE - start, UNIT_SIZE), UNIT)
            message = self._message(int(unit["phy_offset"]))
            if message and topic in message.properties.get("INNER_MULTI_DISPATCH", "").split(","):
                return escape(topic)
        return ""

    def _message(self, phy_offset: int) -> Message | None:
        self._log = self._log or StoreLog(self._settings.roots, Notes())
        found = self._log.message(phy_offset)
        return found if isinstance(found, Message) else None
