"""A disk of Spark's own that is full: one line says which, and another full disk is not taken for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.spark import engine
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.worker.tasks import CellFolders

SAID = """Job aborted: Lost task 3.0 in stage 0.0 (TID 3) (host executor 1): java.io.IOException: No space left on device
\tat java.base/sun.nio.ch.FileDispatcherImpl.write0(Native Method)
\tat org.apache.spark.storage.CountingWritableChannel.write(DiskStore.scala:369)"""


def test_another_full_disk_is_not_taken_for_it() -> None:
    """Of a table, or of what a worker writes: their own words name the file."""
    others = ["OSError: [Errno 28] No space left on device: '/out/x'", SAID.replace("org.apache.spark.storage", "io.delta")]
    for said in others:
        with pytest.raises(RuntimeError), engine.named(None):
            raise RuntimeError(said)


def test_on_a_cluster_the_host_is_told() -> None:
    class Context:
        master = "spark://host:7077"

    class Session:
        sparkContext = Context()

    with pytest.raises(InputError, match="Spark's own folder on host: No space left on device"), engine.named(Session()):
        raise RuntimeError(SAID)


def test_cells_beside_the_shuffle_are_sparks_own() -> None:
    said = "OSError: [Errno 28] No space left on device: '/disk/spark-1/rmq-reindex-cells-abc/00ff'"
    with (
        pytest.raises(InputError, match=r"Spark's own folder: No space left on device: Spark keeps"),
        engine.named(None),
    ):
        raise RuntimeError(said)


def test_cells_go_also_where_the_jvm_was_killed(tmp_path: Path) -> None:
    """It removes nothing of its folders then, and all that is asked of it raises."""

    class Frame:
        def unpersist(self, blocking: bool) -> None:
            assert blocking
            raise ConnectionRefusedError

    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "00ff").write_bytes(b"cell")
    no_session: Any = None
    made: Any = engine.SparkEngine(no_session)
    made._cells, made._frames = CellFolders((str(tmp_path / "cells"),), bytes(16)), [Frame()]
    with pytest.raises(ConnectionRefusedError):
        made.forget()
    assert list(tmp_path.iterdir()) == []
