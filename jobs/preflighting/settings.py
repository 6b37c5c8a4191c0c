"""What a preflight is asked, and the broker's settings that it goes by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rocketmq_reindex.storage_format.start.rules import DEFAULT_COUNT_LIMIT, RELEASES
from rocketmq_reindex.storage_format.versions import NEWEST, VERSIONS, line_of, numbers_of
from rocketmq_reindex.udfs import files

LINES: Final = {line: max((r for r in RELEASES if line_of(r) == line), key=RELEASES.index) for line in VERSIONS}
"""The newest release of each line: what ``--broker-version 5.5`` stands for."""


@dataclass(frozen=True, kw_only=True)
class BrokerSettings:
    """The settings of ``MessageStoreConfig`` that matter to a start, as a broker.conf gives them. None: not given."""

    segment_size: int | None = None
    """``mappedFileSizeCommitLog``; not given: taken from the files, and so with the other sizes"""
    cq_file_size: int | None = None
    batch_cq_file_size: int | None = None
    hash_slots: int | None = None
    index_items: int | None = None
    delay_levels: str = ""
    """``messageDelayLevel``; "" for the default"""
    start: Mapping[str, int | bool] = field(default_factory=dict)
    """by the names of ``StartSettings``: what a broker.conf says of the start itself"""
    timer_log_size: int = 100 << 20
    """``mappedFileSizeTimerLog``"""
    timer_precision: int | None = None
    """milliseconds of a slot (``timerPrecisionMs``)"""
    timer_rocksdb: bool = False
    """``timerRocksDBEnable`` (5.4 on)"""
    timer_wheel: bool = True
    """``timerWheelEnable`` (5.x)"""
    simple_queues: bool = False
    """``storeType`` is given, and is not ``defaultRocksDB``"""
    notes: tuple[str, ...] = ()
    """what the broker.conf has that matters, and is not taken into account"""


@dataclass(frozen=True, kw_only=True)
class PreflightSettings:
    """One question: what will a start of this release do to this store?"""

    store: str = field(kw_only=False)
    """local folder of the store"""
    commitlogs: tuple[str, ...] = ()
    """folders of segments, in the place of STORE/commitlog"""
    broker_version: str = NEWEST
    """a line, such as 5.5, or a release"""
    named: bool = False
    """whether the user gave it"""
    abort: bool | None = None
    """as if there was a file ``abort``, or none; None: as the store has it"""
    broker: BrokerSettings = field(default_factory=BrokerSettings)
    broker_conf: str = ""
    """the file that ``broker`` is from"""
    count_limit: int = DEFAULT_COUNT_LIMIT
    """bytes of the log that are walked at most, only to count"""
    json: bool = False

    @property
    def release(self) -> str:
        """The release whose start is worked out: of those that are known, the newest of the line that is not newer."""
        named = self.broker_version
        if named in LINES or named in RELEASES:
            return LINES.get(named, named)
        of_line = [release for release in RELEASES if line_of(release) == line_of(named)]
        return max(
            (release for release in of_line if numbers_of(release) <= numbers_of(named)), key=numbers_of, default=of_line[0]
        )

    @property
    def stands_for_another(self) -> bool:
        """Whether the start of a named release is not known, and that of another is worked out."""
        return self.broker_version not in LINES and self.broker_version != self.release

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of segments."""
        return self.commitlogs or (files.join(self.store, "commitlog"),)
