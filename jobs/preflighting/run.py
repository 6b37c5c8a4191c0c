"""One preflight from beginning to end: list the folders, decide what loads, work out the start, say what is lost."""

import dataclasses
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex.jobs.command.option import parse_delay_levels
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.preflighting import folders, group
from rocketmq_reindex.jobs.preflighting.advice import READ_FILES, RECHECK, Commands, refused
from rocketmq_reindex.jobs.preflighting.database import StoreDatabase
from rocketmq_reindex.jobs.preflighting.group import StoreGroup
from rocketmq_reindex.jobs.preflighting.losses import (
    delivered,
    earlier_lives,
    losses,
    set_back,
    tail_cut,
    units_behind_log,
)
from rocketmq_reindex.jobs.preflighting.model import Delivery, StoreFiles, StoreSizes, release_from, sizes_of, start_settings
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store.contents import IndexSizes
from rocketmq_reindex.jobs.store.settings import check_no_store, committed_index, meant_by
from rocketmq_reindex.storage_format import layouts, topics
from rocketmq_reindex.storage_format.broker_start import listing as start_listing, loading as start_loading
from rocketmq_reindex.storage_format.broker_start.predict import predict
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, ProgressListener, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, form
from rocketmq_reindex.udfs.times import show_time
from rocketmq_reindex.version import __version__

# ----------------------------------------------------------------------------------------------------------------------- result
# What a preflight says, as --json prints it.

_OF_QUEUE: Final = tuple(column.name for column in dataclasses.fields(start_loading.QueueOutcome))


@dataclass(repr=False)
class PreflightResult(Result):
    """What the start of a broker will do to a store.

    ``exit_status`` is 0 where the start loses nothing, and 4 where it loses or hides something or does not come about. Offsets
    are bytes of the log or queue offsets; -1 stands for what is not known or was not counted. Without ``loads`` the start's
    parts are None or empty.
    """

    version: str = __version__
    """of rocketmq-reindex"""
    store: str = ""
    release: str = ""
    """the release of RocketMQ whose start is worked out"""
    release_from: str = ""
    """where it comes from, in words: the option, or the default and what the store's files fit"""
    abort: bool = False
    """the start is one after an unclean stop"""
    sizes: dict[str, int] = field(default_factory=dict)
    """the broker's settings for its files, and ``recover_max_segments``"""
    loads: bool = False
    """the store loads, and the broker starts"""
    refusals: list[dict[str, Any]] = field(default_factory=list)
    """why it does not: ``kind``, ``path``, ``detail``"""
    log: dict[str, Any] | None = None
    """where the recovery begins, where the log is cut, and what is deleted"""
    dispatch: dict[str, Any] | None = None
    """what is dispatched again, and what is not"""
    queues: Sequence[dict[str, Any]] = field(default_factory=list)
    """what consumers will see of each queue, and what the log holds"""
    index: dict[str, Any] | None = None
    """IndexFiles that are deleted, and items that are lost"""
    delayed: list[dict[str, Any]] = field(default_factory=list)
    """delayed messages by level"""
    timers: dict[str, Any] | None = None
    """timer messages"""
    losses: list[dict[str, Any]] = field(default_factory=list)
    """what is lost or hidden: ``kind``, ``count``, ``text``, ``advice``, ``commands``"""
    warnings: list[dict[str, Any]] = field(default_factory=list)
    """the same of what costs no message"""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    exit: int = 1
    error: str | None = None

    def _facts(self) -> dict[str, str]:
        kinds = ", ".join(loss["kind"] for loss in self.losses)
        return {"release": self.release, "loads": "yes" if self.loads else "no", "losses": kinds or "none"}


def plain(value_of: Any) -> dict[str, Any]:
    """Return a dataclass as JSON would give it back: dicts and lists."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in dataclasses.asdict(value_of).items()}


def shallow(queue: start_loading.QueueOutcome) -> dict[str, Any]:
    """Return a queue as JSON would give it back: ``plain`` for the one kind of which there may be hundreds of thousands."""
    return {name: getattr(queue, name) for name in _OF_QUEUE}


# ------------------------------------------------------------------------------------------------------------------------- show
# A preflight as text for people: the verdict first.

QUEUES_SHOWN: Final = 20
NOTES_SHOWN: Final = 10
FILES_SHOWN: Final = 3


def lines_of(result: PreflightResult) -> list[str]:
    """Return the lines of an answer; none for a run that failed."""
    if result.error:
        return []
    lines = [_verdict(result), f"start    {'abnormal (a file abort)' if result.abort else 'clean'}"]
    if result.loads and result.log and result.dispatch and result.index:
        lines += _log(result.log) + _dispatch(result.dispatch) + _queues(result.queues) + _index(result.index)
        lines += _delayed(result.delayed) + _timers(result.timers)
    shown = set[str]()
    for loss in (*result.losses, *result.warnings):
        lines += ["", *_loss(loss, shown)]
    notes = [f"note     {note}" for note in result.notes[:NOTES_SHOWN]]
    if len(result.notes) > NOTES_SHOWN:
        notes.append(f"note     {len(result.notes) - NOTES_SHOWN} more, with --json")
    return lines + ([""] if notes else []) + notes


def _verdict(result: PreflightResult) -> str:
    kinds = ", ".join(f"{loss['kind']} {loss['count']:,}" if loss["count"] >= 0 else loss["kind"] for loss in result.losses)
    broker = f"RocketMQ {result.release} ({result.release_from})"
    if not result.loads:
        return f"refused  {broker} does not start: {kinds}"
    if result.losses:
        return f"loses    {kinds}: {broker}"
    counted_all = result.dispatch is None or result.dispatch["hidden_records"] >= 0
    return f"starts   and loses nothing{'' if counted_all else ', as far as the log was read'}: {broker}"


def _log(log: dict[str, Any]) -> list[str]:
    begin = f"recovery begins in {escape(log['start_segment'])}" if log["start_segment"] else "empty"
    limit = ", the oldest segment that it looks at" if log["limited"] else ""
    where = f"offsets {log['min_offset']} to {log['max_offset']}, {begin}{limit}" if log["min_offset"] >= 0 else "no segment"
    lines = [f"log      {where}"]
    if log["cut_bytes"] or log["deleted_segments"]:
        records = _number(log["cut_records"], "good record")
        cut = f"cut at {log['max_offset']} ({log['cut_reason']}): {counted(log['cut_bytes'], 'byte')}, {records}"
        gone = log["deleted_segments"]
        deleted = f", {counted(len(gone), 'segment')} deleted from {escape(gone[0])} on" if gone else ""
        lines.append(f"         {cut}{deleted}")
    return lines


def _dispatch(dispatch: dict[str, Any]) -> list[str]:
    if dispatch["from_offset"] < 0 or not dispatch["records"]:
        lines = ["dispatch nothing: every record has been dispatched"]
    else:
        counts = ", ".join(counted(dispatch[f"{noun}s"], noun) for noun in ("record", "unit", "item"))
        lines = [f"dispatch from offset {dispatch['from_offset']}: {counts}"]
    if dispatch["hidden_from"] >= 0:
        stretch = f"offsets {dispatch['hidden_from']} to {dispatch['hidden_to']}"
        lines.append(f"         not {stretch}: {_number(dispatch['hidden_records'], 'record')} without a unit")
    return lines


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
    lines = [f"queues   {bad:,} of {total} {form(bad, 'hides', 'hide')} or {form(bad, 'loses', 'lose')} messages"]
    for queue in _worst(worst):
        name = f"{escape(queue['topic'], 60)}/{queue['queue']}"
        hidden = f", {queue['hidden']:,} hidden" if queue["hidden"] > 0 else ""
        visible = f"consumers see {queue['min_offset']} to {queue['max_offset']}"
        log = f"the log holds {queue['log_min']} to {queue['log_max']}" if queue["log_max"] >= 0 else "the log was not read"
        lines.append(f"    {name:<24} {visible}, {log}{hidden}")
    if bad > QUEUES_SHOWN:
        lines.append(f"    {bad - QUEUES_SHOWN:,} more, with --json")
    return lines + cut


def _worst(queues: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(queues, key=lambda queue: (-queue["hidden"], queue["topic"], queue["queue"]))[:QUEUES_SHOWN]


def _index(index: dict[str, Any]) -> list[str]:
    if not index["files"] and not index["deleted"]:
        return ["index    no IndexFile"]
    text = f"index    {counted(index['files'], 'IndexFile')} after the start"
    if index["deleted"]:
        ellipsis = ", ..." if len(index["deleted"]) > FILES_SHOWN else ""
        names = ", ".join(map(escape, index["deleted"][:FILES_SHOWN]))
        text += f", {len(index['deleted']):,} deleted before ({names}{ellipsis})"
    lost = f"{counted(index['items_lost'], 'item')} not made again" if index["items_lost"] > 0 else ""
    missing = f"{counted(index['items_missing'], 'key')} without an item" if index["items_missing"] > 0 else ""
    return [": ".join(filter(None, (text, ", ".join(filter(None, (lost, missing))))))]


def _delayed(levels: list[dict[str, Any]]) -> list[str]:
    if not levels:
        return []
    waiting, due = sum(level["waiting"] for level in levels), [level["due"] for level in levels]
    due_text = f", {sum(due):,} of them due at the log's newest time" if min(due) >= 0 else ""
    of_levels = f"all units of {counted(len(levels), 'level')} from the offset on where each goes on"
    lines = [f"delayed  {counted(waiting, 'message')} will be delivered: {of_levels}{due_text}"]
    for level in (level for level in levels if level["again"] or level["skipped"] or level["stuck_at"] >= 0):
        kept = f"kept offset {level['kept']}" if level["kept"] >= 0 else "no kept offset"
        repeated = f", {level['again']:,} delivered again" if level["again"] else ""
        end = f"{level['end']}, stops at {level['stuck_at']}" if level["stuck_at"] >= 0 else str(level["end"])
        skipped = f", {level['skipped']:,} never delivered" if level["skipped"] else ""
        lines.append(f"    level {level['level']:<3} {kept}, goes on at {level['begins_least']} of {end}{repeated}{skipped}")
    return lines


def _timers(timers: dict[str, Any] | None) -> list[str]:
    if timers is None:
        return []
    lost = f", {timers['lost']:,} never delivered" if timers["lost"] > 0 else ""
    repeated = f", {timers['again']:,} delivered again" if timers["again"] > 0 else ""
    stuck = f", stops at the slot of {show_time(timers['stuck_at'])}" if timers["stuck"] > 0 else ""
    return [f"timer    goes on at queue offset {timers['goes_on']} of {timers['end']}{stuck}{repeated}{lost}"]


def _loss(loss: dict[str, Any], shown: set[str]) -> list[str]:
    """Return the lines of a loss; ``shown`` are commands that stand above already."""
    lines = [f"{loss['kind']}", f"    {loss['text']}"]
    lines += [f"    {'do  ' if not number else '    '} {advice}" for number, advice in enumerate(loss["advice"])]
    lines += [f"    run  {command}" for command in loss["commands"] if command not in shown]
    shown.update(loss["commands"])
    return lines


def _number(count: int, noun: str) -> str:
    return counted(count, noun) if count >= 0 else f"{noun}s that were not counted"


# -------------------------------------------------------------------------------------------------------------------------- run


class Preflight:
    """State of one run; ``result`` is true at every moment."""

    def __init__(self, settings: PreflightSettings, result: PreflightResult, progress: ProgressListener) -> None:
        """``progress`` is told how far the run is."""
        self._settings, self._result, self._progress = settings, result, progress
        self._maps = folders.Maps()
        self._files = StoreFiles(settings.store, self._maps)
        self._of_dledger = group.log_of_node(settings)
        self._folders, self._group = self._folders_of(), StoreGroup(settings, bool(self._of_dledger))
        result.store, result.release = escape(settings.store), settings.release

    def run(self) -> None:
        """Fill the result. Raises InputError, OSError."""
        with StoreDatabase(self._settings) as database:
            self._run(database)

    def _run(self, database: StoreDatabase) -> None:
        settings, result = self._settings, self._result
        listing = self._folders.listing()
        if database.in_rocksdb:
            # A broker does not look at folders of topics beside its database.
            listing = dataclasses.replace(listing, queues=(), ext=())
        sizes = sizes_of(listing, settings.broker, settings.store, self._maps)
        result.release_from = release_from(settings, IndexSizes(sizes.hash_slots, sizes.index_items))
        result.abort = self._folders.has_abort() if settings.abort is None else settings.abort
        if settings.stands_for_another:
            result.notes.append(f"RocketMQ {settings.broker_version}: the start of {settings.release} is worked out")
        result.notes += [*settings.broker.notes, *sizes.notes]
        result.notes += database.notes
        check_no_store(settings.commitlogs)
        if not (listing.segments or listing.entries or listing.queues or database.in_rocksdb):
            # A node of DLedger has a folder index/, too.
            meant = meant_by(settings.store)
            if meant or not listing.indexes:
                text = meant or ": name the broker's store"
                raise InputError(f"{result.store}: has no commitlog, no queue and no IndexFile{text}")
        loading = start_loading.load(listing, sizes.files, settings.release)
        start = start_settings(settings, result.abort, sizes, in_group=self._group.is_one)
        result.sizes = {
            "segment_size": start.segment_size, "cq_file_size": start.cq_file_size,
            "batch_cq_file_size": start.batch_cq_file_size, "hash_slots": start.hash_slots,
            "index_items": start.index_items, "recover_max_segments": start.recover_max_segments,
        }  # fmt: skip
        self._note(loading)
        refusals, delays = self._delays((*loading.refusals, *database.refusals(), *self._group.refusals()))
        batch = topics.BATCH_QUEUE in listing.queue_types.values()
        commands = Commands(settings, sizes, batch, start.lmq, bool(self._of_dledger))
        if refusals:
            self._refuse(refusals, loading, commands, sizes)
        else:
            has_ext, committed = settings.has_ext and not database.in_rocksdb, committed_index(self._of_dledger)
            store = self._files.store(listing, loading, sizes, has_ext, database, committed)
            with folders.TemporarySpool() as spool:
                prediction = predict(store, start, settings.count_limit, spool, self._progress)
            if not prediction.loads:
                self._refuse(prediction.refusals, loading, commands, sizes)
            group.check_is_log(settings.store, listing, prediction.log, bool(self._of_dledger))
            ext_sizes = start.cq_file_size, start.cq_ext_file_size
            delivery = Delivery(self._folders, self._files, listing, loading, store, settings, delays, ext_sizes)
            self._fill(prediction, delivery, commands, start.message_index)
            result.notes += [group.uncommitted(self._of_dledger, prediction)] if self._of_dledger else []
        result.notes += [*self._folders.notes, *commands.of_sizes(each for loss in result.losses for each in loss["commands"])]
        self._check_unchanged(listing, database.in_rocksdb)
        result.exit = ExitStatus.FOUND if result.losses else ExitStatus.DONE

    def _folders_of(self) -> folders.StoreFolders:
        settings = self._settings
        return folders.StoreFolders(settings.store, settings.roots, settings.has_timers, settings.has_ext, self._of_dledger)

    def _note(self, loading: start_loading.Loading) -> None:
        notes = self._result.notes
        if loading.odd:
            raise InputError(
                f"{escape(loading.odd[0])}: a broker takes this file by its name, which is not the offset of a file of its "
                f"size ({counted(len(loading.odd), 'such file')}): preflight does not know what it then does: move it away"
            )
        for path in loading.removed[:3]:
            notes.append(f"{escape(path)}: has no bytes: the start removes it")
        if loading.passed_over:
            others = f", and {len(loading.passed_over) - 1:,} more" if len(loading.passed_over) > 1 else ""
            notes.append(f"{escape(loading.passed_over[0])}{others}: a broker does not look at it")
        if self._settings.abort is not None and self._settings.abort != self._folders.has_abort():
            has_abort = "has no" if self._settings.abort else "has a"
            notes.append(f"the store {has_abort} file abort: this is the other case")
        # One that is too short is no segment that is missing: a refusal says what to do about it.
        short = [os.path.basename(each.path) for each in loading.refusals if each.kind == "log-file-size"]
        starts = sorted(int(name) for name in (*short, *(each.name for each in loading.segments)) if layouts.is_number(name))
        ends = itertools.pairwise((start, start + loading.segments[0].size) for start in starts if loading.segments)
        if holes := [(before[1], after[0]) for before, after in ends if after[0] > before[1]]:
            notes.append(
                f"commitlog: {counted(sum(end - begin for begin, end in holes), 'byte')} of the log have no segment, from "
                f"{holes[0][0]} on: look first whether a disk is not mounted; if not, a repair puts fillers in their place"
            )

    def _delays(self, refusals: tuple[start_loading.Refusal, ...]) -> tuple[tuple[start_loading.Refusal, ...], tuple[int, ...]]:
        try:
            return refusals, parse_delay_levels(self._settings.broker.delay_levels)
        except UsageError as error:
            # ScheduleMessageService.parseDelayLevel
            refusal = start_loading.Refusal("delay-levels", "broker.conf", str(error).removeprefix("--delay-levels: "))
            return (*refusals, refusal), ()

    def _refuse(
        self, refusals: tuple[start_loading.Refusal, ...], loading: start_loading.Loading, commands: Commands, sizes: StoreSizes
    ) -> None:
        self._result.loads = False
        self._result.refusals = [plain(refusal) for refusal in refusals]
        losses_found = refused(refusals, loading, commands, self._settings.store, sizes.files.segment)
        self._result.losses += [plain(loss) for loss in losses_found]

    def _fill(self, prediction: start_loading.Prediction, delivery: Delivery, commands: Commands, keeps_index: bool) -> None:
        result = self._result
        result.loads = prediction.loads
        result.notes += prediction.notes
        if not prediction.loads:
            return
        result.notes += units_behind_log(prediction, delivery.loading.queues)
        if prediction.dispatch is not None and prediction.dispatch.hidden_records < 0 and prediction.log is not None:
            result.notes.append(
                f"the log in front of {escape(prediction.log.start_segment)} was not read: whether its records have units and "
                f"items is not known; --count-limit {prediction.log.max_offset - prediction.log.min_offset} reads it"
            )
        levels, timers = delivery.delayed(prediction), delivery.timers(prediction)
        if timers is not None and (timers.lost or max(timers.stuck, timers.other, timers.passed_over) > 0):
            commands.take_timers(delivery.timer_files)
        mend = "" if not delivery.reads_database else RECHECK if delivery.store.database is not None else READ_FILES
        lost = losses(prediction, commands, keeps_index, len(delivery.store.segments), mend)
        lost += group.committed_lost(self._of_dledger, prediction, commands)
        lost_delayed, warned = delivered(levels, timers, commands)
        of_group, suspect, notes = self._group.found(prediction, commands)
        result.notes += notes
        for name in ("log", "dispatch", "index"):
            part = getattr(prediction, name)
            setattr(result, name, None if part is None else plain(part))
        result.queues = start_listing.OnDemand(len(prediction.queues), lambda number: shallow(prediction.queues[number]))
        result.delayed = [plain(level) for level in levels]
        result.timers = None if timers is None else plain(timers)
        result.losses += [plain(loss) for loss in (*lost, *of_group, *lost_delayed)]
        result.warnings = [
            plain(loss)
            for loss in (*tail_cut(prediction.log), *set_back(prediction), *earlier_lives(prediction.queues), *suspect, *warned)
        ]

    def _check_unchanged(self, before: start_listing.Listing, in_rocksdb: bool) -> None:
        """Raise InputError where a file is another than it was at the beginning."""
        now = self._folders_of().listing()
        changed = start_listing.first_change(before, dataclasses.replace(now, queues=(), ext=()) if in_rocksdb else now)
        if changed is not None and not any(refusal["kind"] == "lock-held" for refusal in self._result.refusals):
            raise InputError(f"{escape(os.path.join(self._settings.store, changed))}: {folders.CHANGED}")
