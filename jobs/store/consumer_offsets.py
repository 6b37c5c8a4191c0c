"""How far each consumer group is in the queues of a broker: files of offsets, one made of several, what was taken in order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from rocketmq_reindex import files
from rocketmq_reindex.files.rocksdb import Database
from rocketmq_reindex.jobs.command.option import Merge
from rocketmq_reindex.jobs.store.config_databases import Kept, databases_of, is_database, kept, places, read_folder
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import CONFIG, INT32_MAX, INT64_MAX, INT64_MIN
from rocketmq_reindex.storage_format.showing import escape, reason
from rocketmq_reindex.storage_format.topics import OFFSETS, stamp_of

# ------------------------------------------------------------------------------------------------------------------------- file
# One file: ``{"offsetTable": {"topic@group": {queue id: offset}}}``. fastjson leaves queue ids without quotes.

OFFSET_FILES: Final = ("consumerOffset.json", "lmqConsumerOffset.json")
"""``ConsumerOffsetManager`` (4.9 to 5.5), and ``LmqConsumerOffsetManager``, which a broker with enableLmq has instead"""
TABLE: Final = "offsetTable"
LMQ_TABLE: Final = "lmqOffsetTable"
"""Offsets of groups that are named as light queues are: ``{"topic@group": offset}``. Such a queue is queue 0."""
POP_DATABASE: Final = "kvStore"
_POP_FAMILY: Final = "popState"
"""``PopConsumerRocksdbStore``: what groups have taken by POP, where the broker keeps that in RocksDB and not in the log"""
_BYTES_MAX: Final = 256 << 20
_T = TypeVar("_T")
_QUEUE_ID: Final = re.compile("[0-9]{1,10}")
_OFFSET: Final = re.compile("-?[0-9]{1,19}")


class QueueOfGroup(NamedTuple):
    """A queue that a group reads."""

    group: str
    topic: str
    queue_id: int


class OffsetEntry(NamedTuple):
    """What a file says of one queue of a group; ``offset`` is None for what is no offset of a queue."""

    queue: QueueOfGroup
    offset: int | None


class OffsetFile(NamedTuple):
    """A file of consumer offsets, or a database of them: its path, and its JSON object."""

    path: str
    said: dict[str, Any]
    in_rocksdb: bool = False

    def entries(self) -> Iterator[OffsetEntry]:
        """Yield what the file says, also where it is wrong."""
        for name, offsets in self.said[TABLE].items():
            topic, _, group = name.partition("@")
            pairs = offsets.items() if isinstance(offsets, dict) else [("", None)]
            for queue, offset in pairs:
                is_queue = _QUEUE_ID.fullmatch(queue) is not None and int(queue) <= INT32_MAX
                place = QueueOfGroup(group, topic, int(queue) if is_queue else 0)
                yield OffsetEntry(place, as_offset(offset) if is_queue else None)
        light = self.said.get(LMQ_TABLE)
        for name, offset in light.items() if isinstance(light, dict) else ():
            topic, _, group = name.partition("@")
            yield OffsetEntry(QueueOfGroup(group, topic, 0), as_offset(offset))

    def offsets(self, notes: Notes) -> dict[QueueOfGroup, int]:
        """Return the offsets of the file; what is none of a group is a note. A negative one is none (``queryOffset``)."""
        found: dict[QueueOfGroup, int] = {}
        for entry in self.entries():
            if entry.offset is None:
                named = f"{escape(entry.queue.topic)}@{escape(entry.queue.group)}"
                text = f"{escape(self.path)}: {named}: has what is no offset of a queue: it is passed over"
                notes.add("a group's offsets", text, lost=False)
            elif entry.queue.group and entry.offset >= 0:
                found[entry.queue] = entry.offset
        return found


def as_offset(value: object) -> int | None:
    """Return a number as fastjson reads a Long, of a text, too; None for what is none."""
    number = int(value) if isinstance(value, str) and _OFFSET.fullmatch(value) else value
    return number if type(number) is int and INT64_MIN <= number <= INT64_MAX else None


def decoded(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a file of consumer offsets; None for what is none."""
    try:
        said = layouts.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and isinstance(said.get(TABLE), dict) else None


def read(path: str) -> tuple[OffsetFile | None, bytes]:
    """Return a file of consumer offsets, or None for what is none, and its bytes. Raises OSError and InputError."""
    data = files.read_bytes(path, _BYTES_MAX)
    said = decoded(data)
    return (None if said is None else OffsetFile(path, said)), data


def read_or_copy(path: str, notes: Notes) -> OffsetFile | None:
    """Return a file of consumer offsets, or its copy PATH.bak where the file itself is not there, cut short, or no such file.

    So does a broker that starts (``ConfigManager.load``). What is wrong is a note. None where neither can be read.
    """
    return _first_sound(path, _of_place, "consumer offsets", "is no file of consumer offsets", notes)


def _first_sound(path: str, read_one: Callable[[str], _T | None], kind: str, wrong: str, notes: Notes) -> _T | None:
    """Return what ``read_one`` makes of a file or of its copy PATH.bak: the first that is there and is not None.

    ``wrong`` is said of one that is None.
    """
    for place in (path, f"{path}.bak"):
        try:
            if files.entry_of(place).kind == files.ABSENT:
                continue
            found = read_one(place)
        except (OSError, InputError, ValueError, RecursionError) as error:
            # Some errors begin with the name.
            wrong = reason(error).removeprefix(f"{escape(files.absolute(place))}: ")
            notes.add(kind, f"{escape(place)}: {wrong}", lost=False)
            continue
        if found is not None:
            return found
        notes.add(kind, f"{escape(place)}: {wrong}", lost=False)
    return None


def _of_place(place: str) -> OffsetFile | None:
    return _of_database(place) if is_database(place) else read(place)[0]


def _of_database(folder: str) -> OffsetFile | None:
    """Return the consumer offsets of a database; None where it is none of these. Raises InputError."""
    decoded = (read_folder(folder) or {}).get(OFFSETS)
    return None if decoded is None else OffsetFile(folder, decoded.said, True)


def in_databases(store: str) -> list[OffsetFile]:
    """Return the consumer offsets of a store's databases that a broker may read. Raises InputError for one that is broken."""
    return [OffsetFile(table.path, table.said, True) for table in databases_of(store, OFFSETS)]


def of_store(store: str, notes: Notes) -> list[OffsetFile]:
    """Return the consumer offsets of a store, of its files and databases; what is broken in them, or elsewhere, is a note."""
    named = (files.join(store, CONFIG, name) for name in OFFSET_FILES)
    found = [file for path in named if (file := read_or_copy(path, notes)) is not None]
    own = next((Kept(file.path, file.said, False) for file in found if OFFSET_FILES[0] in files.base(file.path)), None)
    counts = kept(store, OFFSETS, own, notes)
    if counts is not None and counts.in_rocksdb:
        others = [file for file in found if own is None or file.path != own.path]
        found = [OffsetFile(counts.path, counts.said, True), *others]
    if not found and not places(store, OFFSETS):
        text = f"{escape(files.join(store, CONFIG, OFFSET_FILES[0]))}: is not there: where groups stand is not known"
        notes.add("no consumer offsets", text, lost=False)
    return found


def named(paths: Sequence[str], notes: Notes) -> list[OffsetFile]:
    """Return files that a user names, or a copy beside one, which is a note. Raises InputError where neither can be read."""
    found = []
    for path in paths:
        lost: list[str] = []
        file = read_or_copy(path, Notes(lost.append))
        if file is None:
            raise InputError(f"--consumer-offsets {lost[0]}" if lost else f"--consumer-offsets {escape(path)}: is not there")
        for text in lost:
            notes.add("consumer offsets", f"{text}: {escape(file.path)} is read instead", lost=False)
        found.append(file)
    return found


# ---------------------------------------------------------------------------------------------------------------------- several
# One offset of several, where replicas and copies differ, and a new file.


@dataclass(frozen=True)
class OffsetDifference:
    """A queue of a group of which files say different offsets, each by its path; ``taken`` is the one that counts."""

    group: str
    topic: str
    queue_id: int
    offsets: dict[str, int]
    taken: int

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as ``consumers --json`` prints it."""
        return {
            "group": self.group, "topic": self.topic, "queueId": self.queue_id, "offsets": dict(self.offsets),
            "taken": self.taken,
        }  # fmt: skip


class MergedOffsets(NamedTuple):
    """The offsets that count, each with the file that says it, and where files differ."""

    offsets: dict[QueueOfGroup, int]
    sources: dict[QueueOfGroup, str]
    differences: list[OffsetDifference]


def merged(offset_files: Sequence[OffsetFile], merge: Merge, notes: Notes) -> MergedOffsets:
    """Return one offset for each queue of a group. A file without the queue says nothing of it.

    With ``merge`` highest nothing is read twice: offsets rise. With ``lowest`` nothing is missed, also where somebody set a
    group back.
    """
    said: dict[QueueOfGroup, dict[str, int]] = {}
    for file in offset_files:
        for queue, offset in file.offsets(notes).items():
            said.setdefault(queue, {})[file.path] = offset
    result = MergedOffsets({}, {}, [])
    for queue, by_file in said.items():
        source = (max if merge == "highest" else min)(by_file, key=lambda path: by_file[path])
        result.offsets[queue], result.sources[queue] = by_file[source], source
        if len(set(by_file.values())) > 1:
            result.differences.append(OffsetDifference(*queue, by_file, by_file[source]))
    return result


def made(
    offset_files: Sequence[OffsetFile], offsets: Mapping[QueueOfGroup, int], databases: Sequence[OffsetFile] = ()
) -> dict[str, Any]:
    """Return the JSON object of a file with some offsets. What else the files say, such as their version, is the first one's.

    Its counter is above that of each database, of ``databases`` as well, so that their broker takes it in. A group that some
    file has in its table of light queues stays there. A name that is none of a group stays, too.
    """
    light = {entry.queue for file in offset_files for entry in OffsetFile(file.path, {TABLE: {}, **_light(file)}).entries()}
    said: dict[str, Any] = dict(offset_files[0].said) if offset_files else {}
    among = (*offset_files, *databases)
    if any(file.in_rocksdb for file in among):
        # RocksDBConsumerOffsetManager.merge: a broker takes a file into its database only if its counter is higher.
        counter = 1 + max(stamp_of(file.said, "counter") for file in among)
        version = said.get("dataVersion")
        version = version if isinstance(version, dict) else {}
        said["dataVersion"] = {"stateVersion": 0, "timestamp": 0, **version, "counter": counter}
    said[TABLE] = {name: table for name, table in said.get(TABLE, {}).items() if not name.partition("@")[2]}
    if light:
        said[LMQ_TABLE] = {}
    for queue, offset in offsets.items():
        name = f"{queue.topic}@{queue.group}"
        if queue in light:
            said[LMQ_TABLE][name] = offset
        else:
            said[TABLE].setdefault(name, {})[str(queue.queue_id)] = offset
    return said


def _light(file: OffsetFile) -> dict[str, Any]:
    return {LMQ_TABLE: file.said[LMQ_TABLE]} if LMQ_TABLE in file.said else {}


# -------------------------------------------------------------------------------------------------------------- taken in order
# What groups that consume in order have taken by POP. Such a group has one batch of messages of a queue at a time. The log has
# neither check points nor acknowledgements of it (PopMessageProcessor of 5.x writes them for other groups alone).

ORDER_FILE: Final = "consumerOrderInfo.json"
"""``BrokerPathConfigHelper.getConsumerOrderInfoPath``"""


class OrderedMessage(NamedTuple):
    """A message of the newest batch that a group took of a queue. Times are milliseconds since 1970.

    ``until`` is when others may have it, None where the file does not say so; ``times`` is how often the group took it before.
    """

    offset: int
    pop_time: int
    until: int | None
    times: int
    is_acknowledged: bool


def taken_in_order(store: str, notes: Notes) -> tuple[str, dict[QueueOfGroup, list[OrderedMessage]]]:
    """Return the name of a store's file below it, and what groups have taken in order. What is wrong in it is a note.

    A broker reads its copy FILE.bak where the file itself is not there, cut short, or no such file (``ConfigManager.load``).
    """

    def table_of(path: str) -> tuple[str, dict[str, Any]] | None:
        said = layouts.loads(files.read_bytes(path, _BYTES_MAX).decode("utf-8", "replace"))
        table = said.get("table") if isinstance(said, dict) else None
        return (path, table) if isinstance(table, dict) else None

    wrong = "does not say what groups have taken in order"
    found = _first_sound(files.join(store, CONFIG, ORDER_FILE), table_of, "what was taken in order", wrong, notes)
    if found is None:
        return f"{CONFIG}/{ORDER_FILE}", {}
    path, table = found
    return f"{CONFIG}/{files.base(path)}", dict(_batches(table, path, notes))


def _batches(table: dict[str, Any], path: str, notes: Notes) -> Iterator[tuple[QueueOfGroup, list[OrderedMessage]]]:
    for name, queues in table.items():
        topic, _, group = name.partition("@")
        for queue, batch in queues.items() if isinstance(queues, dict) else [("", None)]:
            queue_id, messages = as_offset(queue), None if batch is None else _messages(batch)
            if queue_id is None or messages is None or not group:
                text = f"{escape(path)}: {escape(name)}: has what is no batch of a queue: it is passed over"
                notes.add("a batch in order", text, lost=False)
            else:
                yield QueueOfGroup(group, topic, queue_id), messages


def _messages(batch: object) -> list[OrderedMessage] | None:
    """Return the messages of a batch (``ConsumerOrderInfoManager.OrderInfo``); None for what is none.

    Of its offsets all but the first are distances to the first. Bit i of ``cm`` is set when message i is acknowledged.
    fastjson reads null as 0.
    """
    if not isinstance(batch, dict) or not isinstance(distances := batch.get("o"), list):
        return None
    numbers = [as_offset(distance) for distance in distances]
    pop_time, bits = as_offset(batch.get("popTime")), as_offset(0 if batch.get("cm") is None else batch["cm"])
    if pop_time is None or bits is None or None in numbers:
        return None
    offsets = [number for number in numbers if number is not None]
    offsets[1:] = [offsets[0] + distance for distance in offsets[1:]]
    hidden = as_offset(batch.get("i"))
    ends, times = _by_offset(batch.get("ot")), _by_offset(batch.get("oc"))
    usual = pop_time + hidden if hidden is not None and hidden > 0 else None
    return [
        # 1L << i of Java takes the last six bits of i.
        OrderedMessage(offset, pop_time, ends.get(offset, usual), times.get(offset, 0), bool(bits >> i % 64 & 1))
        for i, offset in enumerate(offsets)
    ]


def _by_offset(said: object) -> dict[int, int]:
    pairs = said.items() if isinstance(said, dict) else ()
    numbers = ((as_offset(offset), as_offset(value)) for offset, value in pairs)
    return {offset: value for offset, value in numbers if offset is not None and value is not None}


# ------------------------------------------------------------------------------------------------------------- taken in RocksDB


def taken_in_rocksdb(
    store: str, notes: Notes, topics: frozenset[str] | None = None
) -> Iterator[tuple[QueueOfGroup, OrderedMessage]]:  # fmt: skip
    """Yield the messages of some topics, or of any, that groups have taken by POP and not acknowledged, as RocksDB has them.

    With ``popConsumerKVServiceEnable`` a broker has a record of each there, until it is acknowledged or comes again. What
    cannot be read is a note.
    """
    folder = files.join(store, POP_DATABASE)
    try:
        if files.entry_of(folder).kind == files.ABSENT or not is_database(folder):
            return
        with Database(folder) as database:
            for key, value in database.pairs(_POP_FAMILY) if _POP_FAMILY in database.families else ():
                record = _taken(value)
                if record is None:
                    text = f"{escape(folder)}: {key.hex()[:64]}: is no message that a group took: it is passed over"
                    notes.add("a message in RocksDB", text, lost=False)
                elif topics is None or record[0].topic in topics:
                    yield record
    except (OSError, InputError) as error:
        wrong = reason(error).removeprefix(f"{escape(folder)}: ")
        notes.add("in RocksDB", f"{escape(folder)}: {wrong}: what groups took by POP may be there", lost=False)


def _taken(value: bytes) -> tuple[QueueOfGroup, OrderedMessage] | None:
    """Return the queue and the message of a ``PopConsumerRecord``; None for what is none."""
    try:
        said = layouts.loads(value.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    names = said.get("groupId"), said.get("topicId")
    numbers = [as_offset(said.get(name)) for name in ("queueId", "offset", "popTime", "invisibleTime")]
    if not all(isinstance(name, str) and name for name in names) or None in numbers:
        return None
    queue, offset, time, hidden = (number for number in numbers if number is not None)
    times = as_offset(said.get("attemptTimes")) or 0
    return QueueOfGroup(str(names[0]), str(names[1]), queue), OrderedMessage(offset, time, time + hidden, times, False)
