"""Options of the data sources, checked before anything is read, and the folders of a store that they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.record.layout import CRC_MODES
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.messages.log_rows import Bounds
from rocketmq_reindex.udfs.times import DELAY_LEVELS, delay_levels, time_of

# ---------------------------------------------------------------------------------------------------------------------- options
# Options of the data sources: texts from Spark, checked before anything is read.


class Words:
    """The options of one data source by lower-case name; each method raises UsageError for a wrong value.

    ``known`` are the names of its options, without path. Raises UsageError for any other name.
    """

    def __init__(self, source: str, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self.source = source
        self._given = {name.lower(): str(value) for name, value in options.items()}
        names = {name.lower() for name in ("path", *known)}
        unknown = sorted(set(self._given) - names)
        if unknown:
            raise self.error(f"no option {escape(unknown[0])}: there are {', '.join(known)}")

    def error(self, text: str) -> UsageError:
        """Return an error that names the data source."""
        return UsageError(f"{self.source}: {text}")

    def text(self, name: str, otherwise: str = "") -> str:
        """Return the value of an option; ``otherwise`` if it is not given."""
        return self._given.get(name.lower(), otherwise)

    def path(self) -> str:
        """Return the argument of ``load``. Raises UsageError when there is none."""
        if not self.text("path"):
            raise self.error("name a store: load(path)")
        return self.text("path")

    def chosen(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of ``choices``; the first of them if the option is not given."""
        value = self.text(name, choices[0])
        if value not in choices:
            raise self.error(f"{name} {value!a}: take {' or '.join(choices)}")
        return value

    def flag(self, name: str) -> bool:
        """Return true or false; false if the option is not given."""
        value = self.text(name, "false").lower()
        if value not in ("true", "false"):
            raise self.error(f"{name} {value!a}: take true or false")
        return value == "true"

    def number(self, name: str, otherwise: int, low: int = 0) -> int:
        """Return an integer from ``low`` to 2**63 - 1; ``otherwise`` if the option is not given."""
        text = self.text(name, str(otherwise))
        if not text.lstrip("-").isascii() or not text.lstrip("-").isdigit() or not low <= int(text) <= layouts.INT64_MAX:
            raise self.error(f"{name} {text!a}: take a number from {low} on")
        return int(text)

    def time(self, name: str, otherwise: int) -> int:
        """Return a time in milliseconds (``time_of``); ``otherwise`` if the option is not given."""
        text = self.text(name)
        try:
            return time_of(text) if text else otherwise
        except ValueError as error:
            raise self.error(f"{name} {error}") from None

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of an option, which commas separate."""
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def delays(self) -> tuple[int, ...]:
        """Return the option delayLevels in milliseconds; RocketMQ's default if it is not given."""
        try:
            return delay_levels(self.text("delayLevels", DELAY_LEVELS))
        except ValueError as error:
            raise self.error(f"delayLevels: {error}") from None

    def crc(self) -> int:
        """Return the option crc as ``record.layout`` numbers it."""
        return CRC_MODES[self.chosen("crc", ("body", "all", "none"))]


def bounds_of(words: Words) -> Bounds:
    """Return the bounds that the options name. Raises UsageError for a wrong value."""
    return Bounds(
        words.number("startOffset", 0),
        words.number("endOffset", layouts.INT64_MAX),
        words.time("startTime", layouts.INT64_MIN),
        words.time("endTime", layouts.INT64_MAX + 1),
    )


# ---------------------------------------------------------------------------------------------------------------------- folders
# The folders of a store that the data sources read.
#
# A path that is no store is an error: with no rows, a join with the log would call every message lost.


def commitlog_folder(path: str) -> str:
    """Return the folder of segments of the store ``path``, or ``path`` itself if it is one. Raises InputError for any other
    path."""
    return _folders(path, (layouts.COMMITLOG,), _has_segments)[0]


def index_folder(path: str) -> str:
    """Return the folder of IndexFiles of the store ``path``, or ``path`` itself if it is one. Raises InputError for any other
    path."""
    return _folders(path, (layouts.INDEX,), _has_index_files)[0]


class NamedQueueFolder(NamedTuple):
    """A folder of the queues of a store. ``consumequeue`` may hold folders of topics and the files of a database."""

    path: str
    batch: bool
    """whether its queues are batch ones"""
    in_rocksdb: bool = False
    """whether it holds a RocksDB database"""


def queue_folders(path: str) -> list[NamedQueueFolder]:
    """Return the folders of queues of the store ``path``, or ``path`` itself if it is one. Raises InputError for any other
    path."""
    separate = files.join(path, layouts.SEPARATE)
    has_separate = _is_folder(separate) and _has_database(separate)
    try:
        folders = _folders(path, (layouts.QUEUES, layouts.BATCH_QUEUES), _has_queues)
    except InputError:
        if not has_separate:
            raise
        folders = []
    folders += [separate] if has_separate else []
    return [NamedQueueFolder(folder, _named(folder, layouts.BATCH_QUEUES), _has_database(folder)) for folder in folders]


def holds_files(folder: NamedQueueFolder) -> bool:
    """Return whether a folder of queues has a folder of a topic, as those of ConsumeQueue files do."""
    return any(entry.kind == files.FOLDER for entry in files.listing(folder.path))


def _has_database(folder: str) -> bool:
    entries = files.listing(folder)
    return bool(layouts.rocksdb_files(entry.name for entry in entries if entry.kind == files.FILE))


def _folders(path: str, names: tuple[str, ...], holds: Callable[[str], bool]) -> list[str]:
    """Return the folders ``names`` of ``path``; without them ``path`` itself, if it is such a folder."""
    kind = files.entry_of(path).kind
    if kind != files.FOLDER:
        fault = "is not there" if kind == files.ABSENT else "is no folder"
        raise InputError(f"{escape(path)}: {fault}: name a store, or its folder {names[0]}/")
    folders = [folder for name in names if _is_folder(folder := files.join(path, name))]
    if folders:
        return folders
    is_store = _is_folder(files.join(path, layouts.COMMITLOG))
    if (not is_store and any(_named(path, name) for name in names)) or holds(path):
        return [path]
    missing = " or ".join(f"{name}/" for name in names)
    raise InputError(f"{escape(path)}: has no folder {missing}: name a store, or its folder {names[0]}/")


def _is_folder(path: str) -> bool:
    return files.entry_of(path).kind == files.FOLDER


def _named(path: str, name: str) -> bool:
    """Return whether a folder has this name, or this name and a suffix, as in index.previous."""
    return files.base(path).partition(".")[0] == name


def _has_segments(folder: str) -> bool:
    return any(entry.kind == files.FILE and layouts.first_byte(entry.name) is not None for entry in files.listing(folder))


def _has_index_files(folder: str) -> bool:
    return any(entry.kind == files.FILE and layouts.is_index_file(entry.name) for entry in files.listing(folder))


def _has_queues(folder: str) -> bool:
    if _has_database(folder):
        return True
    topics = (entry for entry in files.listing(folder) if entry.kind == files.FOLDER)
    queues = (entry for topic in topics for entry in files.listing(topic.path) if layouts.queue_id(entry.name) is not None)
    return any(_has_segments(queue.path) for queue in queues if queue.kind == files.FOLDER)
