"""The RocketMQ versions: the lines that write different bytes, the releases that start in another way, and their rules.

This file imports little, because options show what stands here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

# ------------------------------------------------------------------------------------------------------------------------ lines
# What a broker of one line writes, or reads, in another way than another. A line is one entry of RULES.


@dataclass(frozen=True, kw_only=True)
class VersionRules:
    """The rules of one line."""

    version: str
    """as ``--broker-version`` names it"""
    tag_items: bool = True
    """a record with TAGS gets an index item ``topic#T#TAGS`` behind those of its keys (``IndexService``, 5.4.0 on)"""
    checkpoint_fields: int = 6
    """how many longs of the checkpoint it sets: 4.9 has no masterFlushedOffset and no confirmPhyOffset, 5.5.0 added
    logicsPhysicalOffset (``StoreCheckpoint``)"""
    thorough_flush: bool = True
    """logicsMsgTimestamp moves only as all ConsumeQueues are flushed, once a minute, and only to a time above 0: it may lie far
    behind the last record (``ConsumeQueueStore.FlushConsumeQueueService``, 5.5.0 on)"""
    record_v2: bool = True
    """it reads records of the second version, whose topic may be longer (``MessageVersion``, 5.0 on)"""
    batch_queues: bool = True
    """it has batch ConsumeQueues, and takes INNER_NUM and INNER_BASE of a record (``BatchConsumeQueue``, 5.0 on)"""
    lmq_by_topic: bool = True
    """records of retry topics, system topics and the schedule topic go to no LMQ (``MultiDispatchUtils``, 5.0 on)"""
    lmq_counts_each: bool = True
    """an LMQ's offset counts each time that a record names it, though it gets one unit (``LmqDispatch.updateLmqOffsets``, 5.0
    on)"""
    empty_index_count: int = 1
    """indexCount in the header of an IndexFile without items: 4.9 leaves it 0 until the first item (``IndexHeader``)"""
    recovered_segments: int = 1
    """how many segments it reads again when it starts after a clean stop (``CommitLog.recoverNormally``). Of a whole store: the
    search goes back to the newest segment that begins at or below the newest unit"""
    drops_empty_files: bool = True
    """as it starts it removes a last file of 0 bytes, and passes over folders among files; 4.9 does not start
    (``MappedFileQueue.doLoad``)"""
    opens_empty_queue_file: bool = True
    """it starts on a queue whose last file holds no unit, and leaves such files; 5.3 and 5.4 read before the file's start
    (``ConsumeQueue.correctMinOffset``)"""


_5_3: Final = VersionRules(
    version="5.3", checkpoint_fields=5, thorough_flush=False, tag_items=False, opens_empty_queue_file=False
)  # fmt: skip
RULES: Final = {
    rules.version: rules
    for rules in (
        VersionRules(version="5.5"),
        replace(_5_3, version="5.4", tag_items=True),
        _5_3,
        replace(
            _5_3, version="4.9", checkpoint_fields=3, record_v2=False, batch_queues=False, lmq_by_topic=False,
            lmq_counts_each=False, empty_index_count=0, recovered_segments=3, drops_empty_files=False,
            opens_empty_queue_file=True,
        ),
    )
}  # fmt: skip
VERSIONS: Final = tuple(RULES)
"""newest first"""
NEWEST: Final = VERSIONS[0]
_RELEASE: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.([0-9]{1,3}))?")


def alike(versions: Iterable[str]) -> bool:
    """Return whether a broker of each of ``versions`` takes the files of a build for any of them as its own.

    5.3 and 4.9 are alike: 4.9 does not read the two fields more that the checkpoint of 5.3 has (``StoreCheckpoint``). Light
    queues are not looked at: they are in no build without ``--lmq``. False where there is no version.
    """
    return len({(RULES[version].tag_items, RULES[version].thorough_flush) for version in versions}) == 1


def numbers_of(release: str) -> tuple[int, ...]:
    """Return the numbers of a release or a line, to compare it by. Raises ValueError for a word of another form."""
    match = _RELEASE.fullmatch(release)
    if not match:
        raise ValueError(f"{release!a} is no release such as 5.3.3, and no line such as 5.3")
    return tuple(int(number) for number in match.groups() if number)


def line_of(release: str) -> str:
    """Return the line, one of VERSIONS, whose bytes a release writes: 5.3 for 5.1.4, 4.9 for all of 4.x.

    Raises ValueError for what is no release, and for one that is older or newer than all lines.
    """
    numbers, lines = numbers_of(release)[:2], [numbers_of(line) for line in reversed(VERSIONS)]
    if numbers[0] < lines[0][0] or numbers > lines[-1]:
        raise ValueError(f"{release} is not known: take one of {', '.join(VERSIONS)}, or a release of 4.x to {NEWEST}.x")
    return next(version for version, line in zip(reversed(VERSIONS), lines, strict=True) if numbers <= line)


# --------------------------------------------------------------------------------------------------------------------- releases
# What the start of one release does in another way than another. A release is one entry of RELEASES.


@dataclass(frozen=True)
class StartRules:
    """The rules of one release; of ``CommitLog``, ``ConsumeQueueStore`` and ``ConsumeQueue`` unless they say otherwise."""

    release: str
    line: VersionRules
    """those of its line; a record's size is checked against the file before it is read where that has ``record_v2``"""
    opens_abort: bool
    """it does not start where a folder has the name ``abort`` (5.x)"""
    index_folder_fails: bool
    """a folder among IndexFiles keeps the store from loading; 4.9 loads none of the files behind it (``IndexService``)"""
    timers: bool
    """it has timer messages (``TimerMessageStore``, 5.0 on)"""
    delivers_early: bool
    """delayed messages are delivered before all is dispatched (``DefaultMessageStore.start``, 5.x)"""
    negative_sizes: bool
    """a filler with a negative size ends a segment (before 5.5.1)"""
    dispatches_while_recovering: bool
    """``recoverNormally`` dispatches; in 4.9 only ``ReputMessageService`` does"""
    first_record_parses: bool
    """a segment is begun with only where its first record is accepted (5.3.4 on)"""
    limits_segments: bool
    """``commitLogRecoverMaxNum`` (5.4.0 on)"""
    logics_offset: bool
    """an abnormal start looks at the checkpoint's logicsPhysicalOffset (5.5.0 on)"""
    cuts_by_new_units: bool
    """units are cut where those just dispatched reach the log's end, too (5.3.4 on)"""
    searches_min_offset: bool
    """``correctMinOffset`` looks at the last unit, then searches the first file by halves (5.x)"""
    empty_file_fails: bool
    """``correctMinOffset`` fails at a last file without units (5.3.3 to 5.4.0)"""
    resets_empty_queue: bool
    """``correctMinOffset`` sets a queue without files back (5.5.1)"""


def _start_rules(release: str, number: int) -> StartRules:
    return StartRules(
        release,
        RULES[line_of(release)],
        opens_abort=number >= 1,
        index_folder_fails=number >= 1,
        timers=number >= 1,
        delivers_early=number >= 1,
        negative_sizes=number < 5,
        dispatches_while_recovering=number >= 1,
        first_record_parses=number >= 2,
        limits_segments=number >= 3,
        logics_offset=number >= 4,
        cuts_by_new_units=number >= 2,
        searches_min_offset=number >= 1,
        empty_file_fails=1 <= number <= 3,
        resets_empty_queue=number >= 5,
    )


RELEASES: Final = ("4.9.8", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1")
"""The releases whose start is known here, oldest first."""
LATEST: Final = {line_of(release): release for release in RELEASES}
"""The newest release of each line: what ``--broker-version 5.5`` stands for."""
START_RULES: Final = {release: _start_rules(release, number) for number, release in enumerate(RELEASES)}
