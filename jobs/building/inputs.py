"""What a build starts from: its folders and log, whether what was asked for is there, and what to warn of."""

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import queue_kinds
from rocketmq_reindex.jobs.building.advice import COPIED, REPAIR, is_copied, stopped
from rocketmq_reindex.jobs.building.options import BuildSettings, batch_topics_of
from rocketmq_reindex.jobs.building.planning import check_range_size
from rocketmq_reindex.jobs.building.store_signs import check_broker, look_at_sizes, names_lost_segments
from rocketmq_reindex.jobs.command.tables_place import check_place
from rocketmq_reindex.jobs.publishing import layout, output
from rocketmq_reindex.jobs.store import config_databases, folders, settings as store_settings
from rocketmq_reindex.jobs.store.contents import IndexSizes, StoreLog, message_at
from rocketmq_reindex.jobs.store.fitting import Sign, fit, index_files, newest_index_sizes, of_store
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format import checkpoints, layouts, versions
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.scan import chain as scan_chain, ranges, settings as scan_settings
from rocketmq_reindex.storage_format.showing import NEAR_MAX, counted, escape, listed
from rocketmq_reindex.udfs.times import show_time

# -------------------------------------------------------------------------------------------------------------------- empty_log
# A log without records, as of a disk that is not mounted: a build of it replaces one with records only on demand.

_BUILT_EMPTY: Final = "what is built of it is empty: is its disk mounted?"


def check_segments(settings: BuildSettings, log: store_settings.Commitlog, target: str) -> list[str]:
    """Return warnings of folders without a segment. Raises InputError where an empty build would replace another."""
    warnings = [] if log.segments else _kept(settings, target)
    consequence = "nothing is built from it" if log.segments else _BUILT_EMPTY
    return [*warnings, *(f"{escape(root)}: holds no segment: {consequence}" for root in bare_roots(settings, log))]


def bare_roots(settings: store_settings.StoreSettings, log: store_settings.Commitlog) -> list[str]:
    """Return commitlog folders without a segment, as a disk that is not mounted leaves them."""
    folders = {files.parent(entry.path) for entry in log.entries}
    return [root for root in settings.roots if files.parent(files.join(root, "segment")) not in folders]


def check_records(settings: BuildSettings, log: store_settings.Commitlog, records: int, size: int, target: str) -> list[str]:
    """Return warnings when the log has been read: ``records`` were found in ``size`` bytes. Raises InputError likewise."""
    if records or not log.segments:
        return []
    return [*_kept(settings, target), f"no record in {counted(size, 'byte')} of log: what is built of it is empty"]


def _kept(settings: BuildSettings, target: str) -> list[str]:
    """Raise InputError where DIR holds a build of some records, which stays there. In a dry run that is a warning."""
    known = 0 if settings.allow_empty else _records(target)
    if not known:
        return []
    roots = ", ".join(map(escape, settings.roots))
    what = f"a build of {counted(known, 'record')}" if known > 0 else "a build"
    text = (
        f"{roots}: holds no record, so {what} stays in {escape(settings.out)}: mount the log's disk, or name the right "
        "folder; --allow-empty replaces it all the same"
    )
    if not settings.dry_run:
        raise InputError(text)
    return [text]


def _records(target: str) -> int:
    """Return the records of the build in DIR; 0 where there is none, -1 where that cannot be known."""
    if files.entry_of(target).kind != files.FOLDER:
        return 0
    standing = output.standing(target)
    if standing is None:
        return -1 if output.kept(target) else 0
    try:
        manifest = json.loads(files.read_bytes(files.join(standing.folder, layout.MANIFEST), layout.MANIFEST_MAX))
        return int(manifest["counts"]["records"])
    except (OSError, InputError, ValueError, KeyError, TypeError):
        return -1


# ----------------------------------------------------------------------------------------------------------------------- inputs
# What a build starts from: its folders, the log, and what lies beside it. All is checked once, before Spark is started.


@dataclass(frozen=True)
class Inputs:
    """What was found before a build."""

    settings: BuildSettings
    """as they were given, with the sizes and the version that the files in STORE show, where nobody named them"""
    target: str
    """the real path of DIR"""
    log: store_settings.Commitlog
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    """what was taken from the files"""
    passing: tuple[str, ...]
    """warnings that hold for the moment, such as that a broker may be running: they are not in the manifest"""


def look_at(settings: BuildSettings) -> Inputs:
    """Return what a build is made from: its log, and its settings with what the files of the store show.

    Raises InputError for folders that cannot be used, a running broker, a log without segments, and sizes that do not fit, of
    files or of ranges.
    """
    # A wrong STORE is told before what stands at DIR, and beside --commitlog, too: sizes and topics are taken from it. A bucket
    # has no folders, and a policy may let a build read the segments alone.
    if settings.store and settings.commitlogs and not files.is_flat(settings.store):
        store_settings.check_is_folder(settings.store)
    if settings.mends:
        store_settings.check_mends(settings.roots, to_plain=settings.to_plain, named=bool(settings.commitlogs))
    log = store_settings.list_segments(settings.roots, settings.segment_size, may_be_short=settings.mends)
    # An incremental run may know what it left in DIR.
    inputs, known = list(settings.inputs), settings.incremental
    overwrite = None if settings.mends else settings.overwrite
    target = output.check_places(inputs, settings.out, overwrite, may_lack_manifest=known)
    check_place(settings.tables, (settings.out, *settings.inputs))
    layout.check_no_store_around(f"--tables {escape(settings.tables)}", settings.tables)
    check_range_size(settings.range_size, log.size)
    passing = tuple(check_broker(settings))
    warnings = [
        *settings.conf_notes,
        *log.warnings,
        *check_segments(settings, log, target),
    ]
    settings, shown_notes, told = as_store_shows(settings)
    notes = [*shown_notes, *names_lost_segments(settings, log)]
    return Inputs(settings, target, log, (*warnings, *told), tuple(notes), passing)


def as_store_shows(settings: BuildSettings) -> tuple[BuildSettings, list[str], list[str]]:
    """Return settings with the sizes, the batch topics and the version that the files in STORE show, where nobody named them.

    Notes on what was taken follow, and warnings.
    """
    named = settings
    settings, of_topics = _of_topics(settings)
    sizes = look_at_sizes(settings)
    settings = dataclasses.replace(settings, **sizes.taken)  # type: ignore[arg-type]  # names of settings
    settings, notes, told = _of_version(settings, sizes.defaults)
    if not settings.rules.batch_queues:
        settings, of_topics = dataclasses.replace(settings, batch_topics=named.batch_topics), []
    settings, of_ext, told_of_ext = queue_kinds.ext_as_store_shows(settings)
    settings, of_database, told_of_database = queue_kinds.database_as_store_shows(settings)
    told += [*told_of_ext, *told_of_database]
    return settings, [*sizes.notes, *of_topics, *notes, *of_ext, *of_database], [*sizes.warnings, *told]


def _of_topics(settings: BuildSettings) -> tuple[BuildSettings, list[str]]:
    """Return settings with the batch topics of the store's own topics.json, where nobody named a file, and a note on it.

    A broker does not start where that file and the folders of queues disagree (``ConsumeQueueStore.queueTypeShouldBe``).
    """
    store, asked = settings.store_folder, layouts.QUEUES in settings.only or settings.write_topics
    if not store or not asked or settings.is_named("batch_topics") or not settings.rules.batch_queues:
        return settings, []
    told = list[str]()
    try:
        topics = batch_topics_of(store, told)
    except InputError as error:
        return settings, [*told, f"{error}: batch topics are not known"]
    if not topics:
        return settings, told
    where = config_databases.topics_named(store)
    note = f"config/{where}: {counted(len(topics), 'batch topic')}, taken from the store: --topics-config names another file"
    return dataclasses.replace(settings, batch_topics=topics), [*told, note]


def _of_version(settings: BuildSettings, defaults: Sequence[str]) -> tuple[BuildSettings, list[str], list[str]]:
    """Return settings for the version that the files in STORE show, with notes on it, and warnings.

    A version that was named stays: a build may be for the broker of an upgrade. Where no file shows one, a note tells that with
    ``defaults``, the sizes that no file shows.
    """
    store, version = settings.store_folder, settings.broker_version
    signs = list[Sign]()
    if store:
        with contextlib.closing(StoreLog(settings.roots, Notes.silent())) as log:
            # The files may have other sizes than those that were named for the new ones.
            named = IndexSizes(settings.hash_slots, settings.index_items)
            signs = of_store(store, log, newest_index_sizes(index_files(store)) or named)
    fitting, named_version = fit(signs), settings.is_named("broker_version")
    notes, warnings = _defaults("" if named_version or signs else version, defaults), list[str]()
    why = ", ".join(sign.text for sign in signs)
    if named_version and version not in fitting.versions:
        fits = " or ".join(fitting.versions)
        warnings.append(
            f"{escape(store)}: its files fit RocketMQ {fits} ({why}): the build is for {version}, as --broker-version says"
        )
    elif signs and not named_version:
        fits = f"the newest of {listed(fitting.versions)} that fit" if len(fitting.versions) > 1 else "taken from"
        notes.append(f"version: {fitting.best}, {fits} the files ({why}): --broker-version names another")
        settings = dataclasses.replace(settings, broker_version=fitting.best)
    return settings, notes, warnings


def _defaults(version: str, sizes: Sequence[str]) -> list[str]:
    """Return the note on what was taken since nothing shows it: ``version``, if it is not "", and ``sizes``."""
    taken = [*([f"RocketMQ {version}"] if version else []), *sizes]
    options = [*(["--broker-version"] if version else []), *(["--broker-conf"] if sizes else [])]
    if not taken:
        return []
    return [f"defaults, since no file shows others: {', '.join(taken)}: give the broker's own by {' and '.join(options)}"]


# ------------------------------------------------------------------------------------------------------------------------ asked
# What was asked for is there: the log is one, each glob of topics matches some, and the limits leave records.

_ALL_THE_SAME = "--allow-empty builds it all the same"


def check_begins(settings: BuildSettings, segments: Sequence[ranges.Segment], chain: scan_chain.Chain) -> None:
    """Raise InputError where the first segment has no good record, and begins with none.

    Where good records follow in other segments, ``salvage`` builds from these, and what is in front is damage; else raises
    RefusedError.
    """
    if settings.allow_empty:
        return
    folders.check_is_log(segments, chain)
    if settings.on_damage != "salvage" and (fault := folders.foreign_log(segments, chain)):
        raise RefusedError(f"{fault}, and has none: put the right file in its place; --on-damage salvage passes over it")


def check_left(
    settings: BuildSettings,
    segments: Sequence[ranges.Segment],
    accepted: Sequence[ranges.RangeSummary],
    chain: scan_chain.Chain,
) -> None:
    """Raise InputError where a glob of topics matches none of them, or where the limits leave nothing of a log with records."""
    if settings.allow_empty:
        return
    read = sum(summary.records + summary.excluded for summary in accepted)
    if read:
        _check_globs(settings, accepted)
    if any(summary.records for summary in accepted):
        return
    if read:
        raise InputError(f"--exclude-topic: takes away every record of the log ({read:,}), so nothing is left: {_ALL_THE_SAME}")
    if settings.until_time != layouts.INT64_MAX and chain.later >= 0:
        raise InputError(
            f"--until-time: {show_time(settings.until_time)} lies before the log's first record"
            f"{_stored(segments, chain.later)}: nothing would be built: take milliseconds since 1970, or a time with its zone; "
            f"{_ALL_THE_SAME}"
        )
    begin = segments[0].start if segments else 0
    if settings.until_offset != layouts.INT64_MAX and segments and _has_record(segments[0]):
        raise InputError(
            f"--until-offset: the log begins at {begin}, and no record of it lies before {settings.until_offset}: nothing "
            f"would be built: {_ALL_THE_SAME}"
        )


def _check_globs(settings: BuildSettings, accepted: Sequence[ranges.RangeSummary]) -> None:
    of_ranges = [summary.unmatched_globs for summary in accepted]
    for option, globs in (("--include-topic", settings.include_topics), ("--exclude-topic", settings.exclude_topics)):
        for glob in globs:
            if any(unmatched is None or glob not in unmatched for unmatched in of_ranges):
                # It matches a topic, or a range is known from a run that did not note this.
                continue
            names = scan_settings.near(glob, (name for unmatched in of_ranges if unmatched for name in unmatched[glob]))
            such = f": did you mean {' or '.join(map(escape, names[:NEAR_MAX]))}?" if names else ""
            raise InputError(f"{option} {escape(glob)}: matches no topic of the log{such}")


def _stored(segments: Sequence[ranges.Segment], offset: int) -> str:
    """Return when the record at ``offset`` was stored, in words; "" where that cannot be read."""
    message = _message(segments, offset)
    return f", stored at {show_time(message.store_time)}" if message else ""


def _has_record(segment: ranges.Segment) -> bool:
    return _message([segment], segment.start) is not None


def _message(segments: Sequence[ranges.Segment], offset: int) -> Message | None:
    segment = next((candidate for candidate in segments if candidate.start <= offset < candidate.data_end), None)
    if segment is None:
        return None
    with contextlib.closing(files.Pages(segment.path)) as pages:
        message = message_at(pages, segment.start, offset)
    return message if isinstance(message, Message) else None


# ---------------------------------------------------------------------------------------------------------------------- notices
# Warnings about what is asked for, and about what the log holds, from the counts of its ranges.

NAMES_LISTED = 20
_NO_CUT: Final = (r.REASONS[r.BAD_TOPIC], r.REASONS[r.BAD_QUEUE], r.REASONS[r.BAD_POSITION], scan_chain.MISNAMED)
"""how the reasons begin that a broker does not check (``CommitLog.checkMessageAndReturnSize``, 5.3): it reads on after them"""


def of_settings(settings: BuildSettings) -> Iterator[str]:
    """Yield a warning for each setting whose result a broker may not use as one expects."""
    if "index" in settings.only and "checkpoint" not in settings.only:
        yield "index without checkpoint: with an older checkpoint the next crash deletes it: take --only index,checkpoint"
    if (
        settings.accelerated
        and "checkpoint" in settings.only
        and settings.rules.checkpoint_fields < len(checkpoints.CHECKPOINT_LAYOUT.columns)
    ):
        yield (
            "--broker-conf: has enableAcceleratedRecovery=true: after a crash a 5.5 broker does not load a store with this "
            "checkpoint: for 5.5 give --broker-version 5.5"
        )
    if settings.partial and layouts.QUEUES in settings.only:
        yield "a partial build beside the full log: a broker re-dispatches only records above the newest unit"


def of_tables(settings: BuildSettings) -> Iterator[str]:
    """Yield a note where ``--tables`` has less than it has with Spark."""
    if settings.tables and not settings.keeps_rows:
        yield "--tables: keeps what is known of the log; --engine local writes no rows of Delta tables"


def unmarked_batches(settings: BuildSettings, accepted: list[ranges.RangeSummary]) -> tuple[int, list[str]]:
    """Return in how many records there are inner batches of topics that nobody called batch topics, and a warning of them.

    It comes first, since their offsets then jump.
    """
    count = sum(s.inner_batches for s in accepted)
    if not count or layouts.QUEUES not in settings.only or not settings.rules.batch_queues:
        return 0, []
    warning = (
        f"inner batches in {counted(count, 'record')}: their topics have batch ConsumeQueues (queue.type=BatchCQ), but get "
        "plain units, on which no broker with such topics starts: give --topics-config"
    )
    return count, [warning]


def broker_cuts(settings: BuildSettings, segments: list[ranges.Segment], holes: list[ranges.Hole]) -> Iterator[str]:
    """Yield a warning of salvaged damage where a broker that starts cuts its log (``CommitLog.recoverNormally``, 5.3).

    ``IndexService.buildIndex`` passes over records below the end of the last IndexFile: what was built from beyond the cut
    then keeps new keys out.
    """
    cut, first = first_cut(settings.rules, segments, holes), COPIED if is_copied(segments) else f"{REPAIR} (rmq-reindex repair)"
    if cut >= 0 and settings.on_damage == "salvage":
        yield (
            f"damage at offset {cut}: a broker that starts cuts its log there, and takes no new keys into this index "
            f"until the log has grown past its old end: keep a copy of the log, and for a broker {first}, "
            f"or build with --until-offset {cut}, which {stopped(cut)}"
        )


def first_cut(rules: versions.VersionRules, segments: Sequence[ranges.Segment], holes: Iterable[ranges.Hole]) -> int:
    """Return the offset where a broker that starts cuts a log with this damage; -1 where it does not."""
    looked_at = segments[-rules.recovered_segments :]
    damaged = (hole.offset for hole in holes if not hole.reason.startswith(_NO_CUT))
    return min((offset for offset in damaged if looked_at and offset >= looked_at[0].start), default=-1)


def fillers(accepted: Iterable[ranges.RangeSummary]) -> str:
    """Return what to say of a log that a repair has put fillers in; "" where it has none."""
    stretches = [length for summary in accepted for _, length in summary.lost]
    if not stretches:
        return ""
    return f"{counted(sum(stretches), 'byte')} of the log are fillers of a repair: what was there is lost"


def of_counts(settings: BuildSettings, accepted: list[ranges.RangeSummary]) -> list[str]:
    """Return warnings of records that are built in another way than one may expect."""
    warnings = list[str]()
    warn = warnings.append
    if text := fillers(accepted):
        warn(text)
    for name in sorted({name for s in accepted for name in s.unusual_names})[:NAMES_LISTED]:
        warn(f"topic {escape(name)}: a name that RocketMQ's TopicValidator refuses; built all the same")
    refused, empty = sum(s.batches_refused for s in accepted), sum(s.batches_empty for s in accepted)
    if refused:
        warn(f"{counted(refused, 'record')} of batch topics without a unit, as by the broker: INNER_NUM or INNER_BASE below 0")
    if empty:
        what = "as by the broker, which forgets what follows it" if settings.queue_order == "broker" else "left out"
        warn(f"{counted(empty, 'unit')} of batch queues without a message (INNER_NUM 0): {what}")
    slash, malformed = sum(s.lmq_slash for s in accepted), sum(s.lmq_malformed for s in accepted)
    no_file, again = sum(s.lmq_no_file for s in accepted), sum(s.lmq_again for s in accepted)
    if slash:
        what = counted(slash, "dispatch", "dispatches")
        warn(f"skipped {what} to LMQ names that hold a '/' (as the broker does) or are batch topics")
    if no_file:
        what = counted(no_file, "dispatch", "dispatches")
        warn(
            f"skipped {what} to LMQ names that are no plain file name (control characters, '..', more than 255 "
            "bytes): a broker makes what files it can of them; their records keep their own units and items"
        )
    if again:
        warn(
            f"{counted(again, 'time')} a record names a light queue again: one unit each, as by the broker, whose counter "
            "skips an offset then"
        )
    if malformed:
        warn(f"skipped the LMQ dispatch of {counted(malformed, 'record')}: offsets are no numbers or too few")
    return warnings
