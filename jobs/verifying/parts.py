"""Parts of a verify: the log, with what earlier verifies found of it, and the order of its queues, decided as a build does.

What a store says of its log beside it is checked, too: epochs of a controller group, by themselves, and with the checkpoint
against a replica's.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import inputs
from rocketmq_reindex.jobs.building.decisions import Decisions
from rocketmq_reindex.jobs.building.scanning import Scan, ScanMemory, fingerprint_of, store_of
from rocketmq_reindex.jobs.publishing.layout import TIMER_CHECK, TIMERS, Leftovers
from rocketmq_reindex.jobs.store import contents, owner
from rocketmq_reindex.jobs.store.settings import Commitlog
from rocketmq_reindex.jobs.verifying import mend
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.summary import PartFindings
from rocketmq_reindex.storage_format import checkpoints, errors, layouts
from rocketmq_reindex.storage_format.checkpoints import CHECKPOINT_LAYOUT
from rocketmq_reindex.storage_format.delay import timer_layout
from rocketmq_reindex.storage_format.delay.evidence import FITS
from rocketmq_reindex.storage_format.delay.timer_files import to_read
from rocketmq_reindex.storage_format.delay.wheel import fates_in
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan import settings as scan_settings
from rocketmq_reindex.storage_format.scan.chain import Chain
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.incremental.remembered_scan import RememberedVerify
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore, read_sealed, sealed
from rocketmq_reindex.udfs.scan.ranges import ScanTask
from rocketmq_reindex.udfs.verify import queue_tasks
from rocketmq_reindex.version import __version__

# ------------------------------------------------------------------------------------------------------------------- beside log


_UNITS_READ: Final = 20_000
"""units of timerlog that are read at a time: 1 MB"""
_UNIT: Final = timer_layout.LOG_LAYOUT.size


def _wrong(epoch: checkpoints.Epoch, log: contents.StoreLog, log_end: int) -> str:
    """Return what is wrong with the place where an epoch begins; "" for a record, the log's end, and what has expired."""
    if not log.start <= epoch.start < log_end:
        return "" if epoch.start <= log_end else f"which lies behind the log's end at {log_end}"
    found = log.message(epoch.start)
    is_record = not isinstance(found, str) or found in (contents.FILLER, contents.LOST)
    return "" if is_record else f"where no record begins: {found}"


def check_epochs(store: str, roots: Sequence[str]) -> PartFindings:
    """Return what is wrong with the epochs of a store whose log is in ``roots``. Raises OSError, and InputError."""
    findings = PartFindings()
    read = owner.read_epoch_file(store)
    if read is None and owner.read_epoch_file(store, checkpoints.BACKUP) is None:
        return findings
    taken, name, stops = owner.taken_epochs(store)
    so = "a broker does not start" if stops else f"a broker takes {name or 'no epoch'}"
    if read is None:
        findings.tally.add("epoch-file", 1, checkpoints.FILE, 0, f"is not there: {so}")
    for finding in read.findings if read is not None else ():
        findings.tally.add(
            "epoch-file", finding.count, checkpoints.FILE, max(0, finding.at), f"{owner.finding_in_words(finding)}: {so}"
        )
    with owner.opened_log(roots) as log:
        log_end = owner.log_end(log)
        for epoch in taken:
            wrong = _wrong(epoch, log, log_end)
            if wrong:
                text = f"epoch {epoch.epoch} begins at offset {epoch.start}, {wrong}"
                findings.tally.add("epoch-offset", 1, name, epoch.start, text)
        suspected = owner.told_of(owner.suspect_tail(store, log, log_end)) if taken else []
    if taken:
        last = checkpoints.in_order(taken)[-1]
        text = f"{name}: {counted(len(taken), 'epoch')}, the last one is {last.epoch}, from offset {last.start} on"
        findings.notes.append(text)
    findings.notes += suspected
    return findings


def check_timers(store: str, roots: Sequence[str]) -> PartFindings:
    """Return which units of ``timerlog`` lead behind the end of the log in ``roots``, or to other records than their messages,
    as where that was cut, and they were not.

    Of units that a broker has read nothing is said, nor of those whose message has expired. Raises OSError, and InputError.
    """
    findings, folder = PartFindings(), files.join(store, TIMERS[0])
    if files.entry_of(folder).kind != files.FOLDER:
        return findings
    path = files.join(store, TIMER_CHECK)
    check = timer_layout.TimerCheckpoint()
    if files.entry_of(path).kind == files.FILE:
        check = timer_layout.TimerCheckpoint.from_bytes(files.head(path, timer_layout.SIZE))
    with owner.opened_log(roots) as log:
        log_end = owner.log_end(log)
        for name in sorted(files.names(folder)):
            if layouts.first_byte(name) is None or files.entry_of(files.join(folder, name)).kind != files.FILE:
                continue
            with files.Reader(files.join(folder, name)) as reader:
                at, asked, read = 0, 1, 1
                # Behind the last unit lie zeros, or a blank unit that closes the file.
                while asked and read == asked:
                    asked = min(_UNITS_READ, (reader.size() - at) // _UNIT)
                    read, numbers, units = to_read(reader.read(at, asked * _UNIT), check.read_time)
                    for kind, wrong, text in _strayed(units, log, log_end):
                        place = at + int(numbers[wrong[0]]) * _UNIT
                        findings.tally.add(kind, len(wrong), f"{TIMERS[0]}/{name}", place, text)
                    at += read * _UNIT
    return findings


def _strayed(
    units: npt.NDArray[np.void], log: contents.StoreLog, log_end: int
) -> Iterator[tuple[str, npt.NDArray[np.int64], str]]:  # fmt: skip
    """Yield kind, numbers and text of units that do not lead to their messages; the messages end at ``log_end``."""

    def part(number: int, at: int, size: int) -> npt.NDArray[np.uint8]:
        # Compiled loops take a read-only array for another type.
        return np.frombuffer(bytearray(log.pages(log.segments[number]).read(at, size)), np.uint8)

    is_behind = units["phy_offset"].astype(np.int64) + units["record_size"] > log_end
    if is_behind.any():
        behind = np.flatnonzero(is_behind)
        yield "timer-beyond-log", behind, f"{counted(len(behind), 'unit')} of messages behind the log's end at {log_end}"
    fates = fates_in(units, [(segment.start, segment.size) for segment in log.segments], part, log_end)
    others = np.flatnonzero(~is_behind & (units["phy_offset"] >= log.start) & (fates != FITS))
    if len(others):
        place = int(units["phy_offset"][others[0]])
        found = log.message(place)
        what = found if isinstance(found, str) else f"a message of {escape(found.topic or '', 60)}/{found.queue_id}"
        yield "timer-other-record", others, f"{counted(len(others), 'unit')} of other messages: offset {place}: {what}"


def compare_epochs(stores: Sequence[str], roots: Sequence[Sequence[str]]) -> list[str]:
    """Return notes on two stores of a controller group: up to where their logs are the same by their epochs.

    Raises OSError, and InputError.
    """
    (mine, _, _), (other, _, _) = map(owner.taken_epochs, stores)
    if not mine and not other:
        return []
    if not (mine and other):
        return [f"only {'A' if mine else 'B'} has epochs of a controller group"]
    ends = list[int]()
    for folders in roots:
        with owner.opened_log(folders) as log:
            ends.append(owner.log_end(log))
    same = checkpoints.same_up_to(mine, ends[0], other, ends[1])
    if same < 0:
        return ["epochs: the stores have none in common: a slave with the one log does not join a master with the other"]
    behind = [name for name, end in zip("AB", ends, strict=True) if end > same]
    cut = f"a slave cuts what it has behind that, here {' and '.join(behind)}" if behind else "where both end"
    return [f"epochs: the two logs are the same up to offset {same}, {cut}"]


def compare_checkpoints(stores: Sequence[str]) -> list[str]:
    """Return notes on where checkpoints differ. They say when each store was flushed, so that is no difference."""
    paths = [files.join(store, layouts.CHECKPOINT) for store in stores]
    there = [files.entry_of(path).kind == files.FILE for path in paths]
    if all(there):
        a, b = (files.head(path, CHECKPOINT_LAYOUT.size) for path in paths)
        return ["the checkpoints differ, as those of two brokers do"] if a != b else []
    return ["only one of the stores has a checkpoint"] if any(there) else []


# -------------------------------------------------------------------------------------------------------------------------- log


def sampled(segments: list[Segment], share: float) -> list[Segment]:
    """Return evenly spread segments, always the same ones, and the last, which says where the log ends."""
    count = len(segments)
    wanted = max(1, round(share * count)) if share < 1 else count
    chosen = {number * count // wanted for number in range(wanted)} | {count - 1}
    return [segment for number, segment in enumerate(segments) if number in chosen]


def between(offset: int, stretches: Iterable[tuple[int, int]]) -> bool:
    """Return whether an offset lies in one of the stretches (low, high)."""
    return any(low <= offset < high for low, high in stretches)


def unmounted(settings: VerifySettings, log: Commitlog, accepted: list[RangeSummary]) -> str:
    """Return a note on a log that seems to lack a disk; "" where it seems whole."""
    if bare := inputs.bare_roots(settings, log):
        return f"{escape(bare[0])}: holds no segment: is its disk mounted?"
    return "" if any(summary.records for summary in accepted) else "the log holds no record: is its disk mounted?"


def check_log(settings: VerifySettings, log: Commitlog, chain: Chain, unread: tuple[tuple[int, int], ...]) -> PartFindings:
    """Return the damage of the log; ``unread`` are the offsets that a sample leaves out."""
    findings = PartFindings()
    for hole in chain.holes:
        if between(hole.offset, unread):
            continue  # not missing: left out of the sample
        kind = mend.MISSING_SEGMENT if hole.reason == r.MISSING_SEGMENT else "log-damage"
        text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
        findings.tally.add(kind, 1, f"commitlog/{hole.segment}", hole.offset, text)
        findings.damage.append(hole)
    if chain.stale:
        findings.notes.append(f"offset {chain.stale.offset}, {chain.stale.length:,} bytes: {chain.stale.reason}")
    elif chain.torn:
        torn = chain.torn
        findings.notes.append(
            f"torn tail at offset {torn.offset}, {counted(torn.length, 'byte')}: a crash leaves it, a broker cuts it"
        )
    last = log.segments[-1] if log.segments else None
    if last and last.data_end == last.start and settings.rules.drops_empty_files:
        findings.notes.append(f"commitlog/{last.name} has no bytes: a broker of 5.x removes it")
    elif last and last.data_end < last.segment_end:
        text = f"{last.data_end - last.start:,} of {last.segment_end - last.start:,} bytes"
        findings.tally.add("log-segment-short", 1, f"commitlog/{last.name}", last.data_end, text)
    return findings


# ----------------------------------------------------------------------------------------------------------------------- memory
# What earlier verifies of a store found in its log: ``verify --incremental`` reads only what they have not read.
#
# A verify keeps its own ranges, apart from those of builds. So each byte of the log is read by a verify at least once, and a
# fault in what a build found is not taken for the truth. The rows are those of a full verify: whatever is compared with them
# gives the same differences.
#
#     TABLES/_scans/NAME-verify/entries, data     as a build has them (``udfs.incremental.scan_store``)
#     TABLES/_scans/NAME-verify/builds/SETTINGS   which of them the last verify with these settings used
#     TABLES/_scans/NAME-verify/builds/run-...    a verify that is under way

_RUN: Final = "run-"
_ROWS: Final = "with runs"
"""What rows a scan leaves: those of earlier scans, which left others, are not known."""
_DAY: Final = 24 * 3600 * 10**9
"""After so many nanoseconds a run that has not ended is taken for dead."""
_WEEK: Final = 7 * _DAY
"""For so long are the ranges of other settings kept since they were last used."""


class VerifyMemory(ScanMemory):
    """The ranges of one run, and the store that they are in."""

    def __init__(
        self, store: ScanStore, scan: scan_settings.ScanSettings, recheck: bool, leftovers: Leftovers, *, compares: bool = True
    ) -> None:
        """``leftovers`` removes what no run needs any longer; ``compares`` as in ``VerifyScan``."""
        rows = f"{_ROWS}, {'and' if compares else 'without'} units"
        fingerprint = fingerprint_of(f"{__version__} {rows}", scan, queue_tasks.ANY_FILE, topics=False)
        super().__init__(store, fingerprint, recheck)
        self._uses = files.join(store.builds, fingerprint)
        self._run = files.join(store.builds, f"{_RUN}{uuid.uuid4().hex}")
        self._leftovers = leftovers

    def __enter__(self) -> VerifyMemory:
        """Say that a run is under way, so that others remove nothing.

        Raises OSError where nothing can be read or written, and InputError where the store leads elsewhere.
        """
        self.store.make()
        # As many tasks as there is to read.
        self.bytes_before = 0 if self._recheck else _use(self._uses)[1]
        files.write_bytes(self.store.temporary, self._run, [b"under way\n"])
        return self

    def __exit__(self, *_: object) -> None:
        self._leftovers.remove(self._run)

    def wrap(self, task: ScanTask) -> RememberedVerify:
        return RememberedVerify(task, self.store, self._fingerprint, self._recheck)

    def counts(self) -> dict[str, int]:
        """Return what was read of the log, in bytes, and how many ranges were known, as the summary has it."""
        return {"bytes_read": self.bytes_read, "ranges": len(self.entries), "ranges_known": self.known}

    def save(self) -> None:
        """Note what this run used, and remove what no run uses any longer, unless another one is under way."""
        used = [f"entries/{entry.key}" for entry in self.entries.values()]
        used += [f"data/{kept.name}" for entry in self.entries.values() for kept in entry.data.values()]
        size = sum(entry.reach - entry.low for entry in self.entries.values())
        files.write_bytes(self.store.temporary, self._uses, sealed(json.dumps([used, size]).encode()))
        self._leftovers.remove(self._run)
        # What a run that begins from here on writes is not among these.
        folders = (self.store.entries, self.store.data, self.store.temporary)
        there = [(folder, name) for folder in folders for name in files.names(folder)]
        now, needed = time.time_ns(), set(used)
        for entry in files.listing(self.store.builds):
            age = now - entry.modified
            if entry.name == files.base(self._run):
                # It could not be removed.
                continue
            if entry.name.startswith(_RUN) and age < _DAY:
                return
            if age < _WEEK:
                try:
                    needed |= _use(entry.path)[0]
                except OSError:
                    # What that run used is not known now: a later one removes what nobody uses.
                    return
            else:
                self._leftovers.remove(entry.path)
        unused = [files.join(folder, name) for folder, name in there if f"{files.base(folder)}/{name}" not in needed]
        self._leftovers.remove_all(unused)


def scans_of(settings: VerifySettings) -> ScanStore | None:
    """Return the scan store of the verifies of STORE; None without --incremental.

    Raises InputError where it would lie in an input.
    """
    if not settings.incremental:
        return None
    store = settings.store if files.is_remote(settings.store) else os.path.realpath(settings.store)
    return store_of(settings, store, "-verify")


def _use(path: str) -> tuple[set[str], int]:
    """Return which files of the store a run used, by the note that it left, and the bytes of its log; nothing without one.

    Raises OSError where the note cannot be read now.
    """
    try:
        used, size = json.loads(read_sealed(path))
        return {str(name) for name in used}, int(size)
    except (FileNotFoundError, InputError, ValueError, TypeError):
        return set(), 0


# ------------------------------------------------------------------------------------------------------------------------ order
# The order of the log's queues: a verify takes the very decisions of a build, and tells what a build would refuse.


@dataclass(frozen=True)
class LogOrder:
    """Where ``--queue-order logical`` puts the units of queues out of order: plans (``PlanWriter``), or ""."""

    placements: str = ""
    batches: str = ""
    """the same of batch queues"""
    max_fill: int = 0
    """--max-fill that a build needs; 0 where its own is enough"""
    wrong: tuple[int, ...] = ()
    """offsets of records whose queue offsets are sure to be wrong: a repair mends them, and no others out of line"""


def check_order(
    scan: Scan, settings: VerifySettings, segments: list[Segment], chain: Chain
) -> tuple[LogOrder, PartFindings]:  # fmt: skip
    """Return where a build (``--queue-order logical``) puts the units of the whole log, and the findings of what it refuses.

    A queue that would take more fills than a build makes by itself is in no plan.
    """
    fills_max, findings = chain.fills(settings.max_fill), PartFindings()
    tally = findings.tally
    try:
        odd = Decisions(scan, settings.mending_build(), segments, chain).odd_queues()
        outcome = odd.outcome(segments, "log", fills_max)
    except errors.RefusedError as error:
        tally.add("log-out-of-line", 1, "commitlog", 0, str(error))
        return LogOrder(), findings
    for hole in outcome.lost.first:
        text = f"offset {hole.offset}, {counted(hole.length, 'byte')}: {hole.reason}"
        tally.add("log-out-of-line", 1, f"commitlog/{hole.segment}", hole.offset, text)
    findings.damage += outcome.lost.first
    if not_listed := outcome.lost_records - len(outcome.lost.first):
        end = outcome.lost.more_end
        tally.add("log-out-of-line", not_listed, "commitlog", end, f"more, up to offset {end}")
    wrong = odd.wrong_places() if outcome.lost.first else ()
    # What a build warns of: nothing tells whether these records are in line.
    if pending := [text for text, (_, entry) in outcome.warnings.about.items() if entry.get("kind") == "pending"]:
        others = f"; {counted(len(pending) - 1, 'more queue')} likewise" if len(pending) > 1 else ""
        findings.notes.append(f"{pending[0]}{others}")
    kinds = ("pending", "more pending")
    findings.figures["pending"] = sum(decision["count"] for decision in outcome.warnings.decisions if decision["kind"] in kinds)
    if outcome.filled <= fills_max:
        return LogOrder(outcome.placements, outcome.batches, wrong=wrong), findings
    needed = outcome.filled - (fills_max - settings.max_fill)
    text = f"{outcome.filled:,} missing queue offsets: a build fills at most {fills_max} with --max-fill {settings.max_fill}"
    tally.add("log-queue-gaps", outcome.filled, "commitlog", 0, text)
    return LogOrder(outcome.placements, outcome.batches, needed, wrong), findings
