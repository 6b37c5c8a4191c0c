"""The content of a report, from a build's manifest or a verify's summary: plain numbers and names, nothing drawn yet."""

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.building.advice import DIR, REPAIR_FIRST, REPAIRS, REPLICA
from rocketmq_reindex.storage_format.checks.differences import no_differences
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from rocketmq_reindex.storage_format.queue.units import UNIT_SIZE
from rocketmq_reindex.storage_format.showing import counted, escape, shell
from rocketmq_reindex.storage_format.topics import LMQ_PREFIX

QUEUE_PATH: Final = re.compile(r"consumequeue/([^/]+)/(\d+)/(\d{20})")
_TAG_ITEMS: Final = "tag items"


@dataclass
class Queue:
    """One queue: positions [``first``, ``end``), of which ``gaps`` hold no message of their own: in a build a repeated one, in
    a verified store none."""

    topic: str
    number: int
    first: int
    end: int
    units: int
    gaps: int = 0
    filled: bool = False
    """whether gaps are filled with units, which then repeat the next message's"""

    @property
    def messages(self) -> int:
        """Units that stand for a message of their own."""
        return max(0, self.units - self.gaps) if self.filled else self.units

    @property
    def light(self) -> bool:
        """Whether it is a light queue, whose units are those of messages of other topics."""
        return self.topic.startswith(LMQ_PREFIX)


@dataclass
class IndexFileShown:
    """One IndexFile: ``places`` and ``slots`` are what it has room for."""

    name: str
    items: int
    places: int
    slots: int
    slots_used: int
    begin: int
    end: int


class Step(NamedTuple):
    """What to do next: in words, and as a command to paste, "" for none."""

    text: str
    command: str = ""


@dataclass
class Model:
    """``seconds`` by stage; ``sizes`` in bytes; ``segments`` are (start, bytes); ``damage`` (offset, bytes, reason)."""

    title: str
    command: str
    version: str
    when: str = ""
    """when the run began, or else what is known of that"""
    verdict: str = ""
    good: bool = True
    """whether nothing is missing, and nothing differs"""
    steps: list[Step] = field(default_factory=list)
    """what to do next, the first one first"""
    warnings: list[str] = field(default_factory=list)
    records: int = 0
    facts: list[tuple[str, str]] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    index: list[IndexFileShown] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    segments: list[tuple[int, int]] = field(default_factory=list)
    damage: list[tuple[int, int, str]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    gaps_elsewhere: int = 0
    """gaps of queues that are not named: of very many decisions only the sum is known"""
    repaired: bool = False
    """whether the build is the store that a repair has made"""

    @property
    def messages(self) -> int:
        """Messages that have a unit of their own; those of light queues are the same messages again."""
        return sum(q.messages for q in self.queues if not q.light) - self.gaps_elsewhere

    @property
    def topics(self) -> dict[str, list[Queue]]:
        """Queues by topic, the topic with the most units first."""
        by_topic: dict[str, list[Queue]] = {}
        for queue in self.queues:
            by_topic.setdefault(queue.topic, []).append(queue)
        return dict(sorted(by_topic.items(), key=lambda pair: (-sum(q.units for q in pair[1]), pair[0])))


def of_build(manifest: dict[str, Any], name: str) -> Model:
    """Return the model of a build's ``reindex.json``. Raises KeyError, TypeError or ValueError for what is none."""
    counts, settings = manifest["counts"], manifest["settings"]
    inputs = [(int(entry["segment"]), int(entry["size"])) for entry in manifest["inputs"]]
    model = Model(name, "build", str(manifest["version"]), settings=settings, segments=inputs)
    model.records = int(counts["records"])
    model.damage = [(int(d["offset"]), int(d["length"]), str(d["reason"])) for d in manifest["damage"]]
    model.warnings = [str(warning) for warning in manifest["warnings"]]
    _judge_build(model, "repair" in manifest)
    kinds = {"log read": sum(size for _, size in inputs), "ConsumeQueue": 0, "IndexFile": 0, "other": 0}
    ends: dict[tuple[str, int], list[int]] = {}
    for entry in manifest["files"]:
        path, used = str(entry["path"]), int(entry["used"])
        match = QUEUE_PATH.fullmatch(path)
        if match:
            kinds["ConsumeQueue"] += used
            start = int(match[3]) // UNIT_SIZE
            ends.setdefault((match[1], int(match[2])), []).extend((start, start + used // UNIT_SIZE))
        elif path.startswith("index/"):
            kinds["IndexFile"] += int(entry["size"])
            model.index.append(_index(path.removeprefix("index/"), entry, settings))
        else:
            kinds["other"] += used
    gaps: dict[tuple[str, int], int] = {}
    for decision in manifest["decisions"]:
        if decision["kind"].removeprefix("more ") == "fill":
            key = (str(decision["topic"]), int(decision["queue"]))
            gaps[key] = gaps.get(key, 0) + int(decision["count"])
    model.queues = [
        Queue(
            topic,
            number,
            min(offsets),
            max(offsets),
            max(offsets) - min(offsets),
            gaps.get((_shown_name(topic), number), 0),
            filled=True,
        )
        for (topic, number), offsets in sorted(ends.items())
    ]
    model.gaps_elsewhere = gaps.get(("", -1), 0)
    model.sizes = {kind: size for kind, size in kinds.items() if size}
    tag_items = counts.get("tag_items", 0)
    model.facts = _facts(model, counts["units"], counts["items"] - tag_items, tag_items or None)
    return model


def _judge_build(model: Model, repaired: bool) -> None:
    """Say what became of the damage, and what to do next. The store that a repair made is whole."""
    places = counted(len(model.damage), "damaged place")
    model.good, model.repaired = repaired or not model.damage, repaired
    if repaired:
        model.verdict = f"repaired: {places} of the log"
        return
    model.verdict = f"built without what stood in {places} of the log" if model.damage else "built from the whole log"
    lays_out = "lay it out for a broker"
    if model.damage:
        repair = shell(["rmq-reindex", "repair", "STORE", "--out", DIR, "--replica", REPLICA])
        model.steps.append(Step(REPAIR_FIRST, repair))
        lays_out = "or lay this build out for a broker, without those messages"
    model.steps.append(Step(lays_out, shell(["rmq-reindex", "fetch", model.title, "--to", "STORE"])))


def of_verify(summary: dict[str, Any], name: str) -> Model:
    """Return the model of what ``verify --report`` wrote. Raises KeyError, TypeError or ValueError for what is none."""
    model = Model(name, "verify", str(summary["version"]), settings=dict(summary["settings"]))
    model.records, model.when = int(summary["records"]), began("verified", summary.get("started"))
    model.damage = [(int(d["offset"]), int(d["length"]), str(d["reason"])) for d in summary["damage"]]
    model.notes = [str(note) for note in summary["notes"]]
    model.findings = list(summary["findings"])
    model.good = not (summary["error"] or model.findings)
    kinds = counted(len(model.findings), "kind of difference", "kinds of differences")
    model.verdict = str(summary["error"] or (kinds if model.findings else no_differences(int(summary.get("pending", 0)))))
    model.steps = _mends(model, summary)
    model.seconds = {str(stage): float(seconds) for stage, seconds in summary["seconds"].items()}
    model.seconds.pop("total", None)
    total = model.seconds.pop("verify", None)
    if total is not None and not any(stage != "session" for stage in model.seconds):
        model.seconds["verify"] = total
    model.sizes = {str(kind): int(size) for kind, size in summary["sizes"].items()}
    model.queues = [
        Queue(q["topic"], q["queue"], q["first"], q["end"], q["there"], q["units"] - q["there"])
        for q in summary["queue_list"]
        if q["units"]
    ]
    model.index = [
        _index(str(entry["name"]), entry, model.settings, used=int(entry["used"])) for entry in summary["index_list"]
    ]
    model.facts = _against(summary) if summary.get("against") else _verified(model, summary)
    return model


def _mends(model: Model, summary: dict[str, Any]) -> list[Step]:
    """Return what mends the differences of a verify."""
    steps = list[Step]()
    if summary["mend"]:
        # Some differences need other means, or no build is advised.
        has_other_means = any(not str(finding.get("mend", "")).startswith("rmq-reindex") for finding in model.findings)
        repair = str(summary["mend"]).startswith(REPAIRS)
        first = REPAIR_FIRST if repair else f"{'some' if has_other_means else 'all'} of it is mended by"
        steps.append(Step(first, str(summary["mend"])))
        steps += [Step(f"or, which {way['loses']}", str(way["command"])) for way in summary.get("other_ways", ())]
    steps += [Step(f"no build is advised for some of it: {reason}") for reason in summary.get("not_mended", ())]
    return steps


def _verified(model: Model, summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is there, and behind each number what is missing of it."""
    tag_items = summary["tag_items_there"] if summary.get("tag_items") else None
    kinds = {"units": "units", _items(tag_items): "items", _TAG_ITEMS: "tag_items"}
    facts = []
    for name, value in _facts(model, summary["units_there"], summary["items_there"], tag_items):
        facts.append((name, value))
        if name in kinds and (missing := summary[kinds[name]] - summary[f"{kinds[name]}_there"]):
            facts.append((f"{name} missing", f"{missing:,}"))
    return facts


def _against(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was compared of two stores: the log of neither says what should be there."""
    return [
        ("compared with", str(summary["against"])),
        ("bytes of both logs", f"{int(summary['bytes']):,}"),
        ("units", f"{int(summary['units']):,}"),
        ("ConsumeQueue files", f"{int(summary['files']['consumequeue']):,}"),
        ("IndexFiles", f"{int(summary['files']['index']):,}"),
    ]


def _index(name: str, entry: dict[str, Any], settings: dict[str, Any], used: int | None = None) -> IndexFileShown:
    header = entry["header"]
    places, slots = int(settings.get("index_items", 0)), int(settings.get("hash_slots", 0))
    items = max(0, (int(entry["used"]) - HEADER_SIZE - SLOT_SIZE * slots) // ITEM_SIZE - 1) if used is None else used
    return IndexFileShown(
        name,
        items,
        max(places - 1, items),
        slots,
        int(header["slot_count"]),
        int(header["begin_time"]),
        int(header["end_time"]),
    )


def _items(tag_items: int | None) -> str:
    return "index items" if tag_items is None else "key items"


def _facts(model: Model, units: int, items: int, tag_items: int | None) -> list[tuple[str, str]]:
    """Return the facts of a build; ``items`` are those of keys, ``tag_items`` those of TAGS, None where there are to be
    none."""
    light = sum(q.units for q in model.queues if q.light)
    return [
        ("records read", f"{model.records:,}"),
        ("units", f"{units:,}"),
        *([("light-queue units", f"{light:,}")] if light else []),
        (_items(tag_items), f"{items:,}"),
        *([(_TAG_ITEMS, f"{tag_items:,}")] if tag_items is not None else []),
        ("topics", f"{len(model.topics):,}"),
        ("queues", f"{len(model.queues):,}"),
        ("IndexFiles", f"{len(model.index):,}"),
        ("damaged places", f"{len(model.damage):,}"),
    ]


def began(verb: str, started: object) -> str:
    """Return ``built 2026-11-22 03:58:12 UTC`` from a summary's ``started``; nothing where that is not there. Raises
    ValueError."""
    if started is None:
        return ""
    moment = dt.datetime.fromisoformat(str(started).removesuffix("Z"))
    return f"{verb} {moment.isoformat(' ', 'seconds')} UTC"


def written(name: str, seconds: float) -> str:
    """Return when the file was written, where there is no summary of the run. A copy may have changed this time."""
    moment = dt.datetime.fromtimestamp(int(seconds), dt.timezone.utc).replace(tzinfo=None)
    return f"{escape(name)} dated {moment.isoformat(' ', 'seconds')} UTC"


def _shown_name(topic: str) -> str:
    """Return a topic as decisions name it."""
    return escape(topic)
