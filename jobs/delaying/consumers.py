"""A backup's config/consumerOffset.json, checked against the queues that were built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.jobs.building.summary import Summary
from rocketmq_reindex.jobs.publishing.layout import CONSUMER_OFFSETS
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.file_names import first_byte
from rocketmq_reindex.storage_format.integers import INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.names import escape, path_component
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.queue.units import PRE_BLANK_SIZE, UNIT_LAYOUT, UNIT_SIZE
from rocketmq_reindex.storage_format.text import fast_json
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

NAMED: Final = 20
"""Groups that are named one by one."""
_BYTES_MAX: Final = 256 << 20


def given(path: str) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of the file at ``path``, and its bytes; both are empty for "".

    Raises InputError for what is no consumerOffset.json.

    ``ConsumerOffsetManager`` (4.9 to 5.5): {"offsetTable": {"topic@group": {queue id: offset}}}. fastjson leaves queue ids
    without quotes.
    """
    if not path:
        return {}, b""
    try:
        data = files.read_bytes(path, _BYTES_MAX)
        found = fast_json.loads(data.decode("utf-8", "replace"))
        for _ in _offsets(found):
            pass
    except OSError as error:
        raise InputError(f"--consumer-offsets {escape(path)}: {escape(error.strerror or str(error))}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        kept = f"{path}.bak"
        # ConfigManager.load: a file that was cut by a crash is passed over, and the one before it is read.
        instead = kept if files.entry_of(kept).kind == files.FILE else "that of a backup"
        raise InputError(f"--consumer-offsets {escape(path)}: is no consumerOffset.json: name {escape(instead)}") from None
    return dict(found), data


def _offsets(table: dict[str, Any]) -> Iterator[tuple[str, str, int, int]]:
    """(topic, group, queue id, offset) of each entry. Raises ValueError, KeyError, TypeError, AttributeError."""
    for name, offsets in table["offsetTable"].items():
        topic, _, group = name.partition("@")
        for queue, offset in offsets.items():
            if type(offset) is not int or not INT64_MIN <= offset <= INT64_MAX:
                raise ValueError("has no offset")
            yield topic, group, int(queue), offset


def check(table: dict[str, Any], staging: StagingFolder, summary: Summary) -> None:
    """Warn of each group whose offset is not one of its queue, as it was built into the tree."""
    bounds: dict[tuple[str, int], tuple[int, int] | None] = {}
    found = 0
    for topic, group, queue, offset in _offsets(table):
        if (topic, queue) not in bounds:
            bounds[topic, queue] = _bounds(staging, topic, queue)
        known = bounds[topic, queue]
        if known is None:
            # A queue that never had a message has offset 0.
            what = "" if offset == 0 else "the log has no message of that queue"
        else:
            low, high = known
            what = f"the queue begins at {low}" if offset < low else ""
            if offset > high:
                what = f"the queue ends at {high}: set it to that, else the group misses what is sent next"
        found += bool(what)
        if what and found <= NAMED:
            summary.warn(
                f"{CONSUMER_OFFSETS}: group {escape(group)} stands at offset {offset} of {escape(topic)}/{queue}: {what}"
            )
    if found > NAMED:
        summary.warn(f"{CONSUMER_OFFSETS}: {counted(found - NAMED, 'more offset')} outside of their queues")


def _bounds(staging: StagingFolder, topic: str, queue: int) -> tuple[int, int] | None:
    """The first queue offset and the end of a queue in the tree; None for none."""
    name = path_component(topic)
    folder = files.join(staging.tree, f"consumequeue/{name}/{queue}")
    if name is None or files.entry_of(folder).kind != files.FOLDER:
        return None
    names = sorted(found for found in files.names(folder) if first_byte(found) is not None)
    if not names:
        return None
    first = last = _sizes(files.join(folder, names[0]))
    if len(names) > 1:
        last = _sizes(files.join(folder, names[-1]))
    real, end = np.flatnonzero((first != 0) & (first != PRE_BLANK_SIZE)), np.flatnonzero(last)
    low, high = int(names[0]) // UNIT_SIZE, int(names[-1]) // UNIT_SIZE
    return low + (int(real[0]) if len(real) else np.count_nonzero(first)), high + (int(end[-1]) + 1 if len(end) else 0)


def _sizes(path: str) -> npt.NDArray[np.int32]:
    """The size that each unit of a file has."""
    with files.Reader(path) as reader:
        data = reader.whole()
    return data[: len(data) // UNIT_SIZE * UNIT_SIZE].view(UNIT_LAYOUT.dtype)["size"].astype(np.int32)
