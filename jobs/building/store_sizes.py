"""Sizes of the files beside the log in STORE: a build makes files of the same sizes, or says what differs.

Files that agree say what the broker's settings are, where nobody named them. A file that stands alone may be torn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.sizes import QUEUES, FileSizes, index_files, index_sizes, sampled_sizes
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.header import file_size
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files

OTHERS_LISTED = 3
_KINDS: Final = {"cq_file_size": "ConsumeQueue files", "batch_cq_file_size": "batch ConsumeQueue files"}


@dataclass
class Sizes:
    """What the files in STORE say of the sizes that a build makes."""

    taken: dict[str, int] = field(default_factory=dict)
    """sizes that nobody named, by the names of settings"""
    notes: list[str] = field(default_factory=list)
    """what was taken"""
    warnings: list[str] = field(default_factory=list)
    """files of other sizes than those that were named"""
    refused: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)
    """sizes that neither the user nor a file shows, in words"""


def look_at_sizes(settings: BuildSettings) -> Sizes:
    """Return what the files in STORE say of the sizes that a build makes.

    Raises InputError where nobody named the build's sizes, and the files do not show them for certain, or --broker-conf has
    others: a broker does not start on ConsumeQueue files of another size, and finds nothing in such IndexFiles.
    """
    store, sizes = settings.store_folder, Sizes()
    if "consumequeue" in settings.only:
        for name, folder, unit in QUEUES:
            _look_at_queues(settings, store, (name, folder, unit), sizes)
    if "index" in settings.only:
        _look_at_index(settings, store, sizes)
    if sizes.refused:
        raise InputError("; ".join(sizes.refused))
    return sizes


def _look_at_queues(settings: BuildSettings, store: str, kind: tuple[str, str, int], sizes: Sizes) -> None:
    name, part, unit = kind
    size, option = getattr(settings, name), f"--{name.replace('_', '-')}"
    folder = files.join(store, part)
    found = sampled_sizes(folder, unit) if store else FileSizes((), unit)
    if not found.usual and _is_default(settings, name):
        sizes.defaults.append(f"{_KINDS[name]} of {counted(size // unit, 'unit')}")
    if found.usual and found.usual != size:
        text = f"{escape(folder)}: has files of {found.usual:,} bytes, a build makes files of {size:,}"
        if settings.is_named(name):
            sizes.warnings.append(f"{text}, as {option} says: a broker starts on files of its own setting alone")
            return
        if settings.broker_conf or not found.is_certain:
            wanted = f"give {option} {found.usual} (or {option} {size}, if the broker's setting has changed)"
            sizes.refused.append(f"{text}: {wanted}")
            return
        sizes.taken[name] = size = found.usual
        sizes.notes.append(f"{files.base(folder)}: files of {size:,} bytes, taken from the files")
    if found.usual and found.others:
        sizes.warnings.append(
            f"{escape(folder)}: beside files of {size:,} bytes has others ({_few(found.others)} bytes): {option} is {size}"
        )


def _look_at_index(settings: BuildSettings, store: str, sizes: Sizes) -> None:
    made = settings.hash_slots, settings.index_items
    found = index_files(store) if store else []
    by_size = Counter(entry.size for entry in found if entry.size)
    usual, size = _usual(by_size), file_size(*made)
    if not usual:
        if _is_default(settings, "hash_slots") and _is_default(settings, "index_items"):
            sizes.defaults.append("IndexFiles of {:,} slots and {:,} items".format(*made))
        return
    where, options = escape(files.join(store, "index")), "--hash-slots {} --index-items {}"
    if usual != size:
        text = f"{where}: has files of {usual:,} bytes, a build makes files of {size:,}"
        if settings.is_named("hash_slots") or settings.is_named("index_items"):
            sizes.warnings.append(f"{text}, as {options.format(*made)} says: a broker finds nothing in files of other settings")
            return
        shown = index_sizes([entry for entry in found if entry.size == usual], look_into=False)
        if settings.broker_conf or shown is None:
            wanted = options.format(*shown) if shown else "--hash-slots and --index-items as in broker.conf"
            sizes.refused.append(f"{text}: give {wanted} (or {options.format(*made)}, if the broker's settings have changed)")
            return
        made, size = shown, usual
        sizes.taken |= dict(zip(("hash_slots", "index_items"), made, strict=True))
        sizes.notes.append("index: {:,} slots and {:,} items a file, taken from the files".format(*made))
    if len(by_size) > 1:
        others = sorted(by_size.keys() - {usual})
        sizes.warnings.append(
            f"{where}: beside files of {size:,} bytes has others ({_few(others)} bytes): {options.format(*made)}"
        )


def _is_default(settings: BuildSettings, name: str) -> bool:
    """Whether a size that matters is nobody's choice. What a --broker-conf leaves out has the broker's default."""
    needed = name != "batch_cq_file_size" or bool(settings.batch_topics)
    return needed and not settings.broker_conf and not settings.is_named(name)


def _usual(by_size: Counter[int]) -> int:
    """Returns the most frequent size of those that an IndexFile can have; 0 for none: a torn file says nothing."""
    fitting = {size: count for size, count in by_size.items() if size >= file_size(1, 2) and size % 4 == 0}
    return max(fitting, key=lambda size: (fitting[size], size), default=0)


def other_sizes(store: str, parts: Collection[str], sizes: Mapping[str, int]) -> list[str]:
    """Return warnings of ``parts`` of a store whose files have other sizes than the new files (``sizes``)."""
    warnings = []
    for name, part, unit in QUEUES:
        folder = files.join(store, part)
        usual = sampled_sizes(folder, unit).usual if part in parts else 0
        if usual not in (0, sizes[name]):
            warnings.append(
                f"{escape(folder)}: had files of {usual:,} bytes, the build has files of {sizes[name]:,}: a broker starts on "
                "files of its own setting alone"
            )
    usual = _usual(Counter(entry.size for entry in index_files(store))) if "index" in parts else 0
    size = file_size(sizes["hash_slots"], sizes["index_items"])
    if usual not in (0, size):
        warnings.append(
            f"{escape(files.join(store, 'index'))}: had files of {usual:,} bytes, the build has files of {size:,}: a broker "
            "finds nothing in files of other settings"
        )
    return warnings


def _few(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes[:OTHERS_LISTED]) + (", ..." if len(sizes) > OTHERS_LISTED else "")
