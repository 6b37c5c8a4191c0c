"""``build`` of the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rocketmq_reindex.jobs.api.ending import result_of
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Paths, Size, Time, given
from rocketmq_reindex.jobs.api.results import BuildResult
from rocketmq_reindex.jobs.api.run_build import run_build
from rocketmq_reindex.jobs.building.options import build_parser, build_settings
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@says_keywords
def build(
    store: PathLike | None = None,
    *,
    out: PathLike,
    commitlog: Paths | None = None,
    only: str | Sequence[str] | None = None,
    cq_file_size: Size | None = None,
    batch_cq_file_size: Size | None = None,
    hash_slots: Size | None = None,
    index_items: Size | None = None,
    segment_size: Size | None = None,
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
    until_offset: Size | None = None,
    until_time: Time | None = None,
    broker_conf: PathLike | None = None,
    topics_config: PathLike | None = None,
    write_topics: bool = False,
    write_delay: bool = False,
    undecided: Literal["deliver", "drop"] | None = None,
    consumer_offsets: PathLike | None = None,
    max_fill: Size | None = None,
    overwrite: bool = False,
    allow_empty: bool = False,
    snapshot: bool = False,
    range_size: Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    dry_run: bool = False,
    keep_zeros: bool = False,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: PathLike | None = None,
    store_name: str | None = None,
    tables: PathLike | None = None,
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
    ended = run_build(lambda: build_settings(given(build_parser(), keywords)), watch, Interrupts(install=False), spark)
    return result_of(BuildResult, ended)
