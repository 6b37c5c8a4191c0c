"""What the functions of the Python API return: frozen dataclasses, with the keys that ``--json`` prints."""

import copy
import dataclasses
import html
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rocketmq_reindex.storage_format.names import counted

R = TypeVar("R", bound="Result")


@dataclass(frozen=True, repr=False)
class Result:
    """What all results share. ``str()`` of a result is the text that the command prints."""

    exit_status: int
    """what the command's exit status would be"""
    text: str = field(compare=False)
    """what the command prints for people"""

    def to_dict(self) -> dict[str, Any]:
        """The object that the command prints with ``--json``, as plain dicts, lists, numbers and texts."""
        names = [each.name for each in dataclasses.fields(self) if each.name not in ("text", "exit_status")]
        found = {"exit": self.exit_status} | {name: copy.deepcopy(getattr(self, name)) for name in names}
        return {name: found[name] for name in self._order(names)}

    def _order(self, names: list[str]) -> list[str]:
        # A run that may end in an error has written this one last, behind how it ended.
        return [*names[:-1], "exit", "error"] if names[-1] == "error" else ["exit", *names]

    def _facts(self) -> dict[str, str]:
        """What a short form shows, by label."""
        return {}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}: {value}" for name, value in self._facts().items())
        return f"<{type(self).__name__} exit_status={self.exit_status}{', ' if facts else ''}{facts}>"

    def _repr_html_(self) -> str:
        """A short table, for notebooks."""
        facts = {"exit status": str(self.exit_status), **self._facts()}
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in facts.items())
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"


def made(kind: type[R], summary: Any, lines: list[str]) -> R:
    """A result from the summary of a run, whose fields have the same names."""
    names = {each.name for each in dataclasses.fields(kind)} - {"exit_status", "text"}
    found = {name: copy.deepcopy(getattr(summary, name)) for name in names}
    return kind(exit_status=summary.exit, text="\n".join(lines), **found)


@dataclass(frozen=True, repr=False)
class BuildResult(Result):
    """What a build did. With ``dry_run`` the plan is the result's ``text``.

    ``exit_status`` is 0, or 3 where damaged parts of the log are missing from the result. ``bytes`` and ``records`` were read;
    ``units`` of ConsumeQueues and ``items`` of IndexFiles were written, ``tag_items`` of them of TAGS.
    """

    version: str
    """of rocketmq-reindex"""
    started: str
    """when the run began: ISO, UTC"""
    seconds: dict[str, float]
    """``session`` until Spark was up, ``build`` until the result was published, and ``total``"""
    bytes: int
    records: int
    units: int
    items: int
    tag_items: int
    files: dict[str, int]
    """number of files by kind: ``consumequeue``, ``index``"""
    damage: list[dict[str, Any]]
    """damaged places of the log: ``segment``, ``offset`` and ``length`` in bytes, ``reason``"""
    decisions: list[dict[str, Any]]
    """what was done to the order of queues: ``kind``, ``topic``, ``queue``, ``offset``, ``count``"""
    warnings: list[str]
    notes: list[str]
    """what was taken from the files of the store, where nobody named it: sizes, and the version"""
    not_removed: list[dict[str, Any]]
    """what should have been removed behind a URI and stays, by folder: ``folder``, ``names``, ``count``, ``files``, ``bytes``,
    ``reason``"""
    error: str | None
    incremental: dict[str, Any] | None
    """of an incremental build: what was read and what was kept"""
    delay: dict[str, Any] | None
    """with ``write_delay``: what was delivered of each level, what is pending, and the undecided messages"""
    plan: list[str] | None
    """with ``dry_run``: what would be read and written, as lines"""

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        for name in ("incremental", "delay", "plan"):
            if found[name] is None:
                del found[name]
        return found

    def _order(self, names: list[str]) -> list[str]:
        return ["version", "started", "exit", *names[2:]]

    def _facts(self) -> dict[str, str]:
        return {
            "read": f"{counted(self.bytes, 'byte')}, {counted(self.records, 'record')}",
            "wrote": f"{counted(self.units, 'unit')}, {counted(self.items, 'item')}",
            "damage": str(len(self.damage)),
            "warnings": str(len(self.warnings)),
        }


@dataclass(frozen=True, repr=False)
class RepairResult(BuildResult):
    """What a repair did. ``exit_status`` is 0 where nothing is lost, and 3 where fillers stand for lost bytes.

    The other fields are those of a build, of the new log; ``damage`` is what is lost.
    """

    repair: dict[str, Any] | None
    """what was changed in the log: ``ranges``, each with ``segment``, ``offset``, ``length``, ``reason``, ``how`` and digests;
    bytes ``from_replica``, ``filled`` and ``kept``; and the number of ``segments``"""

    def to_dict(self) -> dict[str, Any]:
        found = super().to_dict()
        if self.repair is None:
            del found["repair"]
        return found

    def _facts(self) -> dict[str, str]:
        changed = self.repair or {"ranges": []}
        return {**super()._facts(), "repaired": counted(len(changed["ranges"]), "range")}


@dataclass(frozen=True, repr=False)
class VerifyResult(Result):
    """What a verify found. ``exit_status`` is 0 where the store is what its commitlog says, and 4 where it differs.

    ``units``, ``items`` (of keys) and ``tag_items`` are those that the log gives, ``units_there``, ``items_there`` and
    ``tag_items_there`` those that the store has. Each of ``findings`` is one kind of difference: ``kind``, ``part``, ``text``,
    ``count``, ``mend`` and the first ``examples``.
    """

    version: str
    command: str
    started: str
    """when the run began: ISO, UTC"""
    store: str
    against: str | None
    """the other store, where two were compared"""
    sample: float
    """share of the segments that were read"""
    seconds: dict[str, float]
    beside: dict[str, float]
    """seconds of what ran beside others within a stage"""
    segments: int
    segments_read: int
    bytes: int
    records: int
    units: int
    units_there: int
    items: int
    items_there: int
    tag_items: int
    tag_items_there: int
    queues: int
    queues_differing: int
    files: dict[str, int]
    """number of files by kind: ``consumequeue``, ``index``"""
    sizes: dict[str, int]
    """bytes of the log and of the files derived from it"""
    settings: dict[str, Any]
    orders: dict[str, int]
    """number of queues by the order that fits"""
    findings: list[dict[str, Any]]
    damage: list[dict[str, Any]]
    """damaged places of the log"""
    lost_keys: list[dict[str, Any]]
    """stretches of the log whose keys are not in the index"""
    lost_tags: list[dict[str, Any]]
    """stretches of the log whose TAGS are not in the index, where others are"""
    broker_version: str
    """the version by which the store was checked"""
    fits: list[str]
    """the versions that may have written the store, newest first; none where a version was named"""
    signs: list[str]
    """what in the store says so"""
    queue_list: list[dict[str, Any]]
    index_list: list[dict[str, Any]]
    checkpoint: dict[str, int] | None
    mend: str | None
    """the command that mends all differences but those of ``not_mended``: a repair where the log is damaged, else a build"""
    other_ways: list[dict[str, str]]
    """where that is a repair: builds that may take its place, each with ``loses`` and ``command``"""
    not_mended: list[str]
    """why no build is advised for some of the differences"""
    not_checked: list[str]
    """fields of records that may be wrong all the same, since no checksum covers them"""
    pending: int
    """records at the end of a queue that have no unit, since nobody can tell whether they are in line: no consumer gets them"""
    idle_queues: int
    """number of queues that hold units of expired records alone"""
    incremental: dict[str, int] | None
    """of an incremental verify: ``bytes_read`` of the log, its ``ranges``, and ``ranges_known`` from earlier verifies"""
    notes: list[str]
    not_removed: list[dict[str, Any]]
    """what should have been removed and stays, as of a build: of ``work``, and of what an incremental verify knows"""
    error: str | None

    def _order(self, names: list[str]) -> list[str]:
        return ["version", "command", "started", "exit", *names[3:]]

    def _facts(self) -> dict[str, str]:
        return {
            "compared": f"{counted(self.units, 'unit')}, {counted(self.items, 'item')}",
            "differences": ", ".join(f"{each['kind']} {each['count']}" for each in self.findings) or "none",
        }


@dataclass(frozen=True, repr=False)
class FetchResult(Result):
    """What a fetch did. ``bytes`` were read, ``size`` is what they take in a store. With ``dry_run`` see ``text``."""

    build: str
    to: str
    files: int
    bytes: int
    size: int
    swapped: list[str]
    """parts of the build that this run put into the store"""
    already_there: bool
    """the store held this very build, unchanged since a fetch laid it out: nothing was fetched"""
    previous: dict[str, str]
    """where the store's own parts are kept, by part"""
    removed: list[str]
    """copies of earlier parts that were removed, by name in the store"""
    finished_earlier: str | None
    """the build of an earlier fetch that was cut short, and was finished first"""
    warnings: list[str]
    """what may keep a broker from what was laid out, or from the store"""
    notes: list[str]
    """what was left as it is"""
    seconds: float
    error: str | None

    def _facts(self) -> dict[str, str]:
        return {
            "files": f"{self.files:,}",
            "bytes": f"{self.bytes:,}",
            "swapped": ", ".join(self.swapped) or "nothing",
            "warnings": str(len(self.warnings)),
        }


@dataclass(frozen=True, repr=False)
class ReportResult(Result):
    """The page that was written."""

    out: str
    bytes: int

    def _facts(self) -> dict[str, str]:
        return {"page": self.out, "bytes": f"{self.bytes:,}"}
