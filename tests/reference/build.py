"""The whole rebuild: segments in, the bytes of every file out, and what was decided on the way."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.reference import consume_queue as cq, java, log, names, queue_order
from tests.reference.checkpoint import checkpoint
from tests.reference.consume_queue import QueueKey
from tests.reference.index_file import IndexService
from tests.reference.log import Damage
from tests.reference.queue_order import Unit, Verdict
from tests.reference.records import Record
from tests.reference.settings import Settings


@dataclass
class Summary:
    """`damage`: what was lost or refused over, without a torn tail; `decisions`: queues put in order."""

    records: int = 0
    units: int = 0
    fills: int = 0
    items: int = 0
    consumequeue_files: int = 0
    index_files: int = 0
    damage: list[Damage] = field(default_factory=list)
    torn_tail: Damage | None = None
    decisions: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refused: str | None = None

    @property
    def exit(self) -> int:
        """5 refused, 3 published with parts missing, 0 done."""
        if self.refused:
            return 5
        return 3 if self.damage or any(entry["kind"] == "pending" for entry in self.decisions) else 0


@dataclass
class ReferenceBuild:
    """`files`: relative path to bytes; empty if refused."""

    files: dict[str, bytes]
    summary: Summary


class Refused(Exception):
    """Damage or queue order that the settings do not let pass."""


def reference_build(store: Path, commitlog: list[Path] | None = None, **settings: Any) -> ReferenceBuild:
    """Rebuild `store` (or the commitlog folders given) under `Settings(**settings)`.

    Raises log.LogError for a folder that is no commitlog.
    """
    rules = Settings(**settings)
    segments, size = log.read_segments(commitlog or [store / "commitlog"], rules.segment_size)
    summary = Summary()
    try:
        end = segments[-1].base + size if segments else 0
        files = _build(log.walk(segments, size, rules), rules, summary, end)
    except Refused as refusal:
        summary.refused = str(refusal)
        files = {}
    return ReferenceBuild(files, summary)


def _build(found: log.Log, rules: Settings, summary: Summary, end: int) -> dict[str, bytes]:
    good, summary.damage, summary.torn_tail = _until(found, rules)
    if found.short_last_segment:
        summary.warnings.append("the last segment is short")
    if summary.damage and rules.on_damage == "fail":
        raise Refused("damage")
    if summary.damage and rules.on_damage == "stop":
        summary.damage, summary.torn_tail = summary.damage[:1], None
        good = [r for r in good if r.offset < summary.damage[0].offset]
    wanted = [r for r in good if rules.wants(java.python_text(r.topic))]
    queues: dict[str, bytes] = {}
    if "consumequeue" in rules.only:
        if rules.queue_order == "broker":
            queues = _broker_queues(wanted, rules, summary)
        else:
            ends = [d.offset + d.length for d in found.damage if found.begins_at_0]
            lost = min(ends, default=java.LONG_MAX)
            judged = _judge(wanted, found.damage, lost, rules)
            cut = _out_of_line(judged, rules, summary)
            wanted = [r for r in wanted if r.offset < cut]
            queues = _logical_queues(judged, cut, lost, rules, summary)
    return _files(wanted, queues, rules, summary, end)


def _until(found: log.Log, rules: Settings) -> tuple[list[Record], list[Damage], Damage | None]:
    """Records and damage before --until-offset and before the first record later than --until-time."""
    cut = java.LONG_MAX if rules.until_offset is None else rules.until_offset
    if rules.until_time is not None:
        late = [r.offset for r in found.records if r.store_timestamp > rules.until_time]
        cut = min([cut, *late])
    torn = found.torn_tail if found.torn_tail and found.torn_tail.offset < cut else None
    return [r for r in found.records if r.offset < cut], [d for d in found.damage if d.offset < cut], torn


def _judge(wanted: list[Record], damage: list[Damage], first_lost: int, rules: Settings) -> dict[QueueKey, list[Verdict]]:
    units: dict[QueueKey, list[Unit]] = {}
    for record in wanted:
        for key, unit in cq.dispatches(record, once=True):
            units.setdefault(key, []).append(unit)
    lost = [(d.offset, d.offset + d.length) for d in damage]
    judged = {key: queue_order.judge(of_queue, lost, rules.max_fill) for key, of_queue in units.items()}
    unordered = [key for key, verdicts in judged.items() if any(v.does != queue_order.APPEND for v in verdicts)]
    unordered += [key for key, verdicts in judged.items() if _has_head(verdicts[0].unit, verdicts[0].at, first_lost, rules)]
    if unordered and rules.queue_order == "fail":
        raise Refused("queue order")
    return judged


def _has_head(first: Unit, at: int, lost: int, rules: Settings) -> bool:
    """Whether what is missing before a queue's first unit is explained. `lost`: where the first lost bytes end."""
    return lost <= first.record and 0 < at % (rules.cq_file_size // cq.UNIT) <= rules.max_fill


def _out_of_line(judged: dict[QueueKey, list[Verdict]], rules: Settings, summary: Summary) -> int:
    """Put records out of line under damage. Returns the offset at which the log now ends."""
    verdicts = [verdict for of_queue in judged.values() for verdict in of_queue]
    out = sorted({(v.unit.record, v.unit.size) for v in verdicts if v.does == queue_order.OUT})
    for offset, size in out:
        # The segment is left open here: a record's own offset says which it is.
        summary.damage.append(Damage("", offset, size, log.ORDER))
    if out and rules.on_damage == "fail":
        raise Refused("a record out of its queue's line")
    if out and rules.on_damage == "stop":
        summary.damage = [d for d in summary.damage if d.offset == out[0][0]]
        summary.torn_tail = None
        return out[0][0]
    return java.LONG_MAX


def _logical_queues(
    judged: dict[QueueKey, list[Verdict]], cut: int, lost: int, rules: Settings, summary: Summary
) -> dict[str, bytes]:
    """`lost`: the end of the first lost bytes of a log that begins at 0."""
    files: dict[str, bytes] = {}
    per_file = rules.cq_file_size // cq.UNIT
    # As many as the lost bytes can have had records count as explained.
    most = rules.max_fill + sum(d.length for d in summary.damage if d.reason != log.ORDER) // 91
    for key, all_verdicts in judged.items():
        verdicts = [v for v in all_verdicts if v.unit.record < cut]
        for verdict in verdicts:
            if verdict.does == queue_order.GENERATION:
                _decide(summary, "generation", key, verdict.unit.queue_offset, verdict.count)
        pending = [v.at for v in verdicts if v.does == queue_order.PENDING]
        if pending:
            _decide(summary, "pending", key, pending[0], len(pending))
        try:
            standing, _ = queue_order.settle(verdicts, most)
            first = min(standing, default=0)
            explained = bool(standing) and _has_head(standing[first], first, lost, rules)
            standing, fills = queue_order.settle(verdicts, most, per_file if explained else 0)
        except queue_order.TooManyMissing:
            raise Refused("more missing queue offsets than may be filled") from None
        for missing in sorted(fills):
            if missing - 1 not in fills:
                run = next(n for n in range(missing, missing + len(fills) + 1) if n not in fills) - missing
                _decide(summary, "fill", key, missing, run)
        if key[0] in names.WAITING_TOPICS:
            # A waiting message would be delivered once more for each: with this size nothing can be read there.
            fills = {at: replace(unit, size=1) for at, unit in fills.items()}
        packed = {at: cq.pack(unit) for at, unit in (standing | fills).items()}
        summary.units += len(packed)
        summary.fills += len(fills)
        if packed:
            files |= cq.queue_files(key, packed, rules.cq_file_size)
    if summary.fills > most:
        raise Refused("more missing queue offsets than may be filled")
    return files


def _broker_queues(wanted: list[Record], rules: Settings, summary: Summary) -> dict[str, bytes]:
    queues: dict[QueueKey, cq.BrokerQueue] = {}
    for record in wanted:
        for key, unit in cq.dispatches(record, once=False):
            queues.setdefault(key, cq.BrokerQueue(rules.cq_file_size)).put(unit)
    files: dict[str, bytes] = {}
    for key, queue in queues.items():
        for kind, units in (("dropped", queue.dropped), ("misplaced", queue.misplaced)):
            if units:
                _decide(summary, kind, key, units[0].queue_offset, len(units))
        summary.units += len(queue.units)
        files |= cq.queue_files(key, dict(enumerate(queue.units, queue.first)), rules.cq_file_size)
        if rules.broker_version in ("4.9", "5.5"):
            # 5.3 and 5.4 open that file, too, and their own rebuild then fails to load.
            files |= cq.empty_file(key, queue.first + len(queue.units), queue.opened, rules.cq_file_size)
    return files


def _decide(summary: Summary, kind: str, key: QueueKey, offset: int, count: int) -> None:
    summary.decisions.append({"kind": kind, "topic": key[0], "queue": key[1], "offset": offset, "count": count})


def _files(wanted: list[Record], queues: dict[str, bytes], rules: Settings, summary: Summary, end: int) -> dict[str, bytes]:
    index = IndexService(rules.hash_slots, rules.index_items)
    for record in wanted:
        index.build(record)
        summary.warnings.extend(record.warnings)
    last = wanted[-1] if wanted else None
    dispatched = next((r for r in reversed(wanted) if r.gets_unit), None)
    partial = rules.until_offset is not None or rules.until_time is not None or rules.include_topic or rules.exclude_topic
    state = checkpoint(rules.checkpoint, rules.broker_version, last, dispatched, index.files, 0 if partial else end)
    if rules.checkpoint == "safe" and index.files:
        index.files[-1].seal()
    files = dict(queues)
    if "index" in rules.only:
        files |= index.contents(rules.broker_version)
        summary.index_files = len(index.files)
        summary.items = sum(len(f.items) for f in index.files)
    if "checkpoint" in rules.only:
        files["checkpoint"] = state
    summary.records = len(wanted)
    summary.consumequeue_files = len(queues)
    return files
