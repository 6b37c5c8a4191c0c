"""What a build starts from: its folders, the log, and what lies beside it. All is checked once, before Spark is started."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from rocketmq_reindex.jobs.building.empty_log import check_segments
from rocketmq_reindex.jobs.building.planning import check_range_size
from rocketmq_reindex.jobs.building.running_broker import check_broker
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.building.store_sizes import look_at_sizes
from rocketmq_reindex.jobs.command.tables_place import check_place
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.store import rocksdb
from rocketmq_reindex.jobs.store.index_files import IndexSizes
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.segments import Commitlog, list_segments
from rocketmq_reindex.jobs.store.sizes import index_files, newest_index_sizes
from rocketmq_reindex.jobs.store.versions import of_store
from rocketmq_reindex.storage_format.checks.fitting import Sign, fit
from rocketmq_reindex.storage_format.names import escape


@dataclass(frozen=True)
class Inputs:
    """What was found before a build."""

    settings: BuildSettings
    """as they were given, with the sizes and the version that the files in STORE show, where nobody named them"""
    target: str
    """the real path of DIR"""
    log: Commitlog
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    """what was taken from the files"""
    passing: tuple[str, ...]
    """warnings that hold for the moment, such as that a broker may be running: they are not in the manifest"""


def look_at(settings: BuildSettings) -> Inputs:
    """Check the folders that a build is given, and list its log.

    Raises InputError for folders that cannot be used, a running broker, a log without segments, and sizes that do not fit, of
    files or of ranges.
    """
    # A wrong STORE is told before what stands at DIR.
    log = list_segments(settings.roots, settings.segment_size, may_be_short=settings.may_be_short)
    # An incremental run may know what it left in DIR.
    inputs, known = list(settings.inputs), settings.incremental
    overwrite = settings.overwrite if settings.may_overwrite else None
    target = output.check_places(inputs, settings.out, overwrite, may_lack_manifest=known)
    check_place(settings.tables, (settings.out, *settings.inputs))
    check_range_size(settings.range_size, log.size)
    passing = tuple(check_broker(settings))
    warnings = [
        *settings.conf_notes,
        *log.warnings,
        *check_segments(settings, log, target),
        *rocksdb.of_build(settings, settings.only),
    ]
    sizes = look_at_sizes(settings)
    settings = dataclasses.replace(settings, **sizes.taken)  # type: ignore[arg-type]  # names of settings
    settings, notes, told = _of_version(settings, sizes.defaults)
    return Inputs(settings, target, log, (*warnings, *sizes.warnings, *told), (*sizes.notes, *notes), passing)


def _of_version(settings: BuildSettings, defaults: Sequence[str]) -> tuple[BuildSettings, list[str], list[str]]:
    """Return settings for the version that the files in STORE show, with notes on it, and warnings.

    A version that was named stays: a build may be for the broker of an upgrade. Where no file shows one, a note tells that with
    ``defaults``, the sizes that no file shows.
    """
    store, version = settings.store_folder, settings.broker_version
    signs = list[Sign]()
    if store:
        with closing(StoreLog(settings.roots, Notes.silent())) as log:
            # The files may have other sizes than those that were named for the new ones.
            named = IndexSizes(settings.hash_slots, settings.index_items)
            signs = of_store(store, log, newest_index_sizes(index_files(store)) or named)
    found = fit(signs)
    if settings.is_named("broker_version"):
        if version in found.versions:
            return settings, _defaults("", defaults), []
        fits, why = " or ".join(found.versions), _why(signs)
        text = f"{escape(store)}: its files fit RocketMQ {fits} ({why}): the build is for {version}, as --broker-version says"
        return settings, _defaults("", defaults), [text]
    if not signs:
        return settings, _defaults(version, defaults), []
    fits = f"the newest of {' and '.join(found.versions)} that fit" if len(found.versions) > 1 else "taken from"
    taken = f"version: {found.best}, {fits} the files ({_why(signs)}): --broker-version names another"
    return dataclasses.replace(settings, broker_version=found.best), [*_defaults("", defaults), taken], []


def _why(signs: Sequence[Sign]) -> str:
    return ", ".join(sign.text for sign in signs)


def _defaults(version: str, sizes: Sequence[str]) -> list[str]:
    """Return the note on what was taken since nothing shows it: ``version``, if it is not "", and ``sizes``."""
    taken = [*([f"RocketMQ {version}"] if version else []), *sizes]
    options = [*(["--broker-version"] if version else []), *(["--broker-conf"] if sizes else [])]
    if not taken:
        return []
    return [f"defaults, since no file shows others: {', '.join(taken)}: give the broker's own by {' and '.join(options)}"]
