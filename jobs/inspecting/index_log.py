"""What the log beside an IndexFile says of its items: which key or tag each one stands for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from rocketmq_reindex.jobs.store.index_files import IndexSizes, OpenIndexFile
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.tag_items import Part, part_with_tag_items
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.text.java_string import key_hash, tag_hash
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.pages import Pages

UNIQUE_KEY: Final = "unique key"
KEY: Final = "key"
TAG: Final = "tag"


class ItemText(NamedTuple):
    """``of`` is UNIQUE_KEY, KEY or TAG; both are None where the log does not say."""

    of: str | None
    text: str | None


@contextlib.contextmanager
def log_beside(path: str) -> Iterator[StoreLog | None]:
    """The log of the store in whose folder ``index`` the file lies; None where there is none."""
    folder = files.join(files.parent(files.parent(path)), "commitlog")
    if files.entry_of(folder).kind != files.FOLDER:
        yield None
        return
    log = StoreLog([folder], Notes(_pass_over))
    try:
        yield log
    finally:
        log.close()


def tag_part(path: str, sizes: tuple[int, int]) -> Part | None:
    """The part of the log whose records have tag items in this file; None where none are found."""
    with log_beside(path) as log:
        if log is None:
            return None
        pages = Pages(path)
        try:
            return part_with_tag_items(OpenIndexFile(path, pages, IndexSizes(*sizes)), log)
        finally:
            pages.close()


class ItemTexts:
    """The texts behind items that are asked for in the order of their file."""

    def __init__(self, log: StoreLog | None) -> None:
        self._log = log
        self._phy_offset = -1
        self._left: list[tuple[int, ItemText]] = []

    def of(self, hashed: int, phy_offset: int) -> ItemText:
        """The key or tag of the record with this hash that no item before this one stands for."""
        if phy_offset != self._phy_offset:
            self._phy_offset = phy_offset
            message = self._log.message(phy_offset) if self._log is not None and phy_offset >= 0 else ""
            self._left = _texts(message) if isinstance(message, Message) else []
        found = next((one for one in self._left if one[0] == hashed), None)
        if found is None:
            return ItemText(None, None)
        self._left.remove(found)
        return found[1]


def _texts(message: Message) -> list[tuple[int, ItemText]]:
    """What a broker puts of a record, in its order (``IndexService.buildIndex``)."""
    topic = message.topic
    found = (
        [] if message.unique_key is None else [(key_hash(topic, message.unique_key), ItemText(UNIQUE_KEY, message.unique_key))]
    )
    found += [(key_hash(topic, key), ItemText(KEY, key)) for key in message.keys]
    return found + ([(tag_hash(topic, message.tags), ItemText(TAG, message.tags))] if message.tags else [])


def _pass_over(_text: str) -> None:
    """Takes notes that are none of the file's."""
