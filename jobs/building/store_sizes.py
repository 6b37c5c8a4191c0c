"""Sizes of the files beside the log in STORE: a build makes files of the same sizes, or says what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.sizes import FileSizes, index_files, index_sizes, queue_files
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.header import file_size
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.udfs import files

LOOKED_AT = (20, 2)
"""So many topics, and queues of each. Behind a URI each costs a request or two:"""
LOOKED_AT_REMOTE = (4, 1)
OTHERS_LISTED = 3
_QUEUES = (
    ("cq_file_size", "consumequeue", UNIT_SIZE),
    ("batch_cq_file_size", "batchconsumequeue", BATCH_UNIT_SIZE),
)  # fmt: skip


def check_sizes(settings: BuildSettings) -> list[str]:
    """Return warnings of files in STORE of other sizes than a build makes.

    Raises InputError where nobody named the build's sizes: a broker does not start on ConsumeQueue files of another size, and
    finds nothing in such IndexFiles.
    """
    store, warnings, refused = settings.store_folder, list[str](), list[str]()
    if store and "consumequeue" in settings.only:
        for name, folder, unit in _QUEUES:
            warnings += _check_queues(settings, files.join(store, folder), name, unit, refused)
    if store and "index" in settings.only:
        warnings += _check_index(settings, store, refused)
    if refused:
        raise InputError("; ".join(refused))
    return warnings


def _check_queues(settings: BuildSettings, folder: str, name: str, unit: int, refused: list[str]) -> list[str]:
    size, option = getattr(settings, name), f"--{name.replace('_', '-')}"
    found = FileSizes(queue_files(folder, *(LOOKED_AT_REMOTE if files.is_remote(folder) else LOOKED_AT)), unit)
    if found.usual and found.usual != size:
        text = f"{escape(folder)}: has files of {found.usual} bytes, a build makes files of {size}"
        if not settings.is_named(name):
            refused.append(f"{text}: give {option} {found.usual} (or {option} {size}, if the broker's setting has changed)")
            return []
        return [f"{text}, as {option} says: a broker starts on files of its own setting alone"]
    if found.usual and found.others:
        return [f"{escape(folder)}: beside files of {size} bytes has others ({_few(found.others)} bytes): {option} is {size}"]
    return []


def _check_index(settings: BuildSettings, store: str, refused: list[str]) -> list[str]:
    sizes = settings.hash_slots, settings.index_items
    found = index_files(store)
    counted = Counter(entry.size for entry in found if entry.size)
    usual, size = _usual(counted), file_size(*sizes)
    if not usual:
        return []
    where, options = escape(files.join(store, "index")), "--hash-slots {} --index-items {}"
    if usual != size:
        text = f"{where}: has files of {usual} bytes, a build makes files of {size}"
        if settings.is_named("hash_slots") or settings.is_named("index_items"):
            return [f"{text}, as {options.format(*sizes)} says: a broker finds nothing in files of other settings"]
        shown = index_sizes([entry for entry in found if entry.size == usual], look_into=False)
        wanted = options.format(*shown) if shown else "--hash-slots and --index-items as in broker.conf"
        refused.append(f"{text}: give {wanted} (or {options.format(*sizes)}, if the broker's settings have changed)")
        return []
    if len(counted) > 1:
        others = sorted(counted.keys() - {usual})
        return [f"{where}: beside files of {size} bytes has others ({_few(others)} bytes): {options.format(*sizes)}"]
    return []


def _usual(counted: Counter[int]) -> int:
    """Returns the most frequent size of those that an IndexFile can have; 0 for none: a torn file says nothing."""
    fitting = {size: count for size, count in counted.items() if size >= file_size(1, 2) and size % 4 == 0}
    return max(fitting, key=lambda size: (fitting[size], size), default=0)


def other_sizes(store: str, parts: Collection[str], sizes: Mapping[str, int]) -> list[str]:
    """Return warnings of ``parts`` of a store whose files have other sizes than the new files (``sizes``)."""
    warnings = []
    for name, part, unit in _QUEUES:
        folder = files.join(store, part)
        usual = FileSizes(queue_files(folder, *LOOKED_AT), unit).usual if part in parts else 0
        if usual not in (0, sizes[name]):
            warnings.append(
                f"{escape(folder)}: had files of {usual} bytes, the build has files of {sizes[name]}: a broker starts on "
                "files of its own setting alone"
            )
    usual = _usual(Counter(entry.size for entry in index_files(store))) if "index" in parts else 0
    size = file_size(sizes["hash_slots"], sizes["index_items"])
    if usual not in (0, size):
        warnings.append(
            f"{escape(files.join(store, 'index'))}: had files of {usual} bytes, the build has files of {size}: a broker finds "
            "nothing in files of other settings"
        )
    return warnings


def _few(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:OTHERS_LISTED])) + (", ..." if len(sizes) > OTHERS_LISTED else "")
