"""Settings of a build, and the words of the command line that stand for them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from rocketmq_reindex.jobs.command.tables_place import given_place
from rocketmq_reindex.jobs.command.times import parse_time as parse_time
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.integers import INT64_MAX
from rocketmq_reindex.storage_format.queue.units import BATCH_UNIT_SIZE, UNIT_SIZE
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.sql.option_words import CRC_MODES as CRC_MODES
from rocketmq_reindex.udfs.sql.option_words import DELAY_LEVELS as DELAY_LEVELS
from rocketmq_reindex.udfs.sql.option_words import UNITS, delay_levels

PARTS: Final = ("consumequeue", "index", "checkpoint")
INT32_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class BuildSettings:
    """All that decides what a build writes, and how it runs. Sizes in bytes, times in milliseconds since 1970."""

    store: str
    out: str
    commitlogs: tuple[str, ...] = ()
    only: tuple[str, ...] = PARTS
    cq_file_size: int = 6_000_000
    batch_cq_file_size: int = 13_800_000
    hash_slots: int = 5_000_000
    index_items: int = 20_000_000
    segment_size: int = 0
    index_policy: str = "capacity"
    on_damage: str = "fail"
    queue_order: str = "logical"
    crc: str = "body"
    checkpoint: str = "safe"
    lmq: bool = False
    delay_levels: str = DELAY_LEVELS
    broker_version: str = "5.3"
    include_topics: tuple[str, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    until_offset: int = INT64_MAX
    until_time: int = INT64_MAX
    max_fill: int = 100_000
    overwrite: bool = False
    range_size: int = 0
    write_topics: bool = False
    batch_topics: tuple[str, ...] = ()
    """topics whose queues are batch ConsumeQueues, from --topics-config"""
    master: str = ""
    dry_run: bool = False
    json: bool = False
    protected: tuple[str, ...] = ()
    """more folders that DIR must lie apart from"""
    keep_zeros: bool = False
    """in object stores files have their full size, too; else they end with their last byte used"""
    progress: str = "lines"
    log_format: str = "text"
    metrics: str = ""
    store_name: str = ""
    """what the store is called in logs and metrics"""
    tables: str = ""
    messages_table: bool = False
    build_id: str = ""
    incremental: bool = False
    recheck: bool = False
    snapshot: bool = False
    """the log no longer changes, whoever holds the store's lock"""
    allow_empty: bool = False
    """a log without records may replace a build of some"""
    named: frozenset[str] = field(default=frozenset(), compare=False)
    """the sizes that somebody named; the others are a broker's defaults"""

    @property
    def store_folder(self) -> str:
        """STORE, or else the folder around the first --commitlog; "" where neither is known."""
        around = [files.parent(root) for root in self.roots if files.base(root) == "commitlog"]
        return files.absolute(self.store) if self.store else next(iter(around), "")

    def is_named(self, size: str) -> bool:
        """Whether a size is more than a default that nobody asked for."""
        return size in self.named or getattr(self, size) != _DEFAULTS[size]

    @property
    def roots(self) -> tuple[str, ...]:
        """the folders of segments, absolute: executors have working folders of their own"""
        given = self.commitlogs or (files.join(self.store, "commitlog"),)
        return tuple(files.absolute(root) for root in given)

    @property
    def inputs(self) -> tuple[str, ...]:
        """all folders that DIR must lie apart from"""
        stores = [files.parent(root) for root in self.roots if files.base(root) == "commitlog"]
        return tuple(place for place in (self.store, *self.roots, *stores, *self.protected) if place)

    @property
    def window(self) -> int:
        """milliseconds of --index-policy window:..., 0 for capacity"""
        return 0 if self.index_policy == "capacity" else parse_window(self.index_policy)

    @property
    def delays(self) -> tuple[int, ...]:
        return parse_delay_levels(self.delay_levels)

    @property
    def partial(self) -> bool:
        """whether less than the whole log is asked for"""
        limited = self.until_offset != INT64_MAX or self.until_time != INT64_MAX
        return bool(self.include_topics or self.exclude_topics or limited)

    def check(self) -> BuildSettings:
        """Raises UsageError for values that no build can have."""
        if self.cq_file_size < UNIT_SIZE or self.cq_file_size % UNIT_SIZE or self.cq_file_size > INT32_MAX:
            raise UsageError(f"--cq-file-size {self.cq_file_size}: take a multiple of {UNIT_SIZE} (one unit) below 2 GiB")
        if self.batch_cq_file_size < BATCH_UNIT_SIZE or self.batch_cq_file_size % BATCH_UNIT_SIZE:
            raise UsageError(
                f"--batch-cq-file-size {self.batch_cq_file_size}: take a multiple of {BATCH_UNIT_SIZE} (one batch unit)"
            )
        if self.batch_cq_file_size > INT32_MAX:
            raise UsageError(f"--batch-cq-file-size {self.batch_cq_file_size}: a file has at most 2 GiB")
        if self.batch_topics and self.broker_version == "4.9":
            raise UsageError(
                "--topics-config: has batch topics (queue.type=BatchCQ), which RocketMQ 4.9 does not know: leave it out"
            )
        if self.hash_slots < 1 or self.index_items < 2 or 40 + 4 * self.hash_slots + 20 * self.index_items > INT32_MAX:
            raise UsageError(
                f"--hash-slots {self.hash_slots} --index-items {self.index_items}: "
                "take at least 1 slot and 2 items, and at most 2 GiB a file"
            )
        if not self.tables and (self.messages_table or self.build_id):
            raise UsageError("--messages-table and --build-id go with --tables: name where the tables are")
        if self.build_id and not re.fullmatch(r"[A-Za-z0-9_.:+@/=-]{1,200}", self.build_id):
            raise UsageError(f"--build-id {self.build_id!a}: take up to 200 of A-Z a-z 0-9 _ . : + @ / = -")
        if self.segment_size > INT32_MAX:
            raise UsageError(f"--segment-size {self.segment_size}: a segment has at most 2 GiB")
        for name, value in (("segment-size", self.segment_size), ("range-size", self.range_size)):
            if value < 0:
                raise UsageError(f"--{name} {value}: take a number of bytes above 0")
        if self.until_offset < 0 or self.max_fill < 0:
            raise UsageError("--until-offset and --max-fill take a number from 0 on")
        if not self.out:
            raise UsageError("--out: name a folder")
        if not self.only or set(self.only) - set(PARTS):
            raise UsageError(f"--only {','.join(self.only)}: take one or more of {', '.join(PARTS)}")
        if self.incremental and not self.tables:
            raise UsageError("--incremental: name --tables as well: what is known of the log is kept there")
        if self.recheck and not self.incremental:
            raise UsageError("--recheck: goes with --incremental: a full build reads everything anyway")
        _ = self.window, self.delays
        try:
            store, out, *commitlogs = (files.checked(place) for place in (self.store, self.out, *self.commitlogs))
        except InputError as error:
            raise UsageError(str(error)) from None
        # DIR holds the build before: that is what --incremental goes on from.
        overwrite = self.overwrite or self.incremental
        tables = given_place(self.tables, self.incremental)
        return replace(self, store=store, out=out, commitlogs=tuple(commitlogs), overwrite=overwrite, tables=tables)

    def for_manifest(self) -> dict[str, Any]:
        """The settings that decide what is written (not where it runs)."""
        return {
            "only": list(self.only),
            "cq_file_size": self.cq_file_size,
            "batch_cq_file_size": self.batch_cq_file_size,
            "hash_slots": self.hash_slots,
            "index_items": self.index_items,
            "segment_size": self.segment_size,
            "index_policy": self.index_policy,
            "on_damage": self.on_damage,
            "queue_order": self.queue_order,
            "crc": self.crc,
            "checkpoint": self.checkpoint,
            "lmq": self.lmq,
            "delay_levels": self.delay_levels,
            "broker_version": self.broker_version,
            "include_topics": list(self.include_topics),
            "exclude_topics": list(self.exclude_topics),
            "until_offset": None if self.until_offset == INT64_MAX else self.until_offset,
            "until_time": None if self.until_time == INT64_MAX else self.until_time,
            "max_fill": self.max_fill,
            "write_topics": self.write_topics,
            "batch_topics": list(self.batch_topics),
        }


_DEFAULTS: Final = {setting.name: setting.default for setting in fields(BuildSettings)}


def parse_window(policy: str) -> int:
    """``window:1h`` as milliseconds. Raises UsageError."""
    found = re.fullmatch(r"window:(\d{1,12})(ms|s|m|h|d)", policy)
    window = int(found[1]) * UNITS[found[2]] if found else 0
    if not window:
        raise UsageError(f"--index-policy {policy!a}: take capacity, or window: and a time such as 30m, 1h or 1d")
    if window > INT64_MAX:
        raise UsageError(f"--index-policy {policy!a}: more milliseconds than 64 bits hold: take a shorter time")
    return window


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """``1s 5s ... 2h`` as milliseconds. Raises UsageError."""
    try:
        levels = delay_levels(text)
    except ValueError as error:
        raise UsageError(f"--delay-levels: {error}") from None
    return tuple(levels)


def parse_parts(text: str) -> tuple[str, ...]:
    """``index,checkpoint`` as parts, in their usual order."""
    asked = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in asked if word not in PARTS]
    if unknown or not asked:
        raise UsageError(f"--only {text!a}: take one or more of {', '.join(PARTS)}, separated by commas")
    return tuple(part for part in PARTS if part in asked)
