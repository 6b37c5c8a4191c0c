"""``build``, ``repair`` and ``verify`` of the Python API: they run an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rocketmq_reindex.jobs.api import (
    keywords as api_keywords,
    results,
    run_build as api_run_build,
    run_verify as api_run_verify,
)
from rocketmq_reindex.jobs.building.options import build_settings
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.repairing.options import repair_settings
from rocketmq_reindex.jobs.verifying.options import verify_settings
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# ------------------------------------------------------------------------------------------------------------------------ build
# ``build`` of the Python API.


@api_keywords.says_keywords
def build(
    store: api_keywords.PathLike | None = None,
    *,
    out: api_keywords.PathLike,
    commitlog: api_keywords.Paths | None = None,
    only: str | Sequence[str] | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    index_policy: str | None = None,
    on_damage: Literal["fail", "stop", "salvage"] | None = None,
    queue_order: Literal["logical", "broker", "fail"] | None = None,
    crc: Literal["none", "body", "all"] | None = None,
    checkpoint: Literal["safe", "broker"] | None = None,
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
    undecided: Literal["deliver", "drop"] | None = None,
    consumer_offsets: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    overwrite: bool = False,
    allow_empty: bool = False,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    dry_run: bool = False,
    keep_zeros: bool = False,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    tables: api_keywords.PathLike | None = None,
    messages_table: bool = False,
    incremental: bool = False,
    recheck: bool = False,
    build_id: str | None = None,
    spark: SparkSession | None = None,
) -> results.BuildResult:
    """Build ConsumeQueue, IndexFiles and checkpoint from the raw segments of a commitlog, as ``rmq-reindex build`` does.

    The store is only read. ``out`` appears when all of the result is there, or not at all. Each keyword is an option of the
    command; one that is left out has the option's default. Nothing is printed. Ctrl-C ends the run as the
    program's own handler of SIGINT has it, which is in its place again afterwards; nothing is published then.

    Args:
        store: Folder or URI of the store. The segments are in ``store/commitlog``.
        out: New folder or URI for the result, apart from ``store``.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.
        only: The parts to build: any of ``consumequeue``, ``index``, ``checkpoint``. Default: all.
        cq_file_size: Size of a ConsumeQueue file in bytes, a multiple of 20. Default: taken from the files, or 6000000.
        batch_cq_file_size: Size of a batch ConsumeQueue file in bytes, a multiple of 46. Default:
            taken from the files, or 13800000.
        hash_slots: Number of slots of an IndexFile. Default: taken from the files, or 5000000.
        index_items: Number of items of an IndexFile, as ``maxIndexNum``. Default: taken from the files, or 20000000.
        segment_size: Size of a whole segment in bytes. Default: taken from the files.
        index_policy: ``capacity`` starts a new IndexFile when one is full; ``window:1h`` also at each full hour.
            Default: ``capacity``.
        on_damage: What to do about damage: ``fail`` refuses it (``repair`` makes a sound log of it), ``stop`` builds up to the
            first damage and loses what follows, ``salvage`` goes on behind it. Default: ``fail``.
        queue_order: What to do where the offsets of a queue repeat or have gaps. Default: ``logical``.
        crc: The checksums that are verified. Default: ``body``.
        checkpoint: ``safe`` keeps the index at the next crash, ``broker`` gives the bytes of the broker's own rebuild.
            Default: ``safe``.
        lmq: Also build light message queues.
        delay_levels: ``messageDelayLevel`` of the broker. Default: ``1s 5s 10s 30s 1m ... 2h``.
        broker_version: The version for which to build, where the bytes differ: a line or a release. Default:
            taken from the files, or ``5.5``.
        include_topic: One or more globs: only these topics.
        exclude_topic: One or more globs: not these topics.
        until_offset: Only records that start below this offset of the commitlog, in bytes.
        until_time: Stop at the first record stored later: a ``datetime`` with its zone, milliseconds since 1970, or an ISO
            text.
        broker_conf: A ``broker.conf``, for sizes, folders, delay levels and LMQ. Keywords win.
        topics_config: A broker's ``config/topics.json``, for batch topics.
        write_topics: Also draft ``out/config/topics.json`` from the log.
        write_delay: Also write what was delivered of delayed and timer messages, so that a broker delivers the pending ones.
        undecided: With ``write_delay``: ``deliver`` or ``drop`` messages of which the log does not tell whether they were
            delivered. Default: ``deliver``.
        consumer_offsets: A backup's ``config/consumerOffset.json``: it is checked against the log, and put into ``out``.
        max_fill: Number of missing queue offsets that ``logical`` may fill. Default: 100000.
        overwrite: Replace what an earlier build wrote to ``out``.
        allow_empty: A log without records may replace a build that has some.
        snapshot: The log no longer changes: do not look whether a broker runs on the store.
        range_size: Number of bytes of a segment that one task takes at most. Default: by the plan.
        master: Spark master where no session is there yet; of engine ``local``, how many processes. Default: ``local[*]``.
        engine: What runs the tasks: ``spark``, or ``local``, processes of this machine, which need no Java. Default: ``spark``.
        dry_run: Write nothing. The ``text`` of the result says what would be read and written.
        keep_zeros: Behind a URI store files with the zeros at their end.
        progress: Show progress and warnings on stderr: True or ``lines``, or ``json``.
        log_format: ``json`` writes messages to stderr as JSON objects.
        metrics: File for figures of the run, for Prometheus.
        store_name: Name of the store in logs and metrics. Default: ``store``.
        tables: Folder or URI of Delta tables that record the run. With ``engine="local"`` only what ``incremental`` knows is
            kept there.
        messages_table: With ``tables``: also write a row for each message, without its body.
        incremental: Read only what is new since the build in ``out``. Needs ``tables``.
        recheck: With ``incremental``: read everything again, and compare digests.
        build_id: With ``tables``: name of the run. A retry with the same name replaces its rows.
        spark: The session to work in. It is not stopped. Default: the session that is there, or else one of ``master`` for
            this call alone.

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
    keywords = dict(locals())
    watch = Watch("build", json_log=log_format == "json", quiet=progress is False)
    ended = api_run_build.run_build(
        lambda: build_settings(api_keywords.given("build", keywords)), watch, Interrupts(install=False), spark
    )
    return api_keywords.result_of(results.BuildResult, ended)


# ----------------------------------------------------------------------------------------------------------------------- repair
# ``repair`` of the Python API.


@api_keywords.says_keywords
def repair(
    store: api_keywords.PathLike | None = None,
    *,
    out: api_keywords.PathLike,
    replica: api_keywords.Paths | None = None,
    extend: bool = False,
    majority: bool = False,
    link: Literal["reflink", "hard", "none"] | None = None,
    tombstones: bool = False,
    include_broken: bool = False,
    commitlog: api_keywords.Paths | None = None,
    cq_file_size: api_keywords.Size | None = None,
    batch_cq_file_size: api_keywords.Size | None = None,
    hash_slots: api_keywords.Size | None = None,
    index_items: api_keywords.Size | None = None,
    segment_size: api_keywords.Size | None = None,
    crc: Literal["none", "body", "all"] | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    topics_config: api_keywords.PathLike | None = None,
    write_topics: bool = False,
    write_delay: bool = False,
    undecided: Literal["deliver", "drop"] | None = None,
    consumer_offsets: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    spark: SparkSession | None = None,
) -> results.RepairResult:
    """Write a new commitlog that a broker accepts whole, and the files derived from it, as ``rmq-reindex repair`` does.

    The store and the replicas are only read. ``out`` appears when all of the result is there, or not at all. All messages keep
    their offsets. Nothing is printed.

    Args:
        store: Folder or URI of the damaged store. The segments are in ``store/commitlog``.
        out: New folder or URI for the result, apart from ``store``.
        replica: One or more stores of replicas, or backups. What is lost is taken from the first where both logs are sure to be
            the same.
        extend: Also take what a replica has behind the end of the log.
        majority: Take a sound record that most of the log and its replicas have otherwise from them.
        link: How unchanged segments may share their bytes with the old ones: ``reflink`` where the file system can, ``hard``
            links for those before the log's end, or ``none``. Default: ``reflink``.
        tombstones: Put a record with the tag ``__LOST__`` at each queue offset that is known to be lost.
        include_broken: Keep records whose body CRC alone is wrong, for a broker with ``checkCRCOnRecover=false``.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.
        cq_file_size: Size of a ConsumeQueue file in bytes, a multiple of 20. Default: taken from the files, or 6000000.
        batch_cq_file_size: Size of a batch ConsumeQueue file in bytes, a multiple of 46. Default:
            taken from the files, or 13800000.
        hash_slots: Number of slots of an IndexFile. Default: taken from the files, or 5000000.
        index_items: Number of items of an IndexFile, as ``maxIndexNum``. Default: taken from the files, or 20000000.
        segment_size: Size of a whole segment in bytes. Default: taken from the files.
        crc: The checksums that are verified. Default: ``body``.
        lmq: Also build light message queues.
        delay_levels: ``messageDelayLevel`` of the broker. Default: ``1s 5s 10s 30s 1m ... 2h``.
        broker_version: The version for which to build, where the bytes differ: a line or a release. Default:
            taken from the files, or ``5.5``.
        broker_conf: A ``broker.conf``, for sizes, folders, delay levels and LMQ. Keywords win.
        topics_config: A broker's ``config/topics.json``, for batch topics.
        write_topics: Also draft ``out/config/topics.json`` from the log.
        write_delay: Also write what was delivered of delayed and timer messages, so that a broker delivers the pending ones.
        undecided: With ``write_delay``: ``deliver`` or ``drop`` messages of which the log does not tell whether they were
            delivered. Default: ``deliver``.
        consumer_offsets: A backup's ``config/consumerOffset.json``: it is checked against the log, and put into ``out``.
        max_fill: Number of missing queue offsets that may be filled. Default: 100000.
        snapshot: The log no longer changes: do not look whether a broker runs on the store.
        range_size: Number of bytes of a segment that one task takes at most. Default: by the plan.
        master: Spark master where no session is there yet; of engine ``local``, how many processes. Default: ``local[*]``.
        engine: What runs the tasks: ``spark``, or ``local``, processes of this machine, which need no Java. Default: ``spark``.
        progress: Show progress and warnings on stderr: True or ``lines``, or ``json``.
        log_format: ``json`` writes messages to stderr as JSON objects.
        metrics: File for figures of the run, for Prometheus.
        store_name: Name of the store in logs and metrics. Default: ``store``.
        spark: The session to work in. It is not stopped. Default: the session that is there, or else one of ``master`` for
            this call alone.

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
    keywords = dict(locals())
    watch = Watch("repair", json_log=log_format == "json", quiet=progress is False)
    interrupts = Interrupts(install=False)
    ended = api_run_build.run_build(
        lambda: repair_settings(api_keywords.given("repair", keywords)), watch, interrupts, spark, command="repair"
    )
    return api_keywords.result_of(results.RepairResult, ended)


# ----------------------------------------------------------------------------------------------------------------------- verify
# ``verify`` of the Python API.


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
    crc: Literal["none", "body", "all"] | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    broker_conf: api_keywords.PathLike | None = None,
    topics_config: api_keywords.PathLike | None = None,
    max_fill: api_keywords.Size | None = None,
    snapshot: bool = False,
    range_size: api_keywords.Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: api_keywords.PathLike | None = None,
    store_name: str | None = None,
    incremental: bool = False,
    tables: api_keywords.PathLike | None = None,
    recheck: bool = False,
    spark: SparkSession | None = None,
) -> results.VerifyResult:
    """Compare a commitlog with its ConsumeQueues, IndexFiles and checkpoint, both ways, as ``rmq-reindex verify`` does.

    The store is only read. Each keyword is an option of the command; one that is left out has the option's default. Nothing is
    printed. Ctrl-C ends the run as the program's own handler of SIGINT has it, which is in its place again afterwards.

    Args:
        store: Folder of the store, or of a build, which needs ``commitlog``.
        only: The parts to compare: any of ``consumequeue``, ``index``, ``checkpoint``, ``log``. Default: all.
        sample: Share of the segments to read, above 0 and up to 1. Default: 1.0.
        against: Another store: compare ``store`` with it instead of with its log.
        report: File for the same summary as JSON, for :func:`rocketmq_reindex.report`.
        work: Folder for index items while the run goes on. On a cluster all executors share it. Default: a temporary one.
        commitlog: One or more folders of segments, instead of ``store/commitlog``.
        cq_file_size: Size of a ConsumeQueue file in bytes. Default: taken from the files.
        batch_cq_file_size: Size of a batch ConsumeQueue file in bytes. Default: taken from the files.
        hash_slots: Number of slots of an IndexFile. Default: taken from the files.
        index_items: Number of items of an IndexFile. Default: taken from the files.
        segment_size: Size of a whole segment in bytes. Default: taken from the files.
        crc: The checksums that are verified. Default: ``body``.
        lmq: Also compare light message queues.
        delay_levels: ``messageDelayLevel`` of the broker. Default: ``1s 5s 10s 30s 1m ... 2h``.
        broker_version: The version that wrote the store, where the bytes differ. Default: the one that fits the store best.
        broker_conf: A ``broker.conf``, for sizes, folders, delay levels and LMQ. Keywords win.
        topics_config: A broker's ``config/topics.json``, for batch topics. Default: that of the store.
        max_fill: Number of missing queue offsets that a build may fill. Default: 100000.
        snapshot: The log no longer changes: do not look whether a broker runs on the store.
        range_size: Number of bytes of a segment that one task takes at most. Default: by the plan.
        master: Spark master where no session is there yet; of engine ``local``, how many processes. Default: ``local[*]``.
        engine: What runs the tasks: ``spark``, or ``local``, processes of this machine, which need no Java. Default: ``spark``.
        progress: Show progress and warnings on stderr: True or ``lines``, or ``json``.
        log_format: ``json`` writes messages to stderr as JSON objects.
        metrics: File for figures of the run, for Prometheus.
        store_name: Name of the store in logs and metrics. Default: ``store``.
        incremental: Read only what is new in the log since the last verify of ``store``. It needs ``tables``.
        tables: Folder or URI below which an incremental verify keeps what it found in the log.
        recheck: In an incremental verify read all that is known again, and compare digests.
        spark: The session to work in. It is not stopped. Default: the session that is there, or else one of ``master`` for
            this call alone.

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
    keywords = dict(locals())
    watch = Watch("verify", json_log=log_format == "json", quiet=progress is False)
    ended = api_run_verify.run_verify(
        lambda: verify_settings(api_keywords.given("verify", keywords)), watch, Interrupts(install=False), spark
    )
    return api_keywords.result_of(results.VerifyResult, ended)
