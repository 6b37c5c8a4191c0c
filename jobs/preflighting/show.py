"""A preflight as text for people: the verdict first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rocketmq_reindex.jobs.preflighting.summary import PreflightSummary
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted, form

QUEUES_SHOWN: Final = 20
NOTES_SHOWN: Final = 10
FILES_SHOWN: Final = 3


def lines_of(summary: PreflightSummary) -> list[str]:
    """The lines of an answer; none for a run that failed."""
    if summary.error:
        return []
    found = [
        _verdict(summary),
        f"start    {'abnormal (a file abort)' if summary.abort else 'clean'}",
    ]
    if summary.loads and summary.log and summary.dispatch and summary.index:
        found += _log(summary.log) + _dispatch(summary.dispatch) + _queues(summary.queues) + _index(summary.index)
        found += _delayed(summary.delayed) + _timers(summary.timers)
    shown = set[str]()
    for loss in (*summary.losses, *summary.warnings):
        found += ["", *_loss(loss, shown)]
    notes = [f"note     {note}" for note in summary.notes[:NOTES_SHOWN]]
    if len(summary.notes) > NOTES_SHOWN:
        notes.append(f"note     {len(summary.notes) - NOTES_SHOWN} more, with --json")
    return found + ([""] if notes else []) + notes


def _verdict(summary: PreflightSummary) -> str:
    kinds = ", ".join(f"{loss['kind']} {loss['count']:,}" if loss["count"] >= 0 else loss["kind"] for loss in summary.losses)
    broker = f"RocketMQ {summary.release} ({summary.release_from})"
    if not summary.loads:
        return f"refused  {broker} does not start: {kinds}"
    if summary.losses:
        return f"loses    {kinds}: {broker}"
    counted_all = summary.dispatch is None or summary.dispatch["hidden_records"] >= 0
    return f"starts   and loses nothing{'' if counted_all else ', as far as the log was read'}: {broker}"


def _log(log: dict[str, Any]) -> list[str]:
    where = f"recovery begins in {escape(log['start_segment'])}" if log["start_segment"] else "empty"
    limit = ", the oldest segment that it looks at" if log["limited"] else ""
    found = [f"log      offsets {log['min_offset']} to {log['max_offset']}, {where}{limit}"]
    if log["cut_bytes"] or log["deleted_segments"]:
        records = _number(log["cut_records"], "good record")
        cut = f"cut at {log['max_offset']} ({log['cut_reason']}): {counted(log['cut_bytes'], 'byte')}, {records}"
        gone = log["deleted_segments"]
        deleted = f", {counted(len(gone), 'segment')} deleted from {escape(gone[0])} on" if gone else ""
        found.append(f"         {cut}{deleted}")
    return found


def _dispatch(dispatch: dict[str, Any]) -> list[str]:
    if dispatch["from_offset"] < 0 or not dispatch["records"]:
        found = ["dispatch nothing: every record has been dispatched"]
    else:
        what = ", ".join(counted(dispatch[f"{noun}s"], noun) for noun in ("record", "unit", "item"))
        found = [f"dispatch from offset {dispatch['from_offset']}: {what}"]
    if dispatch["hidden_from"] >= 0:
        stretch = f"offsets {dispatch['hidden_from']} to {dispatch['hidden_to']}"
        found.append(f"         not {stretch}: {_number(dispatch['hidden_records'], 'record')} without a unit")
    return found


def _queues(queues: Sequence[dict[str, Any]]) -> list[str]:
    bad = cut_from = units_cut = 0
    known, worst = True, list[dict[str, Any]]()
    for queue in queues:
        known = known and queue["hidden"] >= 0
        cut_from += queue["units_cut"] > 0
        units_cut += queue["units_cut"]
        if queue["hidden"] > 0 or queue["log_max"] > max(queue["max_offset"], 0):
            bad += 1
            worst.append(queue)
            if len(worst) > 2 * QUEUES_SHOWN:
                worst = _worst(worst)
    total = counted(len(queues), "queue")
    cut = [f"         {counted(units_cut, 'unit')} cut from {counted(cut_from, 'queue')}"] if units_cut else []
    if not bad:
        return [f"queues   {total}: consumers get all that {'the log holds' if known else 'was read of the log'}", *cut]
    found = [f"queues   {bad:,} of {total} {form(bad, 'hides', 'hide')} or {form(bad, 'loses', 'lose')} messages"]
    for queue in _worst(worst):
        name = f"{escape(queue['topic'], 60)}/{queue['queue']}"
        hidden = f", {queue['hidden']:,} hidden" if queue["hidden"] > 0 else ""
        seen = f"consumers see {queue['min_offset']} to {queue['max_offset']}"
        log = f"the log holds {queue['log_min']} to {queue['log_max']}" if queue["log_max"] >= 0 else "the log was not read"
        found.append(f"    {name:<24} {seen}, {log}{hidden}")
    if bad > QUEUES_SHOWN:
        found.append(f"    {bad - QUEUES_SHOWN:,} more, with --json")
    return found + cut


def _worst(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(queues, key=lambda queue: (-queue["hidden"], queue["topic"], queue["queue"]))[:QUEUES_SHOWN]


def _index(index: dict[str, Any]) -> list[str]:
    if not index["files"] and not index["deleted"]:
        return ["index    no IndexFile"]
    text = f"index    {counted(index['files'], 'IndexFile')} after the start"
    if index["deleted"]:
        more = ", ..." if len(index["deleted"]) > FILES_SHOWN else ""
        names = ", ".join(map(escape, index["deleted"][:FILES_SHOWN]))
        text += f", {len(index['deleted']):,} deleted before ({names}{more})"
    lost = f"{counted(index['items_lost'], 'item')} not made again" if index["items_lost"] > 0 else ""
    missing = f"{counted(index['items_missing'], 'key')} without an item" if index["items_missing"] > 0 else ""
    return [": ".join(filter(None, (text, ", ".join(filter(None, (lost, missing))))))]


def _delayed(levels: list[dict[str, Any]]) -> list[str]:
    if not levels:
        return []
    waiting, due = sum(level["waiting"] for level in levels), [level["due"] for level in levels]
    told = f", {sum(due):,} of them due at the log's newest time" if min(due) >= 0 else ""
    found = [f"delayed  {counted(waiting, 'message')} in {counted(len(levels), 'level')} will be delivered{told}"]
    for level in (level for level in levels if level["again"] or level["skipped"]):
        kept = f"kept offset {level['kept']}" if level["kept"] >= 0 else "no kept offset"
        again = f", {level['again']:,} delivered again" if level["again"] else ""
        skipped = f", {level['skipped']:,} never delivered" if level["skipped"] else ""
        found.append(
            f"    level {level['level']:<3} {kept}, goes on at {level['begins_least']} of {level['end']}{again}{skipped}"
        )
    return found


def _timers(timers: dict[str, Any] | None) -> list[str]:
    if timers is None:
        return []
    lost = f", {timers['lost']:,} never delivered" if timers["lost"] > 0 else ""
    again = f", {timers['again']:,} delivered again" if timers["again"] > 0 else ""
    return [f"timer    goes on at queue offset {timers['goes_on']} of {timers['end']}{again}{lost}"]


def _loss(loss: dict[str, Any], shown: set[str]) -> list[str]:
    """``shown`` are commands that stand above already."""
    found = [f"{loss['kind']}", f"    {loss['text']}"]
    found += [f"    {'do  ' if not number else '    '} {advice}" for number, advice in enumerate(loss["advice"])]
    found += [f"    run  {command}" for command in loss["commands"] if command not in shown]
    shown.update(loss["commands"])
    return found


def _number(count: int, noun: str) -> str:
    return counted(count, noun) if count >= 0 else f"{noun}s that were not counted"
