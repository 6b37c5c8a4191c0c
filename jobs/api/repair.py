"""``repair`` of the Python API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rocketmq_reindex.jobs.api.ending import result_of
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Paths, Size, given
from rocketmq_reindex.jobs.api.results import RepairResult
from rocketmq_reindex.jobs.api.run_build import run_build
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.repairing.options import build_parser, repair_settings
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@says_keywords
def repair(
    store: PathLike | None = None,
    *,
    out: PathLike,
    replica: Paths | None = None,
    extend: bool = False,
    majority: bool = False,
    link: Literal["reflink", "hard", "none"] | None = None,
    tombstones: bool = False,
    include_broken: bool = False,
    commitlog: Paths | None = None,
    cq_file_size: Size | None = None,
    batch_cq_file_size: Size | None = None,
    hash_slots: Size | None = None,
    index_items: Size | None = None,
    segment_size: Size | None = None,
    crc: Literal["none", "body", "all"] | None = None,
    lmq: bool = False,
    delay_levels: str | None = None,
    broker_version: str | None = None,
    broker_conf: PathLike | None = None,
    topics_config: PathLike | None = None,
    write_topics: bool = False,
    write_delay: bool = False,
    undecided: Literal["deliver", "drop"] | None = None,
    consumer_offsets: PathLike | None = None,
    max_fill: Size | None = None,
    snapshot: bool = False,
    range_size: Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: PathLike | None = None,
    store_name: str | None = None,
    spark: SparkSession | None = None,
) -> RepairResult:
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
    ended = run_build(lambda: repair_settings(given(build_parser(), keywords)), watch, interrupts, spark, command="repair")
    return result_of(RepairResult, ended)
