"""What a store shows beside its log: a running broker, an unclean stop, sizes of files; and samples of the log."""

import contextlib
import dataclasses
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.fitting import (
    LOOKED_AT,
    QUEUES,
    UsualSizes,
    index_files,
    index_sizes,
    queue_files,
    sampled_sizes,
)
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.owner import LOCK, holder, read_times
from rocketmq_reindex.jobs.store.queue import FileUnits, StoreQueue, behind_log
from rocketmq_reindex.jobs.store.settings import Commitlog, StoreSettings
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.checkpoints import Checkpoint
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.layout import file_size
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.ranges import RangeSummary, Segment
from rocketmq_reindex.storage_format.showing import counted, escape, listed

# ------------------------------------------------------------------------------------------------------------------ log_samples
# Stretches of the log that a build was made from, with their digests: by them ``fetch`` knows the log again.
#
# Names of segments prove nothing: those of all brokers are multiples of one size. So the manifest has pages of 4 KiB: the first
# page of segments all over the log, and pages of the segment in which the log ends. The last one ends with the last record. A
# log that has grown since still has them all, and one whose first segments have expired still has the others.

PAGE: Final = 4096
_SEGMENTS: Final = 32
_LAST_PAGES: Final = 16
_THREADS: Final = 8
"""a request to a bucket takes as long for a page as for a byte"""


def log_samples(segments: Sequence[Segment], accepted: Sequence[RangeSummary]) -> dict[str, Any]:
    """Return the manifest's ``log``: ``end``, the offset behind the last record, and ``samples`` of what lies before it.

    A sample is {"offset", "length", "digest"}: an absolute offset, bytes, and their digest. ``accepted`` are the ranges that a
    build uses. Raises OSError and InputError where the log cannot be read.
    """
    last = max((summary.last_good for summary in accepted), default=-1)
    number = next((k for k, segment in enumerate(segments) if segment.start <= last < segment.data_end), -1)
    if number < 0:
        return {"end": 0, "samples": []}
    holder = segments[number]
    end = end_of(holder, last)
    spans = [(segments[k], segments[k].start) for k in spread(number, _SEGMENTS)]
    reach = max(holder.start, end - PAGE)
    spans += [(holder, holder.start + (reach - holder.start) * k // _LAST_PAGES) for k in range(_LAST_PAGES + 1)]
    wanted = {low: (segment, min(low + PAGE, end, segment.data_end)) for segment, low in spans}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="samples") as pool:
        samples = list(pool.map(lambda low: _sample(*wanted[low], low), sorted(wanted)))
    return {"end": end, "samples": samples}


def spread(last: int, count: int) -> list[int]:
    """Return at most ``count`` numbers from 0 to ``last``, both among them, evenly spread."""
    return sorted({last * k // (count - 1) for k in range(count)})


def end_of(segment: Segment, record: int) -> int:
    """Return the offset behind the good record that begins at the offset ``record``. Raises OSError, InputError."""
    with files.Reader(segment.path) as reader:
        size = int.from_bytes(reader.read(record - segment.start, 4), "big", signed=True)
    return min(record + max(size, r.HEADER_SIZE), segment.data_end)


def _sample(segment: Segment, high: int, low: int) -> dict[str, Any]:
    # Brings numpy, which a look at a store does not need.
    from rocketmq_reindex.files.digests import digest_of

    with files.Reader(segment.path) as reader:
        return {"offset": low, "length": high - low, "digest": digest_of(reader, segment.start, low, high)}


# --------------------------------------------------------------------------------------------------------------- running_broker
# A broker that runs on the store may change the log while it is read, so a build refuses. The store's lock shows it.

_OF_A_STORE: Final = (layouts.QUEUES, layouts.INDEX, layouts.CHECKPOINT, layouts.CONFIG, layouts.ABORT)


def check_broker(settings: BuildSettings) -> list[str]:
    """Return warnings. Raises InputError where a broker runs on the store; in a dry run that is a warning."""
    if settings.snapshot:
        return []
    running, unknown = brokers(settings)
    refused = [
        f"{text}: its log may change while it is read: stop it, or build from a copy; --snapshot says that it does not change"
        for text in running
    ]
    if refused and not settings.dry_run:
        raise InputError(refused[0])
    return refused + unknown


def brokers(settings: StoreSettings, more: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """Return a text for each store on which a broker runs, and for each where that cannot be known.

    ``more`` are further stores to look at.
    """
    running, unknown = [], []
    for store in dict.fromkeys(os.path.realpath(place) for place in (*_stores(settings), *more) if _is_here(place)):
        try:
            process = holder(store)
        except (OSError, InputError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else "is no regular file"
            unknown.append(f"{escape(os.path.join(store, LOCK))}: {reason}: whether a broker runs there is not known")
            continue
        if process is not None:
            who = f"process {process} holds {LOCK}" if process > 0 else f"{LOCK} is held"
            running.append(f"{escape(store)}: a broker runs on this store ({who})")
    return running, unknown


def _is_here(place: str) -> bool:
    return bool(place) and not files.is_remote(place)


def _stores(settings: StoreSettings) -> Iterator[str]:
    """Yield the folders where a running broker holds its lock: STORE, and what looks like a store around a log.

    The store of --broker-conf is left out: its broker may run while its log is read from a snapshot.
    """
    yield settings.store
    for root in filter(_is_here, settings.roots):
        for folder in (root.rstrip("/"), os.path.realpath(root)):
            around = os.path.dirname(folder)
            if os.path.basename(folder) == layouts.COMMITLOG or any(
                os.path.lexists(f"{around}/{name}") for name in _OF_A_STORE
            ):
                yield around


# ----------------------------------------------------------------------------------------------------------------- unclean_stop
# A file ``abort`` in STORE: the broker did not stop cleanly, and recovers from the checkpoint when it starts.


def old_checkpoint(settings: BuildSettings) -> Checkpoint | None:
    """Return STORE's own checkpoint, where a file ``abort`` lies there and a part is not built; None otherwise."""
    return old_of(settings.store_folder, settings.only) if settings.store_folder else None


def old_of(store: str, parts: Collection[str]) -> Checkpoint | None:
    """Return the same for a store that gets new ``parts``."""
    if layouts.CHECKPOINT not in parts or not unbuilt(parts):
        return None
    is_clean = files.entry_of(files.join(store, layouts.ABORT)).kind == files.ABSENT
    return None if is_clean else read_times(files.join(store, layouts.CHECKPOINT))


def unbuilt(parts: Collection[str]) -> list[str]:
    """Return the parts that stay as they are."""
    return [part for part in (layouts.QUEUES, layouts.INDEX) if part not in parts]


def bounded(checkpoint: Checkpoint, old: Checkpoint, parts: Collection[str]) -> Checkpoint:
    """Return a new checkpoint that promises no more than the ``old`` one for the parts that stay."""
    less = dataclasses.replace(
        checkpoint,
        physic=min(checkpoint.physic, old.physic),
        logics=min(checkpoint.logics, old.logics),
        index=checkpoint.index if layouts.INDEX in parts else min(checkpoint.index, old.index),
        logics_offset=min(checkpoint.logics_offset, old.logics_offset),
    )
    return less.loadable() if checkpoint.logics_offset else less


def vouched(settings: BuildSettings, checkpoint: Checkpoint) -> tuple[Checkpoint, list[str]]:
    """Return the checkpoint, and warnings.

    Where a file ``abort`` lies in STORE, it promises no more than STORE's own for what is not built.

    The next start of that broker is an abnormal one (``CommitLog.recoverAbnormally``, 5.3): it dispatches again from where the
    checkpoint says, and never gives a queue a unit that was lost from before.
    """
    old = old_checkpoint(settings)
    if old is None:
        return checkpoint, []
    warning = (
        f"{escape(settings.store_folder)}: has a file abort, so {listed(unbuilt(settings.only))} may lack what the "
        "broker had not written: the new checkpoint says no more of it than the old one, and the broker's next start "
        "dispatches again from there"
    )
    return bounded(checkpoint, old, settings.only), [warning]


# ------------------------------------------------------------------------------------------------------------------ store_sizes
# Sizes of the files beside the log in STORE: a build makes files of the same sizes, or says what differs.
#
# Files that agree say what the broker's settings are, where nobody named them. A file that stands alone may be torn.

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
    if settings.makes_files:
        for name, folder, unit in QUEUES:
            _look_at_queues(settings, store, (name, folder, unit), sizes)
    if layouts.INDEX in settings.only:
        _look_at_index(settings, store, sizes)
    if sizes.refused:
        raise InputError("; ".join(sizes.refused))
    return sizes


def _look_at_queues(settings: BuildSettings, store: str, kind: tuple[str, str, int], sizes: Sizes) -> None:
    name, part, unit = kind
    size, option = getattr(settings, name), f"--{name.replace('_', '-')}"
    folder = files.join(store, part)
    shown = sampled_sizes(folder, unit) if store else UsualSizes((), unit)
    if not shown.usual and _is_default(settings, name):
        sizes.defaults.append(f"{_KINDS[name]} of {counted(size // unit, 'unit')}")
    if shown.usual and shown.usual != size:
        text = f"{escape(folder)}: has files of {shown.usual:,} bytes, a build makes files of {size:,}"
        if settings.is_named(name):
            sizes.warnings.append(f"{text}, as {option} says: a broker starts on files of its own setting alone")
            return
        if settings.broker_conf or not shown.is_certain:
            wanted = f"give {option} {shown.usual} (or {option} {size}, if the broker's setting has changed)"
            sizes.refused.append(f"{text}: {wanted}")
            return
        sizes.taken[name] = size = shown.usual
        sizes.notes.append(f"{files.base(folder)}: files of {size:,} bytes, taken from the files")
    if shown.usual and shown.others:
        sizes.warnings.append(
            f"{escape(folder)}: beside files of {size:,} bytes has others ({_few(shown.others)} bytes): {option} is {size}"
        )


def _look_at_index(settings: BuildSettings, store: str, sizes: Sizes) -> None:
    made = settings.hash_slots, settings.index_items
    index = index_files(store) if store else []
    by_size = Counter(entry.size for entry in index if entry.size)
    usual, size = _usual(by_size), file_size(*made)
    if not usual:
        if _is_default(settings, "hash_slots") and _is_default(settings, "index_items"):
            sizes.defaults.append("IndexFiles of {:,} slots and {:,} items".format(*made))
        return
    where, options = escape(files.join(store, layouts.INDEX)), "--hash-slots {} --index-items {}"
    if usual != size:
        text = f"{where}: has files of {usual:,} bytes, a build makes files of {size:,}"
        if settings.is_named("hash_slots") or settings.is_named("index_items"):
            sizes.warnings.append(f"{text}, as {options.format(*made)} says: a broker finds nothing in files of other settings")
            return
        shown = index_sizes([entry for entry in index if entry.size == usual], look_into=False)
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


def names_lost_segments(settings: BuildSettings, log: Commitlog) -> list[str]:
    """Return a note where ConsumeQueues of STORE name messages behind the log's last segment. A few queues are looked into."""
    store, end = settings.store_folder, max((segment.segment_end for segment in log.segments), default=0)
    if not store or files.is_remote(store) or not end:
        return []
    last, reach, folder = -1, -1, ""
    # What cannot be read here ends no build: it may not need these files at all.
    with contextlib.suppress(OSError, InputError), contextlib.closing(StoreLog(settings.roots, Notes.silent())) as opened:
        for _, name, unit_size in QUEUES:
            queues = files.join(store, name)
            for path in {files.parent(entry.path) for entry in queue_files(queues, *LOOKED_AT)}:
                units = FileUnits(path, unit_size == BATCH_UNIT_SIZE, Notes.silent())
                with contextlib.closing(StoreQueue(units, opened, Notes.silent())) as queue:
                    unit = queue.last_unit()
                    if unit is not None and unit.kind == UNIT:
                        last, reach, folder = max((last, reach, folder), (unit.phy_offset, unit.phy_offset + unit.size, queues))
    return [behind_log(escape(folder), f"units up to {reach}", end)] if last >= end else []


def _is_default(settings: BuildSettings, name: str) -> bool:
    """Return whether a size that matters is nobody's choice. What a --broker-conf leaves out has the broker's default."""
    needed = name != "batch_cq_file_size" or bool(settings.batch_topics)
    return needed and not settings.broker_conf and not settings.is_named(name)


def _usual(by_size: Counter[int]) -> int:
    """Return the most frequent size of those that an IndexFile can have; 0 for none: a torn file says nothing."""
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
    usual = _usual(Counter(entry.size for entry in index_files(store))) if layouts.INDEX in parts else 0
    size = file_size(sizes["hash_slots"], sizes["index_items"])
    if usual not in (0, size):
        warnings.append(
            f"{escape(files.join(store, 'index'))}: had files of {usual:,} bytes, the build has files of {size:,}: a broker "
            "finds nothing in files of other settings"
        )
    return warnings


def _few(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes[:OTHERS_LISTED]) + (", ..." if len(sizes) > OTHERS_LISTED else "")
