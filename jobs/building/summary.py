"""What a build or a repair did: filled while it goes on, and what the Python API returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rocketmq_reindex.jobs.command.option import PARTS
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.publishing.layout import Leftovers, files_in
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import ExitStatus
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.times import now
from rocketmq_reindex.version import __version__

WARNING_LINES_MAX = 1000
DAMAGE_MAX = DECISIONS_MAX = 10_000
"""Entries of their own; one more, or one for each kind of decision, stands for all the others."""
RATE_RECORDS_MIN = 100_000
"""Below that a rate says more of Spark's start than of the build."""


def is_lost(damage: Mapping[str, Any]) -> bool:
    """Return whether an entry of ``damage``, in a summary or a manifest, means lost records: a torn or stale tail does not."""
    return not str(damage["reason"]).startswith(("torn tail", "stale tail"))


@dataclass
class Warnings:
    """What a step of a build warns of, with the damage and the decisions that some of its warnings are about."""

    warnings: list[str] = field(default_factory=list)
    damage: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    about: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """by warning: whether it is about damage or a decision, and the entry"""

    def warn(self, text: str) -> None:
        """Add one warning."""
        self.warnings.append(text)

    def add_damage(self, segment: str, offset: int, length: int, reason: str, *, lost: bool = True) -> None:
        """Add one damaged place and its warning. ``lost`` is False for a torn or stale tail, as crashes leave them."""
        entry = {"segment": segment, "offset": offset, "length": length, "reason": reason}
        self.damage.append(entry)
        what = "damage" if lost else "cut"
        self._warn_about(f"{what}: segment {segment}, offset {offset}, {counted(length, 'byte')}: {reason}", "damage", entry)

    def add_damages(self, holes: Sequence[Hole], others: int = 0, others_bytes: int = 0, others_end: int = 0) -> None:
        """Add lost places, in order: the first ones each, the rest as one, together with ``others`` that are not listed."""
        for hole in holes[:DAMAGE_MAX]:
            self.add_damage(hole.segment, hole.offset, hole.length, hole.reason)
        if not_listed := holes[DAMAGE_MAX:]:
            size = others_bytes + sum(hole.length for hole in not_listed)
            end = max(others_end, *(hole.offset + hole.length for hole in not_listed))
            reason = f"{counted(len(not_listed) + others, 'more damaged place')}, up to offset {end}"
            self.add_damage(not_listed[0].segment, not_listed[0].offset, size, reason)

    def add_decisions(self, decisions: Iterable[tuple[str, str, int, int, int]]) -> None:
        """Add decisions about queues' order (kind, topic, queue id, queue offset, units), each with its warning."""
        others: dict[str, list[int]] = {}
        for number, (kind, topic, queue, offset, count) in enumerate(decisions):
            if number < DECISIONS_MAX:
                self.add_decision(kind, topic, queue, offset, count)
            else:
                sums = others.setdefault(kind.removeprefix("more "), [0, 0])
                sums[0], sums[1] = sums[0] + 1, sums[1] + count
        for kind in sorted(others):
            self.decisions.append({"kind": f"more {kind}", "topic": "", "queue": -1, "offset": -1, "count": others[kind][1]})
            text = _DECISIONS.get(kind, kind)
            self.warnings.append(f"more queues: {text}: {counted(others[kind][0], 'more decision')}, units {others[kind][1]}")

    def add_decision(self, kind: str, topic: str, queue: int, offset: int, count: int) -> None:
        """Add one decision about a queue's order, and its warning."""
        entry = {"kind": kind, "topic": escape(topic), "queue": queue, "offset": offset, "count": count}
        self.decisions.append(entry)
        bare = kind.removeprefix("more ")
        text = _DECISIONS.get(bare, bare) + (", more of them" if bare != kind else "")
        self._warn_about(f"queue {escape(topic)}/{queue}: {text}: offset {offset}, units {count}", "decision", entry)

    def _warn_about(self, text: str, event: str, entry: dict[str, Any]) -> None:
        self.warn(text)
        if len(self.about) < WARNING_LINES_MAX:
            self.about[text] = (event, entry)

    def add_to(self, target: Warnings | BuildResult) -> None:
        """Let another step, or the run itself, take all of it over."""
        target.warnings += self.warnings
        target.damage += self.damage
        target.decisions += self.decisions
        target.about |= self.about


@dataclass(repr=False)
class BuildResult(Result):
    """What a build did. With ``dry_run`` the plan is the result's ``text``.

    ``exit_status`` is 0, or 3 where damaged parts of the log are missing from the result. ``bytes`` and ``records`` were read;
    ``units`` of ConsumeQueues and ``items`` of IndexFiles were written, ``tag_items`` of them of TAGS.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("incremental", "delay", "plan")

    version: str = __version__
    """of rocketmq-reindex"""
    started: str = field(default_factory=now, compare=False)
    """when the run began: ISO, UTC"""
    exit: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"session": 0.0, "build": 0.0, "total": 0.0})
    """``session`` until Spark was up, ``build`` until the result was published, and ``total``"""
    bytes: int = 0
    records: int = 0
    units: int = 0
    items: int = 0
    tag_items: int = 0
    files: dict[str, int] = field(default_factory=lambda: {"consumequeue": 0, "index": 0})
    """number of files by kind: ``consumequeue``, ``index``, and of a RocksDB database its tables, ``rocksdb``"""
    damage: list[dict[str, Any]] = field(default_factory=list)
    """damaged places of the log: ``segment``, ``offset`` and ``length`` in bytes, ``reason``"""
    decisions: list[dict[str, Any]] = field(default_factory=list)
    """what was done to the order of queues: ``kind``, ``topic``, ``queue``, ``offset``, ``count``"""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """what was taken from the files of the store, where nobody named it, and what these say of the log"""
    not_removed: list[dict[str, Any]] = field(default_factory=list)
    """what should have been removed behind a URI and stays, by folder: ``folder``, ``names``, ``count``, ``files``, ``bytes``,
    ``reason``"""
    error: str | None = None
    incremental: dict[str, Any] | None = None
    """of an incremental build: what was read and what was kept"""
    delay: dict[str, Any] | None = None
    """with ``write_delay``: what was delivered of each level, what is pending, and the undecided messages"""
    plan: list[str] | None = None
    """with ``dry_run``: what would be read and written, as lines"""

    # Of these the manifest, which is the same whenever it is written, has no start, no notes, and nothing that was not removed.

    def __post_init__(self) -> None:
        self.about: dict[str, tuple[str, dict[str, Any]]] = {}
        """by warning: whether it is about damage or a decision, and the entry; not in the JSON object"""
        self.parts: tuple[str, ...] = PARTS
        """what was made; not in the JSON object"""
        self.leftovers = Leftovers()

    @property
    def lost(self) -> bool:
        """Whether records are missing from the result: damage, or pending ones. A torn or stale tail is no damage."""
        pending = any(entry["kind"] in ("pending", "more pending") for entry in self.decisions)
        return pending or any(map(is_lost, self.damage))

    @property
    def exit_by_loss(self) -> int:
        """The exit status of a run that did what it was asked to."""
        return int(ExitStatus.LOST if self.lost else ExitStatus.DONE)

    def warn(self, text: str) -> None:
        """Add one warning."""
        self.warnings.append(text)

    def repeat(self, fields: Mapping[str, Any]) -> None:
        """Take over fields of an earlier result, whose warnings come first: what lies beside the log may have changed."""
        warnings = [text for text in self.warnings if text not in fields["warnings"]]
        for name, value in fields.items():
            setattr(self, name, value)
        self.warnings = fields["warnings"] + warnings

    def tell_leftovers(self) -> None:
        """Add what could not be removed, with a warning for each folder. Call it once, when nothing more will be removed."""
        self.not_removed = self.leftovers.entries()
        self.warnings += self.leftovers.warnings()

    def events(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield (event, text, entry) of the first warnings, and how many more there are."""
        for text in self.warnings[:WARNING_LINES_MAX]:
            event, entry = self.about.get(text, ("warning", {}))
            yield event, text, entry
        if len(self.warnings) > WARNING_LINES_MAX:
            yield "warning", f"{len(self.warnings) - WARNING_LINES_MAX} more, see the summary", {}

    def counts(self) -> dict[str, int]:
        """Return how many entries the lists have."""
        return {
            "damaged_places": len(self.damage),
            "decisions": len(self.decisions),
            "warnings": len(self.warnings),
            "files_not_removed": files_in(self.not_removed),
        }

    def parts_of_manifest(self) -> dict[str, Any]:
        """Return what the manifest has of such a run alone, by key."""
        return {} if self.delay is None else {"delay": self.delay}

    def log_lines(self) -> list[str]:
        """Return what was changed in the log, as lines: a build changes nothing."""
        return []

    def delay_line(self) -> str:
        """Return what is pending of delayed and timer messages, in one line."""
        delay = self.delay or {}
        levels, timers = sum(level["pending"] for level in delay["levels"]), delay["timers"]["pending"]
        if not levels and not timers and not delay["undecided_count"]:
            return "delayed  no message waits to be delivered"
        return (
            f"delayed  {counted(levels, 'message')} of delay levels and {counted(timers, 'timer message')} wait to be delivered"
            f": their REAL_TOPIC has no copy of them; {counted(delay['undecided_count'], 'message')} undecided"
        )

    def to_text(self) -> str:
        """Return what people read at the end of a run that published, or the plan of a dry run."""
        if self.plan is not None:
            return "\n".join(self.plan)
        run = self.incremental
        if run is not None and run["nothing_new"]:
            return f"nothing new since the build before: {counted(self.records, 'record')} in {counted(self.bytes, 'byte')}"
        took = f"took     {self.seconds['total']:.1f} s, start {self.seconds['session']:.1f} s"
        if self.records >= RATE_RECORDS_MIN:
            took += f", then {self.records / self.seconds['build']:,.0f} records/s"
        wrote = {
            layouts.QUEUES: f"{counted(self.units, 'unit')} in {self._places()}",
            layouts.INDEX: f"{counted(self.items, 'item')} in {counted(self.files['index'], 'IndexFile')}",
        }
        lines = [
            f"read     {counted(self.bytes, 'byte')}, {counted(self.records, 'record')}",
            f"wrote    {', '.join(text for part, text in wrote.items() if part in self.parts) or 'the checkpoint'}",
            took,
        ]
        if run is not None:
            known = f"{run['ranges_known']:,} of {counted(run['ranges'], 'range')}"
            kept, read = counted(run["files_kept"], "file"), counted(run["bytes_read"], "byte")
            lines.append(f"known    {known}, {kept} kept, {read} of the log read")
        lines += self.log_lines()
        if self.delay is not None:
            lines.append(self.delay_line())
        if self.damage:
            lines.append(f"damage   {len(self.damage):,} in all, see the warnings")
        return "\n".join(lines + self.note_lines())

    def _places(self) -> str:
        """Return where units were written, as words."""
        queue_files = self.files["consumequeue"]
        in_files = [counted(queue_files, "ConsumeQueue file")] if queue_files or "rocksdb" not in self.files else []
        return " and in ".join([*in_files, *(["RocksDB"] if "rocksdb" in self.files else [])])

    def note_lines(self) -> list[str]:
        """Return a line for each note."""
        return [f"note     {note}" for note in self.notes]

    def _facts(self) -> dict[str, str]:
        return {
            "read": f"{counted(self.bytes, 'byte')}, {counted(self.records, 'record')}",
            "wrote": f"{counted(self.units, 'unit')}, {counted(self.items, 'item')}",
            "damage": str(len(self.damage)),
            "warnings": str(len(self.warnings)),
        }


@dataclass(repr=False)
class RepairResult(BuildResult):
    """What a repair did. ``exit_status`` is 0 where nothing is lost, and 3 where fillers stand for lost bytes.

    The other fields are those of a build, of the new log; ``damage`` is what is lost.
    """

    OPTIONAL: ClassVar[tuple[str, ...]] = ("incremental", "repair", "delay", "plan")

    repair: dict[str, Any] | None = None
    """what was changed in the log: ``ranges``, each with ``segment``, ``offset``, ``length``, ``reason``, ``how`` and digests;
    bytes ``from_replica``, ``filled`` and ``kept``; the number of ``segments``; and ``zeros``, where these alone were written,
    at the end of a last segment that was too short"""

    def parts_of_manifest(self) -> dict[str, Any]:
        parts = {} if self.repair is None else {"repair": self.repair}
        return parts | super().parts_of_manifest()

    def log_lines(self) -> list[str]:
        repair = self.repair
        if repair is None:
            return []
        if "to_plain" in repair:
            return [f"laid anew {counted(repair['to_plain']['records'], 'record')} in {counted(repair['segments'], 'segment')}"]
        if not repair["ranges"]:
            undamaged = "" if self.lost else "the log is undamaged, and "
            if zeros := repair.get("zeros"):
                return [f"repaired the length of a file: {undamaged}{counted(zeros, 'byte')} of zeros fill its last segment"]
            return [f"repaired nothing: {undamaged}commitlog/ is as it was"]
        restored, filled = counted(repair["from_replica"], "byte"), counted(repair["filled"], "byte")
        ranges = counted(len(repair["ranges"]), "damaged range")
        return [f"repaired {ranges}: {restored} from a replica, fillers in the place of {filled}"]

    def _facts(self) -> dict[str, str]:
        changed = self.repair or {"ranges": []}
        return {**super()._facts(), "repaired": counted(len(changed["ranges"]), "range")}


# Warnings are part of the manifest: with other words here, a build of the same log has other bytes.
_DECISIONS = {
    "generation": "begun again below its end, older units from there on dropped",
    "fill": "offsets missing, filled with the next unit",
    "out-of-line": "record out of line, its unit left out",
    "pending": "its last records do not go on at its end, too few to tell (three do): no unit, and no consumer gets them",
    "restart": "offset 0 again, appended as the broker does",
    "dropped": "below the queue's end, dropped as the broker does",
    "misplaced": "above the queue's end, appended in the wrong place as the broker does",
    "appended": "out of order in a batch queue, appended as the broker does",
    "repeat": "offsets repeat",
    "gap": "offsets have a gap",
}
