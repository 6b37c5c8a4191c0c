"""``verify`` of the Python API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from rocketmq_reindex.jobs.api.ending import result_of
from rocketmq_reindex.jobs.api.keyword_words import says_keywords
from rocketmq_reindex.jobs.api.keywords import PathLike, Paths, Size, given
from rocketmq_reindex.jobs.api.results import VerifyResult
from rocketmq_reindex.jobs.api.run_verify import run_verify
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.verifying.options import build_parser, verify_settings
from rocketmq_reindex.jobs.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@says_keywords
def verify(
    store: PathLike | None = None,
    *,
    only: str | Sequence[str] | None = None,
    sample: float | str | None = None,
    against: PathLike | None = None,
    report: PathLike | None = None,
    work: PathLike | None = None,
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
    max_fill: Size | None = None,
    snapshot: bool = False,
    range_size: Size | None = None,
    master: str | None = None,
    engine: Literal["spark", "local"] | None = None,
    progress: bool | Literal["lines", "json"] = False,
    log_format: Literal["text", "json"] | None = None,
    metrics: PathLike | None = None,
    store_name: str | None = None,
    incremental: bool = False,
    tables: PathLike | None = None,
    recheck: bool = False,
    spark: SparkSession | None = None,
) -> VerifyResult:
    """Compare a commitlog with its ConsumeQueues, IndexFiles and checkpoint, both ways, as ``rmq-reindex verify`` does.

    The store is only read. Each keyword is an option of the command; one that is left out has the option's default. Nothing is
    printed. Ctrl-C ends the run as the program's own handler of SIGINT has it, which is in its place again afterwards.

    Args:
        store: Folder of the store, or of a build, which needs ``commitlog``.
        only: The parts to compare: any of ``consumequeue``, ``index``, ``checkpoint``, ``log``. Default: all.
        sample: Share of the segments to read, above 0 and up to 1. Default: 1.
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
    ended = run_verify(lambda: verify_settings(given(build_parser(), keywords)), watch, Interrupts(install=False), spark)
    return result_of(VerifyResult, ended)
