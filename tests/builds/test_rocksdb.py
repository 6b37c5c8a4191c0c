"""A store whose broker keeps its ConsumeQueues in RocksDB: no ConsumeQueue files take their place, and a build says so."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.commands import fetch, query
from rocketmq_reindex.jobs.querying.question import parse_query
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Against
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, QuietReporter, local_build, single
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

NAMES = ["000004.log", "000010.sst", "CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "OPTIONS-000009"]
"""what RocketMQ 5.5.0 leaves; tests/serving/test_rocksdb.py has it from a real store"""
SIZES: dict[str, Any] = dict(SMALL)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A log, RocksDB's files in consumequeue/, and the folder that 5.4 and later make for other things."""
    found = tmp_path / "store"
    with LogWriter(found / "commitlog", 1 << 14) as writer:
        for number in range(50):
            writer.append(Message(topic="T", queue_offset=number, properties={"KEYS": f"key-{number}"}))
    for folder in ("consumequeue", "rocksdbstore"):
        (found / folder).mkdir()
        for name in NAMES:
            (found / folder / name).write_text(f"{folder} {name}")
    return found


def with_files(store: Path) -> None:
    """ConsumeQueue files beside them, as rocksdbCQDoubleWriteEnable has both."""
    assert local_build(store, store.parent / "own", **SIZES).exit == 0
    shutil.copytree(store.parent / "own" / "consumequeue", store / "consumequeue", dirs_exist_ok=True)
    if not (store / "index").exists():
        for part in ("index", "checkpoint"):
            (store.parent / "own" / part).rename(store / part)


def there(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "consumequeue").iterdir() if path.is_file())


def test_build_warns(store: Path, tmp_path: Path) -> None:
    summary = local_build(store, tmp_path / "out", **SIZES)
    assert summary.exit == 0
    (warning,) = summary.warnings
    assert warning.startswith(f"{store}/consumequeue: holds ConsumeQueues in RocksDB (MANIFEST-000005, OPTIONS-000009)")
    assert "storeType=defaultRocksDB does not read the ConsumeQueue files of a build, and fetch does not put them" in warning
    assert warning.endswith("--consumequeue-type rocksdb builds these")
    assert local_build(store, tmp_path / "index", only=("index", "checkpoint"), **SIZES).warnings == []


def test_the_folder_that_each_new_broker_makes_is_none(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    assert local_build(store, tmp_path / "out", **SIZES).warnings == []
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    assert kinds(local_verify(store, **SIZES)) == {}


def test_fetch_refuses(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With ConsumeQueue files beside them, too. An index goes in, since such a broker has the same."""
    local_build(store, tmp_path / "out", **SIZES)
    local_build(store, tmp_path / "index", only=("index", "checkpoint"), **SIZES)
    for words in ([], ["--dry-run"]):
        assert fetch([str(tmp_path / "out"), "--to", str(store), *words]) == 1
        assert (
            "so no files are put in their place: fetch a build with --consumequeue-type rocksdb, or both; or one of --only"
            in capsys.readouterr().err
        )
    assert fetch([str(tmp_path / "index"), "--to", str(store), "--partial"]) == 0
    with_files(store)
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 1
    assert there(store) == NAMES
    assert not list(store.glob("*.previous*/CURRENT"))


def test_verify_refuses(store: Path, tmp_path: Path) -> None:
    """Not a difference for each message: these are no database. The other parts are compared when asked for."""
    built = local_build(store, tmp_path / "out", only=("index", "checkpoint"), **SIZES)
    assert built.exit == 0
    for part in ("index", "checkpoint"):
        (tmp_path / "out" / part).rename(store / part)
    summary = local_verify(store, **SIZES)
    assert (summary.exit, summary.findings) == (1, [])
    assert summary.error is not None
    assert f"{store}/consumequeue: RocksDB cannot read it: " in summary.error
    assert kinds(local_verify(store, only=("log", "index", "checkpoint"), **SIZES)) == {}
    other = tmp_path / "other"
    shutil.copytree(store, other)
    two = VerifySettings(str(other), against=str(store), **SIZES).check()
    with pytest.raises(InputError, match=r"--against compares ConsumeQueue files alone: verify each store by itself$"):
        Against(two, QuietReporter(), single(InlineEngine())).run()


def test_files_beside_them_are_compared(store: Path) -> None:
    with_files(store)
    summary = local_verify(store, **SIZES)
    assert summary.exit == 1
    assert "RocksDB cannot read it" in str(summary.error)


def test_a_folder_of_their_own(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """useSeparateStorePathForRocksdbCQ (5.5): nothing lies in the way, but the same broker reads no files."""
    (store / "consumequeue").rename(store / "consumequeue_rocksdb")
    summary = local_build(store, tmp_path / "out", **SIZES)
    (warning,) = summary.warnings
    assert warning.startswith(f"{store}/consumequeue_rocksdb: holds ConsumeQueues in RocksDB")
    assert fetch([str(tmp_path / "out"), "--to", str(store)]) == 0
    assert "consumequeue_rocksdb: holds ConsumeQueues in RocksDB" in capsys.readouterr().err
    assert (store / "consumequeue_rocksdb" / "CURRENT").exists()


def test_query_says_why(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert query([str(store), "--topic", "T", "--queue", "0", "--offset", "3"]) == 1
    assert ", or add --scan to read the whole log" in capsys.readouterr().err
    assert query([str(store), "--topic", "T", "--queue", "0", "--offset", "3", "--scan"]) == 0


def test_broker_conf(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    for line, told in (
        ("storeType = DEFAULTROCKSDB", "has storeType=defaultRocksDB: this broker does not read the ConsumeQueue files"),
        ("rocksdbCQDoubleWriteEnable = true", "this broker has ConsumeQueues in RocksDB, too: --consumequeue-type both builds"),
        ("storeType = default", ""),
        ("rocksdbCQSelectiveDoubleWriteEnable=true", ""),
    ):
        conf = tmp_path / "broker.conf"
        conf.write_text(line)
        words = ["--consumequeue-type", "file", "--engine", "local"]
        settings = parse_settings([str(store), "--out", str(tmp_path / "out"), "--broker-conf", str(conf), *words])
        assert settings.consumequeue_type == "file"
        summary = local_build(store, tmp_path / "out", overwrite=True, rocksdb=settings.rocksdb, **SIZES)
        assert [told in warning for warning in summary.warnings] == ([True] if told else [])
        parse_query([str(store), "--broker-conf", str(conf), "--topic", "T", "--queue", "0", "--offset", "0"])
