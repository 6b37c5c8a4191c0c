"""Search a store, whole or broken: every way to ask for messages, each as an iterator of what is found."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing.layout import check_laid_out
from rocketmq_reindex.jobs.store import config_databases, folders, settings, tag_items
from rocketmq_reindex.jobs.store.contents import EXPIRED, NOTHING, IndexFiles, IndexSizes, RecordWalk, StoreLog
from rocketmq_reindex.jobs.store.queue import OffsetSpan, ServedMessage, StoreQueue, StoreQueues
from rocketmq_reindex.storage_format.errors import InputError, NoListener, ProgressListener
from rocketmq_reindex.storage_format.layouts import QUEUES, key_hash, tag_hash
from rocketmq_reindex.storage_format.record.meaning import OFFSET_ID, offset_of_id
from rocketmq_reindex.storage_format.record.message import Message
from rocketmq_reindex.storage_format.showing import counted, escape, near_in_words, redacted, shell

# ------------------------------------------------------------------------------------------------------------------------- tags
# Find a tag where the index has no tag items: read those parts of the log.
#
# Short parts are read record by record: what no broker has dispatched yet, and records without items between two IndexFiles.
# The rest is scanned as the build does it.

RECORDS_MAX: Final = 4096
"""records that are read one by one: more of them take longer than to load what scans"""


class UnindexedTag:
    """Records that may have a tag of a topic, in parts of a log. ``log_bytes``: how much of the log was, or is to be, read."""

    def __init__(self, log: StoreLog, topic: str, tag: str, parts: Sequence[tag_items.LogStretch]) -> None:
        self._log, self._topic, self._tag = log, topic, tag
        self._found: set[int] = set()
        self._long: list[tag_items.LogStretch] = []
        self.log_bytes = 0
        for part in parts:
            self._walk(part)
        self.log_bytes += sum(part.high - part.low for part in self._long)

    def phy_offsets(self, notes: folders.Notes, progress: ProgressListener) -> set[int]:
        """Return the physical offsets of the records; those that were scanned may have another tag with the same hash."""
        if not self._long:
            return self._found
        from rocketmq_reindex.jobs.querying.scan import scan_log

        scanned = scan_log(self._log, [self._topic], lambda topic: tag_hash(topic, self._tag), notes, progress, self._long)
        return self._found | scanned

    def _walk(self, part: tag_items.LogStretch) -> None:
        """Read the records of a part; what is long or damaged is left to the scan."""
        walk = RecordWalk(self._log, part.low, part.high, RECORDS_MAX)
        for message in walk:
            if message.is_indexed and message.has_tag(self._topic, self._tag):
                self._found.add(message.phy_offset)
            self.log_bytes += message.size
        if walk.at < part.high and not (walk.stop == NOTHING and self._is_end(walk.at, part)):
            self._long.append(tag_items.LogStretch(walk.at, part.high))

    def _is_end(self, at: int, part: tag_items.LogStretch) -> bool:
        """Return whether zeros are the log's end: behind the last record with items, in the last segment or one of zeros before
        it.

        A broker allocates the next segment ahead.
        """
        later = [segment.start for segment in self._log.segments if segment.start > at]
        behind_items = part.low > self._log.start and part.high == self._log.end
        return behind_items and all(self._log.message(start) == NOTHING for start in later)


# ----------------------------------------------------------------------------------------------------------------------- search


def _any_time(_time: int) -> bool:
    return True


def _each_once(offsets: Iterable[int]) -> Iterator[int]:
    seen: set[int] = set()
    for phy_offset in offsets:
        if phy_offset not in seen:
            seen.add(phy_offset)
            yield phy_offset


class Search:
    """``roots`` are the folders of segments; ``scan``: keys are looked for in the log itself, times in every unit.

    ``progress`` is told how far the reading of the log is.
    """

    def __init__(
        self, store: str, roots: Sequence[str], notes: folders.Notes, *, sizes: IndexSizes | None = None, scan: bool = False,
        progress: ProgressListener | None = None, slots_max: int | None = None,
    ) -> None:  # fmt: skip
        """Open a store. At most ``slots_max`` slots of a queue are looked at, if given."""
        self._slots_max = slots_max
        self._store, self._sizes, self._scan, self._notes = store, sizes, scan, notes
        self._roots: Sequence[str] = ()
        self._progress = progress or NoListener()
        self._index: IndexFiles | None = None
        self._queues: StoreQueues | None = None
        self._scanned: dict[str, set[int]] = {}
        self._log_topics: set[str] | None = None
        self._is_elsewhere = False
        settings.check_is_folder(store)
        settings.check_is_store(store)
        if tuple(roots) == settings.roots_of(store):
            settings.check_has_parts(store)
        else:
            self._roots = roots
            settings.check_some_log(roots)
        check_laid_out(store)
        self.log = StoreLog(roots, notes)
        self._opened = contextlib.ExitStack()
        self._opened.callback(self.log.close)

    def __enter__(self) -> Search:
        return self

    def __exit__(self, *_: object) -> None:
        """Close all files of the store."""
        self._opened.close()

    # -- one offset ---------------------------------------------------------------------------------------------------

    def by_phy_offset(self, phy_offset: int, topic: str | None = None) -> Iterator[Message]:
        """Yield the message at an offset of the commitlog, if it is of ``topic``, or waits for it; of any topic for None."""
        message = self.log.message(phy_offset)
        if isinstance(message, str):
            around = self.log.around(phy_offset)
            if around is not None:
                message = (
                    f"is inside the record of {escape(around.topic)}/{around.queue_id} at {around.phy_offset}, queue offset "
                    f"{around.queue_offset}: ask for --physical {around.phy_offset}"
                )
            self._notes.add("no message", f"offset {phy_offset}: {message}", lost=message != EXPIRED)
        else:
            yield from self._if_of([message], topic)

    def _if_of(self, found: list[Message], topic: str | None) -> Iterator[Message]:
        messages = found if topic is None else [message for message in found if message.is_of(topic)]
        yield from messages
        if topic is not None and found and not messages:
            self.say_other_topic(found[0], topic)

    def say_other_topic(self, message: Message, topic: str) -> None:
        """Say that a message which was found is not of the topic that was asked for."""
        self._is_elsewhere = True
        text = f"offset {message.phy_offset}: the message there is of topic {escape(message.topic)}, not of {escape(topic)}"
        self._notes.add("another topic", text, lost=False)

    def by_id(self, message_id: str, topic: str | None) -> Iterator[Message]:
        """Yield the message of a broker's offset id, or those of a client's unique id, of ``topic`` or any.

        Where the topic has none, those that wait for it; else a note says of which topic it is.
        """
        at_offset = self._by_offset_id(message_id)
        if at_offset is not None and at_offset.message_id == message_id.upper():
            found = [at_offset]
        else:
            found = self._by_client_id(message_id, topic)
            if not found and at_offset is not None:
                own = f"its id is {at_offset.message_id}"
                text = f"{escape(message_id)}: the message at that offset was stored by another host: {own}"
                self._notes.add("another host", text, lost=False)
                found = [at_offset]
        yield from self._if_of(found, topic)

    def _by_client_id(self, unique_key: str, topic: str | None) -> list[Message]:
        """Return the messages of a topic that have a unique id; where it has none, those of any."""
        if self._scan:
            self.scan_for([unique_key])
        found = [] if topic is None else list(self.by_unique_key(unique_key, [topic]))
        return found or list(self.by_unique_key(unique_key))

    def by_unique_key(self, unique_key: str, names: list[str] | None = None) -> Iterator[Message]:
        """Return the messages that have a client's unique id, of some topics or of any, in the order of the log."""
        offsets = self._with_key(names, unique_key)
        return self._matching(names, offsets, lambda message: message.unique_key == unique_key, None)

    def with_key(self, names: list[str], key: str) -> Iterator[Message]:
        """Return the messages of some topics that have a key or unique key, in the order of the log."""
        return self._matching(names, self._with_key(names, key), lambda message: message.has_key(message.topic, key), None)

    def scan_for(self, keys: Iterable[str]) -> set[str]:
        """Look for the records with some keys, of any topic, in one pass over the log. Return the topics of all records.

        ``with_key`` and ``by_unique_key`` need no pass of their own for these keys.
        """
        from rocketmq_reindex.jobs.querying.scan import scan_keys

        wanted = [key for key in keys if key not in self._scanned]
        if wanted or self._log_topics is None:
            found, self._log_topics = scan_keys(self.log, wanted, self._notes, self._progress)
            self._scanned |= found
        return self._log_topics

    def _by_offset_id(self, message_id: str) -> Message | None:
        """Return the message where a broker's id says (``MessageDecoder.decodeMessageId``); a client's id has the same
        length."""
        phy_offset = offset_of_id(message_id)
        message = EXPIRED if phy_offset is None else self.log.message(phy_offset)
        return message if isinstance(message, Message) else None

    # -- keys ---------------------------------------------------------------------------------------------------------

    def by_key(
        self, topic: str, key: str, in_time: Callable[[int], bool] = _any_time, count_max: int | None = None
    ) -> Iterator[Message]:
        """Return messages of the topic that have the key or unique key, in the order of the log; of more than ``count_max`` the
        newest."""
        offsets = self._with_key([topic], key)
        return self._matching(
            [topic], offsets, lambda message: message.has_key(topic, key) and in_time(message.store_time), count_max
        )

    def by_tag(
        self, topic: str, tag: str, in_time: Callable[[int], bool] = _any_time, count_max: int | None = None
    ) -> Iterator[Message]:
        """Return messages of the topic whose TAGS are ``tag``, in the order of the log; of more than ``count_max`` the newest.

        By tag items where the IndexFiles have them (``IndexService.queryOffset`` of 5.4 for the index type T), else by the log.
        """

        def matches(message: Message) -> bool:
            # A spoilt item may point at a rollback, to which no broker gives items.
            return message.is_indexed and message.has_tag(topic, tag) and in_time(message.store_time)

        return self._matching([topic], self._with_tag(topic, tag), matches, count_max)

    def _matching(
        self, names: list[str] | None, offsets: Iterator[int], matches: Callable[[Message], bool], count_max: int | None
    ) -> Iterator[Message]:
        """Yield the messages at ``offsets``, newest first, that match; no more offsets are taken than are needed."""
        kept: list[Message] = []
        for phy_offset in sorted(set(offsets)) if count_max is None else _each_once(offsets):
            message = self.log.message(phy_offset)
            if isinstance(message, str):
                text = f"offset {phy_offset}: {message}: an entry of the index points there"
                self._notes.add("entry without a record", text, lost=message != EXPIRED)
                continue
            if not matches(message) or (names is not None and message.topic not in names):
                continue
            if count_max is None:
                yield message
                continue
            kept.append(message)
            if len(kept) == count_max:
                break
        yield from reversed(kept)

    def _with_key(self, names: list[str] | None, key: str) -> Iterator[int]:
        """Return the physical offsets of the records that may have the key, by its hash. ``names`` None: of any topic."""
        if self._scan:
            from rocketmq_reindex.jobs.querying.scan import scan_log

            if key in self._scanned:
                return iter(sorted(self._scanned[key], reverse=True))
            found = scan_log(self.log, names, lambda name: key_hash(name, key), self._notes, self._progress)
            return iter(sorted(found, reverse=True))
        index = self.index
        if not index.present:
            folder, size = files.join(self._store, "index"), sum(segment.size for segment in self.log.segments)
            raise InputError(
                f"{escape(folder)}: is not there: add --scan to read the whole log ({size:,} bytes) instead; "
                f"{self._command('info')} names the build that makes it anew"
            )
        hashes = {key_hash(name, key) for name in (self.queues.topics() if names is None else names)}
        return itertools.chain.from_iterable(map(index.phy_offsets, hashes))

    def _with_tag(self, topic: str, tag: str) -> Iterator[int]:
        """Return the physical offsets of the records that may have the tag: by its hash, or by reading the parts without tag
        items."""
        index = None if self._scan else self.index
        indexed = [] if index is None else tag_items.parts_with_tag_items(index, self.log)
        unindexed = UnindexedTag(self.log, topic, tag, tag_items.parts_without(indexed, self.log))
        read = f"{counted(unindexed.log_bytes, 'byte')} of the log"
        if index is None or not indexed:
            self._notes.say(f"searched: {read}" + ("" if index is None else ": the index has no tag items"))
        else:
            files_of = f"the tag items of {len(indexed)} of {counted(len(index.files), 'IndexFile')}"
            self._notes.say(f"searched: {files_of}" + (f", and {read} without tag items" if unindexed.log_bytes else ""))
        by_index = iter(()) if index is None else index.phy_offsets(tag_hash(topic, tag))
        return heapq.merge(by_index, sorted(unindexed.phy_offsets(self._notes, self._progress), reverse=True), reverse=True)

    @property
    def index(self) -> IndexFiles:
        """The IndexFiles, which are opened once they are asked for."""
        if self._index is None:
            self._index = IndexFiles(files.join(self._store, "index"), self._sizes, self._notes)
            self._opened.callback(self._index.close)
        return self._index

    # -- queues -------------------------------------------------------------------------------------------------------

    @property
    def queues(self) -> StoreQueues:
        """The queues of the store, which are looked for once they are asked for."""
        if self._queues is None:
            self._queues = StoreQueues(self._store, self._notes)
            self._opened.callback(self._queues.close)
        return self._queues

    def by_queue(
        self, topic: str, number: int, offset: int | None = None, time: int | None = None, count_max: int = 1
    ) -> Iterator[ServedMessage]:
        """Return the messages at ``count_max`` offsets from ``offset`` on, or the first ``count_max`` stored at ``time`` or
        later.

        With ``scan`` the log is read for an offset, and for a time where the queue has no files.
        """
        queue = self._opened_queue(topic, number)
        if self._scan and (offset is not None or queue is None):
            from rocketmq_reindex.jobs.querying.scan import scan_queue

            return scan_queue(self.log, topic, number, offset, time, count_max, self._notes, self._progress)
        return self.in_queue(queue or self.queue(topic, number), offset, time, count_max)

    def queue(self, topic: str, number: int) -> StoreQueue:
        """Return a queue of the store. Raises InputError where it has no files: that says nothing of its messages."""
        queue = self._opened_queue(topic, number)
        if queue is None:
            folder = files.join(self._store, QUEUES, topic, str(number))
            fault = "is not there" if files.entry_of(folder).kind == files.ABSENT else "holds no file of the queue"
            size = sum(segment.size for segment in self.log.segments)
            if self.queues.unread:
                raise InputError(f"{self.queues.unread}, or add --scan to read the whole log ({size:,} bytes)")
            near = near_in_words(topic, self.queues.topics())
            raise InputError(
                f"{escape(folder)}: {fault}: the topic has no such queue, or its files are lost{near}: add --scan "
                f"to read the whole log ({size:,} bytes) instead; "
                f"{self._command('verify')} names the build that makes lost files anew"
            )
        return queue

    def _command(self, name: str) -> str:
        """Return the command that shows a build with this store's sizes and version."""
        words = [self._store, *(word for root in self._roots for word in ("--commitlog", root))]
        return f"`{shell(['rmq-reindex', name, *map(redacted, words)])}`"

    def say_what_is_unknown(self, topic: str | None, message_id: str | None, tag: str | None) -> None:
        """Say it where nothing was found, and no queue has the topic, the id is none that a broker gives, or tags are several.

        ``FilterAPI.buildSubscriptionData`` takes ``a || b`` of a consumer for two tags.
        """
        if topic is not None and (known := self.queues.topics()) and topic not in known:
            text = f"topic {escape(topic)}: the store has no queue of it{near_in_words(topic, known)}"
            self._notes.add("unknown topic", text, lost=False)
            self._notes.unknown = "" if topic in (config_databases.topic_names(self._store) or ()) else text
        if message_id is not None and not self._is_elsewhere and not re.match(OFFSET_ID, message_id):
            text = (
                f"id {escape(message_id, 100)}: no message has it as its unique id, and a broker's id has 32 or 56 hex digits"
            )
            self._notes.add("unknown id", text, lost=False)
        if tag is not None and "||" in tag:
            text = (
                f"tag {escape(tag, 100)}: was searched for as one text: only consumers take || for several tags: ask for each "
                "of them by itself"
            )
            self._notes.add("several tags", text, lost=False)

    def _opened_queue(self, topic: str, number: int) -> StoreQueue | None:
        queue = self.queues.open(topic, number, self.log, self._notes)
        if queue is not None:
            queue.units.left = self._slots_max
            self._opened.callback(queue.close)
        return queue

    def in_queue(
        self, queue: StoreQueue, offset: int | None = None, time: int | None = None, count_max: int = 1
    ) -> Iterator[ServedMessage]:
        """Yield the messages as ``by_queue`` does, by the queue's files."""
        count = 0
        if offset is not None:
            messages = queue.from_position(queue.units.find(offset), offset + count_max)
        else:
            assert time is not None
            messages = queue.from_position(queue.position_at_time(time, self._scan))
        for served in messages:
            yield served
            count += 1
            if count == count_max:
                break
        span = queue.span()
        outside = span is not None and offset is not None and not span.first <= offset < span.end
        if span is None or outside or (time is not None and not count):
            stored = "" if span is None or time is None else queue.last_stored()
            self._notes.add("nothing there", f"{queue.place}: has {_span_text(span)}{stored}", lost=False)


def _span_text(span: OffsetSpan | None) -> str:
    if span is None:
        return "no message"
    return f"the offsets {span.first} to {span.end - 1}" if span.end - span.first > 1 else f"the offset {span.first} alone"
