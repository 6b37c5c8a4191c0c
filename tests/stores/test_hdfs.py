"""webhdfs:// against a real HDFS: the contract of all stores, and a whole build. hdfs:// says what it lacks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.build import build
from tests.golden.stores import GoldenStore
from tests.stores.bucket_world import BucketWorld
from tests.stores.contract import FilesContract
from tests.stores.whole import build_by_command


class TestWebHdfs(FilesContract):
    @pytest.fixture
    def place(self, hdfs_place: str) -> str:
        return hdfs_place


@pytest.mark.slow
def test_from_hdfs_to_hdfs_through_spark(golden_store: Callable[[str], GoldenStore], hdfs_place: str, tmp_path: Path) -> None:
    build_by_command(golden_store("transactions-delay"), hdfs_place, tmp_path)


def test_an_incremental_build(hdfs_place: str, tmp_path: Path, seed: int) -> None:
    """HDFS copies nothing by itself: what stays is read and written again."""
    world, rng = BucketWorld(tmp_path, hdfs_place, str(tmp_path / "tables")), random.Random(seed)
    world.writer.segment_size = 1 << 14
    world.append(rng, 60)
    world.build()
    world.append(rng, 1)
    assert world.build()["incremental"]["files_kept"]
    assert world.incremental()["incremental"]["nothing_new"]


def test_without_hadoops_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    assert build(["hdfs://nobody:secret@localhost:9/store", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "webhdfs://" in said
    assert len(said.splitlines()) == 1
    assert "secret" not in said
