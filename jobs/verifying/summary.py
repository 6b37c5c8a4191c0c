"""The summary of a verify: as one JSON object, also what ``report`` is drawn from, or as text."""

import contextlib
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.building.advice import REPAIR_FIRST, REPAIRS
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.publishing.layout import Leftovers, files_in
from rocketmq_reindex.jobs.verifying.mend import MISSING_SEGMENT, NO_BUILD, Mend
from rocketmq_reindex.storage_format.checks.differences import INDEX, KINDS, PARTS, QUEUES, Example, Tally, no_differences
from rocketmq_reindex.storage_format.errors import ExitStatus
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.showing import counted
from rocketmq_reindex.udfs.times import now, show_time
from rocketmq_reindex.version import __version__

QUEUES_LISTED: Final = 1000
FILES_LISTED: Final = 1000
LOST_LISTED: Final = 1000
DAMAGE_LISTED: Final = 10_000
"""Entries of each list; sums are of all."""
LINES_OF_KIND: Final = 3
QUEUE_LINES: Final = 20
QUEUE_WIDTH: Final = 40


@dataclass
class PartFindings:
    """What one part of a verify found."""

    tally: Tally = field(default_factory=Tally)
    notes: list[str] = field(default_factory=list)
    damage: list[Hole] = field(default_factory=list)
    """damaged places of the log, and records out of line"""
    figures: dict[str, Any] = field(default_factory=dict)
    """fields of the result, by name; of its dicts only some keys"""


@dataclass(repr=False)
class VerifyResult(Result):
    """What a verify found. ``exit_status`` is 0 where the store is what its commitlog says, and 4 where it differs.

    ``units``, ``items`` (of keys) and ``tag_items`` are those that the log gives, ``units_there``, ``items_there`` and
    ``tag_items_there`` those that the store has. Each of ``findings`` is one kind of difference: ``kind``, ``part``, ``text``,
    ``count``, ``mend`` and the first ``examples``.
    """

    version: str = __version__
    command: str = "verify"
    started: str = field(default_factory=now, compare=False)
    """when the run began: ISO, UTC"""
    exit: int = 0
    store: str = ""
    against: str | None = None
    """the other store, where two were compared"""
    sample: float = 1.0
    """share of the segments that were read"""
    seconds: dict[str, float] = field(default_factory=dict)
    """by a clock on the wall: from the command's start until Spark is up, from then on, all of it, and stages in turn"""
    beside: dict[str, float] = field(default_factory=dict, compare=False)
    """seconds of what ran beside others within a stage"""
    segments: int = 0
    segments_read: int = 0
    bytes: int = 0
    records: int = 0
    units: int = 0
    """that the log gives"""
    units_there: int = 0
    """slots of them that hold a unit, right or wrong"""
    items: int = 0
    """of keys, that the log gives"""
    items_there: int = 0
    tag_items: int = 0
    """of TAGS, that the log gives a broker of 5.4 or later"""
    tag_items_there: int = 0
    queues: int = 0
    queues_differing: int = 0
    files: dict[str, int] = field(default_factory=lambda: {"consumequeue": 0, "index": 0})
    """number of files by kind: ``consumequeue``, ``index``"""
    sizes: dict[str, int] = field(default_factory=dict)
    """bytes of the log and of the files derived from it"""
    settings: dict[str, Any] = field(default_factory=dict)
    orders: dict[str, int] = field(default_factory=dict)
    """number of queues by the order that fits"""
    findings: list[dict[str, Any]] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)
    """damaged places of the log"""
    lost_keys: list[dict[str, Any]] = field(default_factory=list)
    """stretches of the log whose keys are not in the index"""
    lost_tags: list[dict[str, Any]] = field(default_factory=list)
    """stretches of the log whose TAGS are not in the index, where others are"""
    broker_version: str = ""
    """the version by which the store was checked"""
    fits: list[str] = field(default_factory=list)
    """the versions that may have written the store, newest first; none where a version was named"""
    signs: list[str] = field(default_factory=list)
    """what in the store says so"""
    queue_list: list[dict[str, Any]] = field(default_factory=list)
    index_list: list[dict[str, Any]] = field(default_factory=list)
    checkpoint: dict[str, int] | None = None
    mend: str | None = None
    """the command that mends all differences but those of ``not_mended``: a repair where the log is damaged, else a build"""
    other_ways: list[dict[str, str]] = field(default_factory=list)
    """where that is a repair: builds that may take its place, each with ``loses`` and ``command``"""
    not_mended: list[str] = field(default_factory=list)
    """why no build is advised for some of the differences"""
    not_checked: list[str] = field(default_factory=list)
    """fields of records that may be wrong all the same, since no checksum covers them"""
    pending: int = 0
    """records at the end of a queue that have no unit, since nobody can tell whether they are in line: no consumer gets them"""
    idle_queues: int = 0
    """number of queues that hold units of expired records alone"""
    database_queues: int = 0
    """number of queues in RocksDB that were compared"""
    incremental: dict[str, int] | None = None
    """of an incremental verify: ``bytes_read`` of the log, its ``ranges``, and ``ranges_known`` from earlier verifies"""
    notes: list[str] = field(default_factory=list)
    not_removed: list[dict[str, Any]] = field(default_factory=list)
    """what should have been removed and stays, as of a build: of ``work``, and of what an incremental verify knows"""
    error: str | None = None

    def __post_init__(self) -> None:
        self.leftovers = Leftovers()

    def add(self, findings: PartFindings) -> None:
        """Take over what a part found, but for its tally: of all damage the first DAMAGE_LISTED."""
        self.notes += findings.notes
        for hole in findings.damage[: DAMAGE_LISTED - len(self.damage)]:
            entry = {"segment": hole.segment, "offset": hole.offset, "length": hole.length, "reason": hole.reason}
            self.damage.append(entry)
        for name, figure in findings.figures.items():
            setattr(self, name, getattr(self, name) | figure if name in ("files", "sizes") else figure)

    def warn(self, text: str) -> None:
        """Add one note."""
        self.notes.append(text)

    @contextlib.contextmanager
    def telling_leftovers(self) -> Iterator[None]:
        """Add what could not be removed in this block, with a note for each folder."""
        try:
            yield
        finally:
            self.not_removed = self.leftovers.entries()
            self.notes += self.leftovers.warnings()

    def events(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield (event, text, entry) for each kind of difference and for each note."""
        for finding in self.findings:
            first = finding["examples"][0]["where"] if finding["examples"] else None
            entry = {"kind": finding["kind"], "part": finding["part"], "count": finding["count"], "first": first}
            yield "difference", f"{finding['kind']}: {finding['count']}: {finding['text']}", entry
        for note in self.notes:
            yield "note", note, {}

    def counts(self) -> dict[str, int]:
        """Return how many differences and damaged places there are, and how many files could not be removed."""
        return {
            "differences": sum(finding["count"] for finding in self.findings),
            "damaged_places": len(self.damage),
            "files_not_removed": files_in(self.not_removed),
        }

    def take(self, tally: Tally, mend: Mend) -> None:
        """Take over the findings of a tally, by part and kind, and what mends them."""
        for kind, (part, text, _, _) in KINDS.items():
            if kind not in tally.counts:
                continue
            examples = [dataclasses.asdict(example) for example in tally.examples[kind]]
            finding = {"kind": kind, "part": part, "text": text, "count": tally.counts[kind]}
            self.findings.append(finding | {"mend": mend.of_kind(kind), "examples": examples})
        self.mend, self.not_mended = mend.of_all(tally.counts)
        self.other_ways = [dataclasses.asdict(way) for way in mend.other_ways()]
        self.exit = ExitStatus.FOUND if tally.counts else ExitStatus.DONE

    def to_text(self) -> str:
        """Return the summary as text for people."""
        lines = [*self._head(), *self._queues()]
        for finding in self.findings:
            lines += ["", f"{finding['kind']:<22}{finding['count']:>12,}   {finding['text']}"]
            shown = finding["examples"][:LINES_OF_KIND]
            lines += [f"    {e['where']}: {e['text']}" if e["text"] else f"    {e['where']}" for e in shown]
            if len(finding["examples"]) > len(shown):
                lines.append("    ...")
            if not finding["mend"].startswith(("rmq-reindex", NO_BUILD)):
                lines.append(f"    {finding['mend']}")
        lines += [f"note     {note}" for note in self.notes]
        if not self.findings:
            return "\n".join([*lines, f"clean    {no_differences(self.pending)}", *self._not_checked()])
        kinds = counted(len(self.findings), "kind of difference", "kinds of differences")
        lines += ["", f"differs  {kinds}"]
        if self.mend and any(finding["kind"] == MISSING_SEGMENT for finding in self.findings):
            lines.append("mend     look first for the missing segment: its disk may not be mounted; if it is lost:")
        if self.mend:
            lines += [f"mend     {REPAIR_FIRST}"] if self.mend.startswith(REPAIRS) else []
            lines.append(f"mend     {self.mend}")
        for way in self.other_ways:
            lines += [f"or       {way['command']}", f"         {way['loses']}"]
        lines += [f"mend     {NO_BUILD}: {reason}" for reason in self.not_mended]
        return "\n".join(lines)

    def _not_checked(self) -> list[str]:
        """Return what "clean" says nothing about."""
        if not self.not_checked:
            return []
        where = "in records without __CRC32#" if self.settings.get("crc") == "all" else "as no checksum covers them"
        return [f"         not checked, {where}: {', '.join(self.not_checked)}"]

    def _queues(self) -> list[str]:
        """Return a line for each of the first queues that differ."""
        bad = [entry for entry in self.queue_list if entry["differences"]]
        if not bad:
            return []
        names = [f"{entry['topic']}/{entry['queue']}" for entry in bad[:QUEUE_LINES]]
        width = min(QUEUE_WIDTH, max(map(len, names)))
        lines = ["", f"{self.queues_differing:,} of {counted(self.queues, 'queue')} {'differs' if len(bad) == 1 else 'differ'}"]
        for name, entry in zip(names, bad, strict=False):
            units = counted(entry["units"], "unit")
            there = f"{entry['there']:,} of {units} there" if entry["units"] else "the log has no unit of it"
            lines.append(f"    {name:<{width}}   {there:<28}{_of_queue(entry)}")
        hidden = self.queues_differing - len(names)
        return [*lines, f"    and {hidden:,} more"] if hidden else lines

    def _head(self) -> list[str]:
        part = f" in {self.segments_read} of {counted(self.segments, 'segment')}" if self.sample < 1 else ""
        took, up = f"took     {self.seconds.get('total', 0.0):.1f} s", f"{self.seconds.get('session', 0.0):.1f} s"
        units, items = counted(self.units, "unit"), counted(self.items, "item")
        queues, index = (
            counted(self.files[part], kind) for part, kind in (("consumequeue", "ConsumeQueue file"), ("index", "IndexFile"))
        )
        if self.database_queues:
            queues = f"{counted(self.database_queues, 'queue')} in RocksDB"
        if self.against:
            return [
                f"compared {counted(self.bytes, 'byte')} of both logs, {units} in {queues}, {index}",
                f"{took}, start {up}",
            ]
        units += f" ({self.units_there:,} there)" if self.units_there != self.units else ""
        items += f" ({self.items_there:,} there)" if self.items_there != self.items else ""
        if self.tag_items:
            there = f" ({self.tag_items_there:,} there)" if self.tag_items_there != self.tag_items else ""
            items += f" of keys and {self.tag_items:,} of TAGS{there}"
        only = self.settings.get("only", PARTS)
        compared = [text for of, text in ((QUEUES, f"{units} in {queues}"), (INDEX, f"{items} in {index}")) if of in only]
        return [
            *self._read(part),
            *([f"compared {', '.join(compared)}"] if compared else []),
            *self._version(),
            f"{took}, start {up}",
        ]

    def _read(self, part: str) -> list[str]:
        """Return what was read of the log, and what was not because an earlier verify had read it."""
        records = counted(self.records, "record")
        if self.incremental is None:
            return [f"read     {counted(self.bytes, 'byte')}, {records}{part}"]
        known, count = self.incremental["ranges_known"], counted(self.incremental["ranges"], "range")
        if not known:
            text = f"none of {count}: no verify with these settings and this version has scanned them"
        else:
            text = f"{known:,} of {count}, as an earlier verify scanned them: --recheck compares all of their bytes"
        read = self.incremental["bytes_read"]
        again = " (some pages twice)" if read > self.bytes else ""
        return [f"read     {read:,} of {counted(self.bytes, 'byte')}{again}, {records}", f"known    {text}"]

    def _version(self) -> list[str]:
        """Return a line on the versions that fit the store, if they were looked for."""
        if not self.fits:
            return []
        by = ", ".join(self.signs) or "nothing in the store tells"
        return [f"version  its bytes fit {' or '.join(self.fits)} ({by})"]

    def _facts(self) -> dict[str, str]:
        return {
            "compared": f"{counted(self.units, 'unit')}, {counted(self.items, 'item')}",
            "differences": ", ".join(f"{each['kind']} {each['count']}" for each in self.findings) or "none",
        }


def _of_queue(entry: dict[str, Any]) -> str:
    """Return what a queue lacks: its folder, or units by kind of difference."""
    if entry["units"] and not entry["files"]:
        return f"queue has no {'file' if entry['folder'] else 'folder'}"
    return ", ".join(f"{kind} {count:,}" for kind, count in sorted(entry["kinds"].items()))


def show_store_time(milliseconds: int) -> str:
    """Return a store time in ISO form; a number that no calendar has is shown with its unit."""
    shown = show_time(milliseconds)
    return f"{shown} ms" if shown == str(milliseconds) else shown


def lost_example(stretch: dict[str, int], what: str = "key") -> Example:
    """Return a stretch of the log whose keys, or other items, are not in the index as an example of a difference."""
    text = (
        f"{counted(stretch['keys'], what)} of {counted(stretch['records'], 'record')}, "
        f"stored {show_store_time(stretch['time_min'])} to {show_store_time(stretch['time_max'])}, "
        f"offsets {stretch['first']} to {stretch['last']}"
    )
    return Example("index", stretch["first"], text)
