"""``build``, ``repair``, ``verify`` and ``export`` of the Python API: they run an engine, or may."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rocketmq_reindex.jobs.api import keywords as api_keywords, running, running_here
from rocketmq_reindex.jobs.building.options import build_settings
from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
from rocketmq_reindex.jobs.command import option
from rocketmq_reindex.jobs.command.results import Interrupts, Result
from rocketmq_reindex.jobs.repairing.options import repair_settings
from rocketmq_reindex.jobs.verifying.options import verify_settings
from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from rocketmq_reindex.jobs.watching.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.exporting.options import ExportResult

R = TypeVar("R", bound=Result)
S = TypeVar("S")
Run = Callable[[Callable[[], S], Watch, Interrupts, "SparkSession | None"], running_here.Ended[R]]


def _result(command: str, run: Run[S, R], settings_of: Callable[[dict[str, Any]], S], keywords: dict[str, Any]) -> R:
    """Run a command with these keywords, and return its result. Raises as ``result_of``."""
    watch = Watch(command, json_log=keywords["log_format"] == "json", quiet=keywords["progress"] is False)
    return api_keywords.result_of(
        run(lambda: settings_of(api_keywords.given(command, keywords)), watch, Interrupts(install=False), keywords["spark"])
    )


@api_keywords.says_keywords
def build(
    store: api_keywords.PathLike | None = None,
    *,
    out: api_keywords.PathLike,
    commitlog: api_keywords.Paths | None = None,
    only: str | Sequence[str] | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    cq_ext: option.CqExt | None = None,
    cq_ext_file_size: api_keywords.Size | None = None,
    consumequeue_type: option.ConsumeQueueType | None = None,
    expired_queues: option.ExpiredQueues | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    index_policy: str | None = None,
    on_damage: option.OnDamage | None = None,
    queue_order: option.QueueOrder | None = None,
    crc: option.Crc | None = None,
    checkpoint: option.CheckpointKind | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    include_topic: str | Sequence[str] | None = None,
    exclude_topic: str | Sequence[str] | None = None,
    until_offset: api_keywords.Size | None = None,
    until_time: api_keywords.Time | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    topics_config: api_keywords.PathLike | None = None,
    write_topics: bool = False,
    write_delay: bool = False,
    undecided: option.Undecided | None = None,
    consumer_offsets: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    overwrite: bool = False,
    allow_empty: bool = False,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: option.Engine | None = None,
    dry_run: bool = False,
    keep_zeros: bool = False,
    progress: bool | option.Progress = False,
    log_format: option.LogFormat | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    tables: api_keywords.PathLike | None = None,
    messages_table: bool = False,
    incremental: bool = False,
    recheck: bool = False,
    build_id: str | None = None,
    spark: SparkSession | None = None,
) -> BuildResult:
    """Build ConsumeQueue, IndexFiles and checkpoint from the raw segments of a commitlog, as ``rmq-reindex build`` does.

    The store is only read. ``out`` appears when all of the result is there, or not at all. Each keyword is an option of the
    command; one that is left out has the option's default. Nothing is printed. Ctrl-C ends the run as the
    program's own handler of SIGINT has it, which is in its place again afterwards; nothing is published then.

    Returns:
        The summary of the build. Its ``exit_status`` is 3 where damaged parts of the log are missing from the result.

    Raises:
        UsageError: The keywords contradict each other, or have values that are not possible (exit status 2).
        RefusedError: Damage or queue order that the policy refuses (exit status 5). ``result`` says where.
        ReindexError: Any other failure (exit status 1). Nothing is published.

    Example:
        >>> import rocketmq_reindex as rr
        >>> summary = rr.build(
        ...     "store", out="rebuilt", cq_file_size=4000, hash_slots=500, index_items=1500, on_damage="salvage", spark=spark
        ... )
        >>> summary.exit_status, summary.records, summary.files
        (0, 2500, {'consumequeue': 20, 'index': 6})
    """
    return _result("build", running.run_build, build_settings, dict(locals()))


@api_keywords.says_keywords
def repair(
    store: api_keywords.PathLike | None = None,
    *,
    out: api_keywords.PathLike,
    to_plain: bool = False,
    replica: api_keywords.Paths | None = None,
    extend: bool = False,
    majority: bool = False,
    link: option.Link | None = None,
    tombstones: bool = False,
    include_broken: bool = False,
    commitlog: api_keywords.Paths | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    cq_ext: option.CqExt | None = None,
    cq_ext_file_size: api_keywords.Size | None = None,
    consumequeue_type: option.ConsumeQueueType | None = None,
    expired_queues: option.ExpiredQueues | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    crc: option.Crc | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    topics_config: api_keywords.PathLike | None = None,
    write_topics: bool = False,
    write_delay: bool = False,
    undecided: option.Undecided | None = None,
    consumer_offsets: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: option.Engine | None = None,
    progress: bool | option.Progress = False,
    log_format: option.LogFormat | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    spark: SparkSession | None = None,
) -> RepairResult:
    """Write a new commitlog that a broker accepts whole, and the files derived from it, as ``rmq-reindex repair`` does.

    The store and the replicas are only read. ``out`` appears when all of the result is there, or not at all. All messages keep
    their offsets; with ``to_plain`` those in their queues. Nothing is printed.

    Returns:
        The summary of the repair. Its ``exit_status`` is 3 where fillers stand for lost bytes.

    Raises:
        UsageError: The keywords contradict each other, or have values that are not possible (exit status 2).
        RefusedError: A segment has a wrong name, or the log is damaged in more places than damage has (exit status 5).
        ReindexError: Any other failure (exit status 1). Nothing is published.

    Example:
        >>> import rocketmq_reindex as rr
        >>> mended = rr.repair("store", out="mended", cq_file_size=4000, hash_slots=500, index_items=1500, spark=spark)
        >>> mended.exit_status, mended.repair["ranges"]
        (0, [])
    """
    return _result("repair", running.run_repair, repair_settings, dict(locals()))


@api_keywords.says_keywords
def verify(
    store: api_keywords.PathLike | None = None,
    *,
    only: str | Sequence[str] | None = None,
    sample: float | str | None = None,
    against: api_keywords.PathLike | None = None,
    report: api_keywords.PathLike | None = None,
    work: api_keywords.PathLike | None = None,
    commitlog: api_keywords.Paths | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    crc: option.Crc | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    topics_config: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: option.Engine | None = None,
    progress: bool | option.Progress = False,
    log_format: option.LogFormat | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    incremental: bool = False,
    tables: api_keywords.PathLike | None = None,
    recheck: bool = False,
    spark: SparkSession | None = None,
) -> VerifyResult:
    """Compare a commitlog with its ConsumeQueues, IndexFiles and checkpoint, both ways, as ``rmq-reindex verify`` does.

    The store is only read. Each keyword is an option of the command; one that is left out has the option's default. Nothing is
    printed. Ctrl-C ends the run as the program's own handler of SIGINT has it, which is in its place again afterwards.

    Returns:
        The summary of the verify. Its ``exit_status`` is 0 where nothing differs, and 4 where something does.

    Raises:
        UsageError: The keywords contradict each other, or have values that are not possible (exit status 2).
        ReindexError: Any other failure (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> found = rr.verify("rebuilt", commitlog="store/commitlog", spark=spark)
        >>> found.exit_status, found.units, found.findings
        (0, 2500, [])
    """
    return _result("verify", running.run_verify, verify_settings, dict(locals()))


@api_keywords.says_keywords
def export(
    store: api_keywords.PathLike | None = None,
    *,
    to: api_keywords.PathLike | None = None,
    format: option.ExportFormat | None = None,  # noqa: A002  the option's name
    topic: str | Sequence[str] | None = None,
    queue: api_keywords.Size | None = None,
    begin_offset: api_keywords.Size | None = None,
    end_offset: api_keywords.Size | None = None,
    since: api_keywords.Time | None = None,
    until: api_keywords.Time | None = None,
    key: str | Sequence[str] | None = None,
    tag: str | Sequence[str] | None = None,
    sql: str | None = None,
    text: str | None = None,
    regex: str | None = None,
    unconsumed_by: str | None = None,
    consumer_offsets: api_keywords.Paths | None = None,
    dlq: str | None = None,
    undecided: bool = False,
    kind: option.RecordKind | Sequence[option.RecordKind] | None = None,
    count: bool = False,
    body: option.ExportBody | None = None,
    body_max: api_keywords.Size | None = None,
    allow_empty: bool = False,
    resumable: bool = False,
    commitlog: api_keywords.Paths | None = None,
    delay_levels: str | None = None,
    engine: option.Engine | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
) -> ExportResult:
    """Write messages of a store into a file or a folder, as ``rmq-reindex export`` does. Nothing is printed.

    The log is read once, by all processors or the workers of Spark, in bounded memory. No ConsumeQueue and no index is needed.

    Returns:
        What was written. Its ``exit_status`` is 0, or 3 where parts of the log are damaged: what was in them is not exported.

    Raises:
        UsageError: A keyword has a value that is not possible (exit status 2).
        InputError: There is no log, ``to`` is there, or no message is as was asked for (exit status 1). Nothing is written.
        ReindexError: Any other failure (exit status 1). Nothing is written.

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.export("store", topic="TopicA", count=True).messages
        522
        >>> done = rr.export("store", topic="TopicA", to="messages.jsonl")
        >>> done.messages, done.files
        (522, 1)
        >>> rr.export("store", topic="TopicA", to="messages", format="parquet", spark=spark).messages
        522
    """
    keywords = dict(locals())
    from rocketmq_reindex.jobs.exporting.options import export_settings

    return api_keywords.result_of(
        running_here.run_export(
            lambda: export_settings(api_keywords.given("export", keywords)), Interrupts(install=False), quiet=True, spark=spark
        )
    )
