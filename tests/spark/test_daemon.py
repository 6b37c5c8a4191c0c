"""The daemon of Spark's workers: one that waits takes over, and where none does the one that Spark starts is it."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import struct
import subprocess
import sys
import zipimport
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark.daemon import daemon_ahead, name_daemon
from rocketmq_reindex.udfs.worker.daemon import VARIABLE
from tests.tools.faulty_processes import stat, wait_until

_INT = struct.Struct("!i")


def _parent(process: int) -> int:
    return int(stat(process)[1])


def _words(process: int) -> list[str]:
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")


@contextlib.contextmanager
def _as_spark_starts_it() -> Iterator[subprocess.Popen[bytes]]:
    """``PythonWorkerFactory.startDaemon``: the port comes by stdout, and stdin's end is the daemon's."""
    words = [sys.executable, "-m", "rocketmq_reindex.udfs.worker.daemon", "pyspark.worker"]
    told = os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "secret"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=told) as daemon:
        yield daemon


def _worker(daemon: subprocess.Popen[bytes]) -> tuple[socket.socket, int]:
    assert daemon.stdout is not None
    port = _INT.unpack(daemon.stdout.read(_INT.size))[0]
    link = socket.create_connection(("127.0.0.1", port), timeout=900)
    return link, _INT.unpack(link.recv(_INT.size, socket.MSG_WAITALL))[0]


def _waits() -> bool:
    """Whether a daemon waits at its socket."""
    return f"@rmq-reindex-{os.environ[VARIABLE]}" in Path("/proc/net/unix").read_text(errors="replace")


def _is_gone(process: int) -> bool:
    try:
        return stat(process)[0] == "Z"
    except OSError:
        return True


def _settled(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        kept = getattr(zipimport.zipimporter.invalidate_caches, "keeps_directories", False)
        yield pa.RecordBatch.from_pydict({"id": batch["id"], "frozen": [gc.get_freeze_count()], "kept": [kept]})


def test_its_workers_repeat_nothing_for_a_task(spark: SparkSession) -> None:
    """Not even in their first one, whoever wrote it: a query in SQL has many short ones."""
    rows = spark.range(0, 8, 1, 8).mapInArrow(_settled, "id bigint, frozen bigint, kept boolean").collect()
    assert {(row.frozen > 10_000, row.kept) for row in rows} == {(True, True)}


@pytest.mark.parametrize("wanted", [True, False], ids=["ahead", "alone"])
def test_who_forks_the_workers(wanted: bool) -> None:
    waiting: AbstractContextManager[None] = daemon_ahead() if wanted else contextlib.nullcontext()
    with name_daemon(), waiting:
        wait_until(lambda: _waits() is wanted)
        with _as_spark_starts_it() as daemon:
            link, worker = _worker(daemon)
            with link:
                parent = _parent(worker)
                assert (parent == daemon.pid) is not wanted
                assert {os.readlink(f"/proc/{process}/cwd") for process in (parent, worker, daemon.pid)} == {"/"}
                assert _words(parent)[1:4] == [
                    "-m",
                    "rocketmq_reindex.udfs.worker.daemon",
                    "ahead" if wanted else "pyspark.worker",
                ]
                assert daemon.poll() is None
                assert daemon.stdin is not None
                daemon.stdin.close()
                daemon.wait(900)
            # One just forked does not listen to SIGHUP yet: it ends with its connection.
            wait_until(lambda: _is_gone(worker))
    assert VARIABLE not in os.environ


def test_one_that_ended_is_not_waited_for() -> None:
    with name_daemon():
        with daemon_ahead():
            pass
        with _as_spark_starts_it() as daemon:
            link, worker = _worker(daemon)
            assert _parent(worker) == daemon.pid
            link.close()
            daemon.kill()


def test_it_ends_with_the_process_that_started_it() -> None:
    with name_daemon():
        words = [sys.executable, "-m", "rocketmq_reindex.udfs.worker.daemon", "ahead"]
        daemon = subprocess.Popen(words, stdin=subprocess.PIPE)
        daemon.communicate(timeout=900)
        assert daemon.returncode == 0


@pytest.mark.parametrize("sent", [b"", struct.pack("<Q", 100) + b"{}"], ids=["nothing", "half an environment"])
def test_it_says_that_the_daemon_has_ended(sent: bytes) -> None:
    """One that Spark started and that ended while it handed its pipes over."""
    with name_daemon():
        words = [sys.executable, "-m", "rocketmq_reindex.udfs.worker.daemon", "ahead"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as daemon:
            wait_until(_waits)
            with socket.socket(socket.AF_UNIX) as link:
                link.connect(f"\0rmq-reindex-{os.environ[VARIABLE]}")
                if sent:
                    socket.send_fds(link, [sent], [0, 1, 2])
            _, told = daemon.communicate(timeout=900)
        assert daemon.returncode == 1
        assert told.splitlines()[-1] == "ConnectionError: the daemon has ended"
