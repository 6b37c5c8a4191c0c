"""One preflight from beginning to end: list the folders, decide what loads, work out the start, say what is lost."""

from __future__ import annotations

import os
from typing import Final

from rocketmq_reindex.jobs.preflighting.commands import Commands
from rocketmq_reindex.jobs.preflighting.delivery import Delivery
from rocketmq_reindex.jobs.preflighting.folders import StoreFolders
from rocketmq_reindex.jobs.preflighting.losses import delivered, earlier_lives, losses, tail_cut
from rocketmq_reindex.jobs.preflighting.mapping import CHANGED, Maps
from rocketmq_reindex.jobs.preflighting.model import StoreFiles, start_settings
from rocketmq_reindex.jobs.preflighting.refused import refused
from rocketmq_reindex.jobs.preflighting.release import release_from
from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.preflighting.sizes import StoreSizes, sizes_of
from rocketmq_reindex.jobs.preflighting.spool import TemporarySpool
from rocketmq_reindex.jobs.preflighting.summary import PreflightSummary, plain, shallow
from rocketmq_reindex.jobs.store.first_bytes import no_record
from rocketmq_reindex.jobs.store.index_files import IndexSizes
from rocketmq_reindex.jobs.store.segments import meant_by
from rocketmq_reindex.jobs.store.settings import DELAY_LEVELS, parse_delay_levels
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.rocksdb import rocksdb_files
from rocketmq_reindex.storage_format.start.listing import FILE, Listing, first_change
from rocketmq_reindex.storage_format.start.loading import Loading, load
from rocketmq_reindex.storage_format.start.on_demand import OnDemand
from rocketmq_reindex.storage_format.start.predict import predict
from rocketmq_reindex.storage_format.start.prediction import Prediction, Refusal
from rocketmq_reindex.storage_format.told import Told
from rocketmq_reindex.storage_format.topics import BATCH_QUEUE

LOST: Final = 4
"""exit status of a start that loses or hides something, or does not come about"""


class Preflight:
    """State of one run; ``summary`` is true at every moment."""

    def __init__(self, settings: PreflightSettings, summary: PreflightSummary, told: Told) -> None:
        """``told`` is told how far the run is."""
        self._settings, self._summary, self._told = settings, summary, told
        self._maps = Maps()
        self._files = StoreFiles(settings.store, self._maps)
        self._folders = self._folders_of()
        summary.store, summary.release = escape(settings.store), settings.release

    def run(self) -> None:
        """Fill the summary. Raises InputError, OSError."""
        settings, summary = self._settings, self._summary
        listing = self._folders.listing()
        sizes = sizes_of(listing, settings.broker, settings.store, self._maps)
        summary.release_from = release_from(settings, IndexSizes(sizes.hash_slots, sizes.index_items))
        summary.abort = self._folders.has_abort() if settings.abort is None else settings.abort
        if settings.stands_for_another:
            summary.notes.append(f"RocketMQ {settings.broker_version}: the start of {settings.release} is worked out")
        summary.notes += [*settings.broker.notes, *sizes.notes]
        self._check_rocksdb()
        if not (listing.segments or listing.queues or listing.indexes):
            meant = meant_by(settings.store) or ": name the broker's store"
            raise InputError(f"{summary.store}: has no commitlog, no queue and no IndexFile{meant}")
        loading = load(listing, sizes.files, settings.release)
        start = start_settings(settings, summary.abort, sizes)
        summary.sizes = {
            "segment_size": start.segment_size, "cq_file_size": start.cq_file_size,
            "batch_cq_file_size": start.batch_cq_file_size, "hash_slots": start.hash_slots,
            "index_items": start.index_items, "recover_max_segments": start.recover_max_segments,
        }  # fmt: skip
        self._note(loading)
        refusals, delays = self._delays(loading.refusals)
        batch = BATCH_QUEUE in listing.queue_types.values()
        commands = Commands(settings, sizes, batch, start.lmq)
        if refusals:
            self._refuse(refusals, loading, commands, sizes)
        else:
            store = self._files.store(listing, loading, sizes)
            with TemporarySpool() as spool:
                found = predict(store, start, settings.count_limit, spool, self._told)
            if not found.loads:
                self._refuse(found.refusals, loading, commands, sizes)
            self._check_is_log(listing, found)
            delivery = Delivery(self._folders, self._files, listing, loading, store, settings, delays)
            self._fill(found, delivery, commands, start.message_index)
        summary.notes += self._folders.notes
        self._check_unchanged(listing)
        summary.exit = LOST if summary.losses else 0

    def _folders_of(self) -> StoreFolders:
        settings = self._settings
        timers = settings.broker.timer_wheel and not settings.release.startswith("4.")
        return StoreFolders(settings.store, settings.roots, timers)

    def _check_rocksdb(self) -> None:
        """Raises InputError for queues of RocksDB, whose start is another."""
        place = os.path.join(self._settings.store, "consumequeue")
        names = os.listdir(place) if os.path.isdir(place) else []
        found = rocksdb_files(name for name in names if not os.path.isdir(os.path.join(place, name)))
        if not found:
            return
        text = f"consumequeue: holds RocksDB's files ({escape(found[0])})"
        if not self._settings.broker.simple_queues:
            raise InputError(
                f"{text}: a broker with storeType=defaultRocksDB reads its queues there, and preflight does not know "
                "what its start does; if this broker has another storeType, say so in --broker-conf"
            )
        self._summary.notes.append(
            f"{text}, which a broker of this storeType does not read: it starts with the queues in folders"
        )

    def _check_is_log(self, listing: Listing, found: Prediction) -> None:
        """Raises InputError where a start keeps nothing of the log, and its first segment is none of RocketMQ."""
        log, segments = found.log, [one for one in listing.segments if one.kind == FILE]
        if log is None or log.max_offset > log.min_offset or log.cut_records > 0 or not segments:
            return
        if said := no_record(os.path.join(self._settings.store, min(segments, key=lambda one: one.name).path)):
            raise InputError(f"{said}: put the commitlog in its place")

    def _note(self, loading: Loading) -> None:
        notes = self._summary.notes
        if loading.odd:
            raise InputError(
                f"{escape(loading.odd[0])}: a broker takes this file by its name, which is not the offset of a file of its "
                f"size ({counted(len(loading.odd), 'such file')}): preflight does not know what it then does: move it away"
            )
        for path in loading.removed[:3]:
            notes.append(f"{escape(path)}: has no bytes: the start removes it")
        if loading.passed_over:
            more = f", and {len(loading.passed_over) - 1:,} more" if len(loading.passed_over) > 1 else ""
            notes.append(f"{escape(loading.passed_over[0])}{more}: a broker does not look at it")
        if self._settings.abort is not None and self._settings.abort != self._folders.has_abort():
            there = "has no" if self._settings.abort else "has a"
            notes.append(f"the store {there} file abort: this is the other case")

    def _delays(self, refusals: tuple[Refusal, ...]) -> tuple[tuple[Refusal, ...], tuple[int, ...]]:
        try:
            return refusals, parse_delay_levels(self._settings.broker.delay_levels or DELAY_LEVELS)
        except UsageError as error:
            # ScheduleMessageService.parseDelayLevel
            refusal = Refusal("delay-levels", "broker.conf", str(error).removeprefix("--delay-levels: "))
            return (*refusals, refusal), ()

    def _refuse(self, refusals: tuple[Refusal, ...], loading: Loading, commands: Commands, sizes: StoreSizes) -> None:
        self._summary.loads = False
        self._summary.refusals = [plain(refusal) for refusal in refusals]
        found = refused(refusals, loading, commands, self._settings.store, sizes.files.segment)
        self._summary.losses += [plain(loss) for loss in found]

    def _fill(self, found: Prediction, delivery: Delivery, commands: Commands, keeps_index: bool) -> None:
        summary = self._summary
        summary.loads = found.loads
        summary.notes += found.notes
        if not found.loads:
            return
        if found.dispatch is not None and found.dispatch.hidden_records < 0 and found.log is not None:
            summary.notes.append(
                f"the log in front of {escape(found.log.start_segment)} was not read: whether its records have units and items "
                f"is not known; --count-limit {found.log.max_offset - found.log.min_offset} reads it"
            )
        levels, timers = delivery.delayed(found), delivery.timers(found)
        if timers is not None and timers.lost:
            commands.take_timers(delivery.timer_files)
        lost = losses(found, commands, keeps_index, len(delivery.loading.segments))
        more, warned = delivered(levels, timers, commands)
        for name in ("log", "dispatch", "index"):
            part = getattr(found, name)
            setattr(summary, name, None if part is None else plain(part))
        summary.queues = OnDemand(len(found.queues), lambda number: shallow(found.queues[number]))
        summary.delayed = [plain(level) for level in levels]
        summary.timers = None if timers is None else plain(timers)
        summary.losses += [plain(loss) for loss in (*lost, *more)]
        summary.warnings = [plain(loss) for loss in (*tail_cut(found.log), *earlier_lives(found.queues), *warned)]

    def _check_unchanged(self, before: Listing) -> None:
        """Raises InputError where a file is another than it was at the beginning."""
        other = first_change(before, self._folders_of().listing())
        if other is not None and not any(refusal["kind"] == "lock-held" for refusal in self._summary.refusals):
            raise InputError(f"{escape(os.path.join(self._settings.store, other))}: {CHANGED}")
