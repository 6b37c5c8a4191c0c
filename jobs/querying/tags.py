"""Find a tag where the index has no tag items: read those parts of the log.

Short parts are read record by record: what no broker has dispatched yet, and records without items between two IndexFiles. The
rest is scanned as the build does it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocketmq_reindex.jobs.store.log import FILLER, NOTHING, StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.tag_items import Part
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.text.java_string import tag_hash
from rocketmq_reindex.storage_format.told import Told

RECORDS_MAX: Final = 4096
"""records that are read one by one: more of them take longer than to load what scans"""


class UnindexedTag:
    """Records that may have a tag of a topic, in parts of a log. ``log_bytes``: how much of the log was, or is to be, read."""

    def __init__(self, log: StoreLog, topic: str, tag: str, parts: Sequence[Part]) -> None:
        self._log, self._topic, self._tag = log, topic, tag
        self._found: set[int] = set()
        self._long: list[Part] = []
        self.log_bytes = 0
        for part in parts:
            self._walk(part)
        self.log_bytes += sum(part.high - part.low for part in self._long)

    def phy_offsets(self, notes: Notes, told: Told) -> set[int]:
        """Physical offsets of the records; those that were scanned may have another tag with the same hash."""
        if not self._long:
            return self._found
        from rocketmq_reindex.jobs.querying.scan import scan_log

        found = scan_log(self._log, [self._topic], lambda topic: tag_hash(topic, self._tag), notes, told, self._long)
        return self._found | found

    def _walk(self, part: Part) -> None:
        """Read the records of a part; what is long or damaged is left to the scan."""
        at = part.low
        for _ in range(RECORDS_MAX):
            if at >= part.high:
                return
            message = self._log.message(at)
            if isinstance(message, Message):
                if message.is_indexed and message.has_tag(self._topic, self._tag):
                    self._found.add(at)
                self.log_bytes += message.size
                at += message.size
            elif message == FILLER:
                at = next((segment.start for segment in self._log.segments if segment.start > at), part.high)
            elif message == NOTHING and self._is_end(at, part):
                return
            else:
                break
        self._long.append(Part(at, part.high))

    def _is_end(self, at: int, part: Part) -> bool:
        """Whether zeros are the log's end: behind the last record with items, in the last segment or one of zeros before it.

        A broker allocates the next segment ahead.
        """
        later = [segment.start for segment in self._log.segments if segment.start > at]
        behind_items = part.low > self._log.start and part.high == self._log.end
        return behind_items and all(self._log.message(start) == NOTHING for start in later)
