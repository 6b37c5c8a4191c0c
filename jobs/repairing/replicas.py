"""List the segments of replicas and backups. What is wrong with one of them is no error: nothing is taken from it then."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs import files


def list_replicas(places: Sequence[str], log: Commitlog) -> list[list[Segment]]:
    """Return the segments of each replica, which are as long as those of the damaged ``log``.

    A place is a store, with its segments in commitlog/, or a folder of segments. Raises InputError for one that has none.
    """
    size = max((segment.segment_end - segment.start for segment in log.segments), default=0)
    return [_list(place, size) for place in places]


def _list(place: str, size: int) -> list[Segment]:
    inner = files.join(place, "commitlog")
    root = inner if files.entry_of(inner).kind == files.FOLDER else place
    if files.entry_of(root).kind != files.FOLDER:
        raise InputError(f"{escape(place)}: is no folder: --replica is a store, or a folder of segments")
    found = []
    for entry in sorted(files.listing(root), key=lambda entry: entry.name):
        start = first_byte(entry.name)
        if entry.kind == files.FILE and start is not None and entry.size <= size:
            found.append(Segment(entry.name, entry.path, start, start + entry.size, start + size))
    if not found:
        raise InputError(
            f"{escape(root)}: holds no segment of at most {size:,} bytes: --replica is a store, or a folder of segments"
        )
    return found
