"""The options of ``rmq-reindex build``, and the settings that they make."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option, option_table
from rocketmq_reindex.jobs.command.broker_conf import numbers_told, read_conf, settings_of, unread, without_given
from rocketmq_reindex.jobs.command.options import reader, watch_environment
from rocketmq_reindex.jobs.command.tables_place import given_place
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store import config_databases
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.settings import StoreSettings, checked_paths, has_bytes, topics_config
from rocketmq_reindex.storage_format import errors, showing, topics as storage_format_topics
from rocketmq_reindex.storage_format.delay.settings import DELIVER
from rocketmq_reindex.storage_format.layouts import INT32_MAX, INT64_MAX, QUEUES, SEPARATE
from rocketmq_reindex.storage_format.queue.units import EXT_FILE_MIN
from rocketmq_reindex.udfs.times import delay_levels

if TYPE_CHECKING:
    from rocketmq_reindex.storage_format.queue.extended import ConsumerFilters


@dataclass(frozen=True, kw_only=True)
class BuildSettings(StoreSettings):
    """All that decides what a build writes, and how it runs. Sizes are in bytes, times in milliseconds since 1970.

    What each means, the table of options says.
    """

    mends: ClassVar[bool] = False
    """whether the log is written anew, mended: segments may be short, what a broker refuses is damage, and DIR is new"""
    to_plain: bool = False
    """a repair: a log of DLedger is laid anew, as a plain one"""
    out: str = field(kw_only=False)
    only: tuple[str, ...] = option_table.default_of("only")
    index_policy: str = option_table.default_of("index_policy")
    on_damage: option.OnDamage = option_table.default_of("on_damage")
    queue_order: option.QueueOrder = option_table.default_of("queue_order")
    """``logical``: a unit stands at its record's QUEUEOFFSET, so consumers find every message at its own offset"""
    checkpoint: option.CheckpointKind = option_table.default_of("checkpoint")
    include_topics: tuple[str, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    until_offset: int = option_table.default_of("until_offset")
    until_time: int = option_table.default_of("until_time")
    expired_queues: option.ExpiredQueues = option_table.default_of("expired_queues")
    write_topics: bool = False
    write_delay: bool = False
    undecided: option.Undecided = option_table.default_of("undecided")
    consumer_offsets: str = ""
    overwrite: bool = False
    allow_empty: bool = False
    keep_zeros: bool = False
    dry_run: bool = False
    tables: str = ""
    messages_table: bool = False
    build_id: str = ""
    incremental: bool = False
    recheck: bool = False
    filters: ConsumerFilters | None = field(default=None, compare=False)
    """of a build with consumequeue_ext: the registrations by which bits are set (``inputs.look_at``)"""

    @property
    def window(self) -> int:
        """Milliseconds of ``--index-policy window:...``, 0 for ``capacity``."""
        return option.parse_window(self.index_policy)

    @property
    def light_in_files(self) -> bool:
        """Whether light queues have ConsumeQueue files where others have any."""
        return not (self.rocksdb_lmq and self.makes_database)

    @property
    def makes_files(self) -> bool:
        """Whether ConsumeQueue files are built."""
        return QUEUES in self.only and self.consumequeue_type != "rocksdb"

    @property
    def makes_database(self) -> bool:
        """Whether ConsumeQueues are built in RocksDB."""
        return QUEUES in self.only and self.consumequeue_type != "file"

    @property
    def database_folder(self) -> str:
        """The folder of the database in a store."""
        return SEPARATE if self.rocksdb_separate else QUEUES

    @property
    def partial(self) -> bool:
        """Whether less than the whole log is asked for."""
        limited = self.until_offset != INT64_MAX or self.until_time != INT64_MAX
        return bool(self.include_topics or self.exclude_topics or limited)

    def check(self) -> BuildSettings:
        """Return these settings with paths in their usual form. Raises UsageError for values that no build can have."""
        shared = self.checked_places()
        _ = self.window
        (out,) = checked_paths(self.out)
        # DIR holds the build that --incremental starts from.
        overwrite = self.overwrite or self.incremental
        tables = given_place(self.tables, self.incremental)
        return replace(self, **shared, out=out, overwrite=overwrite, tables=tables)

    @property
    def keeps_rows(self) -> bool:
        """Whether the run is recorded in Delta tables. Without Spark --tables has room for what --incremental knows alone."""
        return bool(self.tables) and self.engine != "local"

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings, those of the store first."""
        yield from super().problems()
        if not self.tables and (self.messages_table or self.build_id):
            yield "--messages-table and --build-id go with --tables: name where the tables are"
        if self.build_id and not re.fullmatch(r"[A-Za-z0-9_.:+@/=-]{1,200}", self.build_id):
            yield f"--build-id {self.build_id!a}: take up to 200 of A-Z a-z 0-9 _ . : + @ / = -"
        if self.until_offset < 0:
            yield f"--until-offset {self.until_offset}: take a number from 0 on"
        if not all((*self.include_topics, *self.exclude_topics)):
            yield "--include-topic and --exclude-topic: take a pattern of at least one character"
        if not self.out:
            yield "--out: name a folder"
        if self.out == "-":
            # Elsewhere it means stdout.
            yield "--out -: is no name of a folder: name one, or ./- for one of that name"
        if not self.only or set(self.only) - set(option.PARTS):
            yield f"--only {','.join(self.only)}: take one or more of {', '.join(option.PARTS)}"
        yield from self._row_problems()
        if self.incremental and not self.tables:
            yield "--incremental: name --tables as well: what is known of the log is kept there"
        if self.recheck and not self.incremental:
            yield "--recheck: goes with --incremental: a full build reads everything anyway"
        yield from self._delay_problems()
        yield from self._ext_problems()
        yield from self._database_problems()

    def _row_problems(self) -> Iterator[str]:
        """Yield what is wrong where a run without Spark is asked for Delta tables."""
        if not self.tables or self.keeps_rows:
            return
        if self.messages_table or self.build_id:
            text = "rows of Delta tables need Spark and Java: leave them out, or take --engine spark"
            yield f"--messages-table and --build-id: {text}"
        elif not self.incremental:
            yield (
                "--tables: rows of Delta tables need Spark and Java: leave it out, add --incremental, which keeps there what "
                "it knows of the log, or take --engine spark"
            )

    def _database_problems(self) -> Iterator[str]:
        """Yield what is wrong with a RocksDB database, and with ends of queues."""
        if self.expired_queues != "drop" and self.incremental:
            yield "--expired-queues keep: goes without --incremental, which cannot go on with such queues: leave one out"
        if self.expired_queues != "drop" and QUEUES not in self.only:
            yield f"--expired-queues keep: goes with {QUEUES}, which --only leaves out: name it there, or leave one out"
        option = f"--consumequeue-type {self.consumequeue_type}"
        # What a broker.conf says holds where it applies.
        if self.consumequeue_type != "file" and QUEUES not in self.only and not self.rocksdb:
            yield f"{option}: goes with {QUEUES}, which --only leaves out: name it there, or leave one out"
        if not self.makes_database:
            return
        if self.consumequeue_type == "rocksdb" and self.cq_ext != "none" and not self.bloom_error_rate:
            yield f"--cq-ext {self.cq_ext}: goes with files, which {option} does not make: leave one out, or take both"
        if self.incremental:
            yield f"{option}: goes without --incremental, which cannot go on with a database: leave that out, or take file"
        if self.queue_order == "broker":
            yield f"{option}: goes without --queue-order broker: in RocksDB units stand at the offsets of their records"

    def _ext_problems(self) -> Iterator[str]:
        """Yield what is wrong with consumequeue_ext."""
        if self.cq_ext == "none":
            return
        if self.incremental:
            yield "--cq-ext: goes without --incremental, which cannot go on with consumequeue_ext: leave one of them out"
        if not EXT_FILE_MIN <= self.cq_ext_file_size <= INT32_MAX:
            yield f"{self._told('cq_ext_file_size')}: a file has at least {EXT_FILE_MIN} bytes, and at most 2 GiB"
        if not (1 <= (self.bloom_error_rate or 1) < 100 and self.bloom_consumers >= 0):
            yield "--broker-conf: maxErrorRateOfBloomFilter is 1 to 99, and expectConsumerNumUseFilter at least 1"

    def _delay_problems(self) -> Iterator[str]:
        """Yield what is wrong where less than the whole log would decide what was delivered."""
        if self.undecided != DELIVER and not self.write_delay:
            yield "--undecided: goes with --write-delay"
        if self.write_delay and not 68 <= self.timer_log_size <= INT32_MAX:
            yield f"{self._told('timer_log_size')}: a file of timerlog has at least 68 bytes, and at most 2 GiB"
        if self.write_delay and self.queue_order == "broker":
            yield (
                "--write-delay: needs --queue-order logical: in the broker's order units do not stand at the offsets of their "
                "records"
            )
        for name, wanted in (("--write-delay", self.write_delay), ("--consumer-offsets", bool(self.consumer_offsets))):
            if wanted and (self.partial or self.incremental or self.only != option.PARTS):
                yield (
                    f"{name}: needs all of the log and all parts: leave out --only, --include-topic, --exclude-topic, "
                    "--until-offset, --until-time and --incremental"
                )

    def for_manifest(self) -> dict[str, Any]:
        """Return the settings that decide what is written, by the names of the manifest."""
        values = {name: getattr(self, name) for name in option_table.MANIFEST}
        # A limit that is none is null; the place of a file is not told.
        values |= {name: None for name in ("until_offset", "until_time") if values[name] == INT64_MAX}
        values |= {"consumer_offsets": bool(self.consumer_offsets)}
        if self.cq_ext != "none":
            values |= {name: getattr(self, name) for name in option_table.EXTENDED}
        if self.makes_database:
            values |= {name: getattr(self, name) for name in option_table.DATABASE}
        if self.expired_queues != "drop":
            values |= {"expired_queues": self.expired_queues}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


# ---------------------------------------------------------------------------------------------------------------------- options
# The settings that options make, with what a broker.conf and a topics.json say.


def build_settings(given: dict[str, Any]) -> BuildSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError, and InputError as ``merged``."""
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise errors.UsageError("rmq-reindex build: name a STORE, or --commitlog folders: see --help")
    return BuildSettings(**values).check()


parse_settings: Final = reader("build", build_settings)
"""Return the settings that the arguments behind ``build`` make. Raises as ``build_settings``."""


def merged(given: dict[str, Any]) -> dict[str, Any]:
    """Return what --broker-conf and --topics-config say and, in its place, what is ``given``, by names of settings.

    ``named`` among them says which of the settings that a store's files show were named. Raises UsageError, and InputError
    where --broker-conf names a store that is not there.
    """
    conf, topics = given.pop("broker_conf", None), given.pop("topics_config", None)
    values: dict[str, Any] = {}
    if conf is not None:
        (text, notes), shown = read_conf(conf), showing.escape(conf)
        values = settings_of(text, shown) | {"broker_conf": conf, "conf_notes": notes}
        _check_delay_levels(values)
        values["conf_numbers"] = numbers_told(text, given, shown)
        values["protected"] = tuple(values[name] for name in ("store",) if name in values)
        values = without_given(values, given, shown)
    if topics is not None:
        values["batch_topics"] = read_batch_topics(topics)
    values |= watch_environment()
    if "consumequeue_type" in given:
        # It wins over all that the file says of what goes where.
        for name in ("rocksdb_light", "rocksdb_lmq"):
            values.pop(name, None)
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values.setdefault("store", "")
    values["named"] = frozenset((*SIZES, *option_table.EXTENDED, "broker_version", "batch_topics", "engine")) & values.keys()
    return values


def _check_delay_levels(conf: dict[str, Any]) -> None:
    """Raise UsageError for delay levels of a broker.conf with which no broker starts. preflight says that by itself."""
    try:
        if "delay_levels" in conf:
            delay_levels(conf["delay_levels"])
    except ValueError as error:
        raise errors.UsageError(f"{showing.escape(conf['broker_conf'])}: messageDelayLevel: {error}") from None


def batch_topics_of(store: str, told: list[str]) -> tuple[str, ...]:
    """Return the batch topics of the store's own topics.json, or its database of topics; none without. Raises InputError.

    ``told`` gets a note on a database that cannot be read, or differs from the file.
    """
    if (kept := config_databases.topics(store, Notes(told.append))) is not None:
        try:
            return storage_format_topics.batch_topics(json.dumps(kept.said))
        except ValueError as error:
            raise errors.InputError(unread(kept.path, error)) from None
    path = topics_config(store)
    try:
        return _batch_topics(path, needed=False)
    except errors.InputError:
        # Of a file that is cut short a broker takes the copy, too.
        if not has_bytes(f"{path}.bak"):
            raise
        return _batch_topics(f"{path}.bak", needed=True)


def read_batch_topics(path: str) -> tuple[str, ...]:
    """Return the batch topics of the topics.json that --topics-config names. Raises UsageError."""
    try:
        return _batch_topics(path, needed=True)
    except errors.InputError as error:
        raise errors.UsageError(f"--topics-config {error}: name a broker's config/topics.json") from None


def _batch_topics(path: str, *, needed: bool) -> tuple[str, ...]:
    """Return the batch topics of a topics.json (``queue.type=BatchCQ``). Raises InputError.

    Who may read the log need not be one who may look into ``config``.
    """
    try:
        if not needed and files.entry_of(path).kind != files.FILE:
            return ()
        return storage_format_topics.batch_topics(files.read_bytes(path, files.CONFIG_MAX).decode("utf-8", "replace"))
    except (OSError, errors.InputError) as error:
        raise errors.InputError(unread(path, error)) from None
    except (ValueError, RecursionError) as error:
        what = "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else showing.escape(str(error))
    raise errors.InputError(f"{showing.escape(path)}: {what}")
