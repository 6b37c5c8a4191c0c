"""Whether a build writes ``consumequeue_ext``, of what size its files are, and by which registrations it sets bits."""

from __future__ import annotations

import dataclasses

import numpy as np

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.command.broker_conf import unread
from rocketmq_reindex.jobs.command.option import CqExt
from rocketmq_reindex.jobs.store.fitting import LOOKED_AT, LOOKED_AT_REMOTE, UsualSizes, queue_files
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format import errors, layouts
from rocketmq_reindex.storage_format.queue import extended
from rocketmq_reindex.storage_format.queue.units import CONSUMERS, END_BLANK, ERROR_RATE, EXT_SIZE_MIN
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.storage_format.versions import VERSIONS
from rocketmq_reindex.udfs.scan.extended import FILTERS, stored_filters

Told = tuple[BuildSettings, list[str], list[str]]
"""settings, notes, and warnings"""
OLDEST = VERSIONS[-1]
_HEAD = 1 << 10
"""bytes of a file that are looked at: its first units"""


def as_store_shows(settings: BuildSettings) -> Told:
    """Return settings for ``consumequeue_ext``: as the store's own files show, where nobody named them, with its registrations.

    Notes on what was taken follow, and warnings. Raises InputError for registrations that cannot be read, and for files too
    small for a unit.
    """
    if not settings.makes_files:
        return dataclasses.replace(settings, cq_ext="none"), [], []
    settings, notes, warnings = _of_files(settings)
    if settings.cq_ext == "none":
        return settings, notes, warnings
    filters = extended.ConsumerFilters()
    if settings.cq_ext == "bitmap":
        filters, of_filters = registrations(settings, settings.store_folder)
        notes += of_filters
        warnings += [f"{FILTERS}: {note}" for note in filters.notes]
    size = EXT_SIZE_MIN + filters.bits // 8 + END_BLANK
    if settings.cq_ext_file_size < size:
        raise errors.InputError(
            f"--cq-ext-file-size {settings.cq_ext_file_size}: one unit of consumequeue_ext takes {size:,} bytes of a file"
        )
    return dataclasses.replace(settings, filters=filters), notes, warnings


def _of_files(settings: BuildSettings) -> Told:
    """Return settings as the files of ``consumequeue_ext`` in STORE show them."""
    decided = settings.is_named("cq_ext") or bool(settings.broker_conf)
    if not settings.store_folder or (decided and settings.cq_ext == "none"):
        return settings, [], []
    folder = files.join(settings.store_folder, layouts.EXT_QUEUES)
    entries = list(queue_files(folder, *(LOOKED_AT_REMOTE if files.is_remote(folder) else LOOKED_AT)))
    size = UsualSizes(entries, 1).usual
    if not size:
        return settings, [], []
    if settings.incremental:
        return settings, ["consumequeue_ext: --incremental builds none, so units have their tagsCodes themselves"], []
    notes, warnings = [], []
    if not decided:
        kind: CqExt = "bitmap" if any(_has_bits(entry) for entry in entries) else "plain"
        settings = dataclasses.replace(settings, cq_ext=kind)
        notes.append(f"consumequeue_ext: is there, so it is built as by --cq-ext {kind}: --cq-ext none leaves it out")
    if size != settings.cq_ext_file_size and (settings.broker_conf or settings.is_named("cq_ext_file_size")):
        warnings.append(
            f"{escape(folder)}: has files of {size:,} bytes, a build makes files of {settings.cq_ext_file_size:,}: a broker "
            "starts on files of its own setting alone"
        )
    elif size != settings.cq_ext_file_size:
        settings = dataclasses.replace(settings, cq_ext_file_size=size)
        notes.append(f"consumequeue_ext: files of {size:,} bytes, taken from the files")
    return settings, notes, warnings


def _has_bits(entry: files.Entry) -> bool:
    """Return whether one of the first units of a file has a bit map."""
    units = extended.read_ext_file(files.head(entry.path, _HEAD), 0)
    return bool(np.any(units.bit_map_size > 0))


def registrations(settings: StoreSettings, store: str, *, old: bool = False) -> tuple[extended.ConsumerFilters, list[str]]:
    """Return the registrations in the folder ``store``, and a note on them. Raises InputError where they cannot be read.

    ``old``: the broker may be a 4.9, whatever the settings say.
    """
    without = "so no unit has a bit map, and a broker filters by the log alone"
    bloom = None
    if settings.bloom_error_rate or settings.bloom_consumers:
        bloom = extended.BloomFilter.of(settings.bloom_error_rate or ERROR_RATE, settings.bloom_consumers or CONSUMERS)
    old, otherwise = old or settings.broker_version == OLDEST, "--cq-ext plain builds without bit maps"
    filters = stored_filters(store, bloom, old=old, otherwise=otherwise, unread=unread) if store else None
    if filters is None:
        return extended.ConsumerFilters(), [f"{FILTERS}: is not there, {without}"]
    groups = sum(map(len, filters.topics.values()))
    if not groups:
        return filters, [f"{FILTERS}: has no registration, {without}"]
    topics = counted(len(filters.topics), "topic")
    return filters, [f"{FILTERS}: {counted(groups, 'registration')} on {topics}: bit maps of {filters.bits:,} bits"]
