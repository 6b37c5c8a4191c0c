"""A path that is no store is an error; an empty store is none, and a folder of a store may be named by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.udfs.sql.base import TableSource
from rocketmq_reindex.udfs.sql.options import NamedQueueFolder, commitlog_folder, index_folder, queue_folders
from rocketmq_reindex.udfs.sql.queue_source import ConsumeQueueSource
from rocketmq_reindex.udfs.sql.sources import CommitlogSource, IndexSource
from tests.tools.read_rows import make_reader, read_rows

FIND: dict[str, Callable[[str], Any]] = {
    "commitlog": commitlog_folder,
    "consumequeue": lambda path: queue_folders(path)[0].path,
    "index": index_folder,
}
SOURCES: dict[str, type[TableSource]] = {"commitlog": CommitlogSource, "consumequeue": ConsumeQueueSource, "index": IndexSource}
INSIDE = {"commitlog": "0" * 20, "consumequeue": f"TopicA/0/{'0' * 20}", "index": "20260101000000000"}


@pytest.mark.parametrize("name", FIND)
def test_no_store(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "other" / "a" / "0").mkdir(parents=True)
    (tmp_path / "other" / "note.txt").write_bytes(b"x")
    (tmp_path / "none").mkdir()
    for path, text in [
        ("absent", f"is not there: name a store, or its folder {name}/"),
        ("file", "is no folder: name a store"),
        ("none", f"has no folder {name}/"),
        ("other", f"has no folder {name}/"),
        ("absent/index", "is not there"),
    ]:
        with pytest.raises(InputError, match=text) as raised:
            make_reader(SOURCES[name], tmp_path / path)
        assert "\n" not in str(raised.value)
        source = SOURCES[name]({"path": str(tmp_path / path)})
        with pytest.raises(InputError, match=text):
            # Spark does not ask for a schema where the user gave one.
            source.reader(from_arrow_schema(source.columns(source.words())))
    with pytest.raises(UsageError, match=r"name a store: load\(path\)"):
        SOURCES[name]({}).schema()


@pytest.mark.parametrize("name", FIND)
def test_partial_stores(name: str, tmp_path: Path) -> None:
    """A store that lost one folder is an error for its source alone; one with an empty folder has no rows."""
    for other in FIND:
        if other != name:
            (tmp_path / other).mkdir()
    with pytest.raises(InputError, match=f"has no folder {name}/"):
        make_reader(SOURCES[name], tmp_path)
    (tmp_path / name).mkdir()
    assert FIND[name](str(tmp_path)) == str(tmp_path / name)
    assert read_rows(SOURCES[name], tmp_path) == []


@pytest.mark.parametrize("name", FIND)
def test_the_folder_itself(name: str, tmp_path: Path) -> None:
    """By its name, also with a suffix as fetch gives; under any other name by what lies in it."""
    for folder in (tmp_path / name, tmp_path / f"{name}.previous"):
        folder.mkdir()
        assert FIND[name](f"{folder}/") == f"{folder}/"
    found = tmp_path / "saved"
    (found / INSIDE[name]).parent.mkdir(parents=True)
    (found / INSIDE[name]).write_bytes(bytes(100))
    assert FIND[name](found.as_uri()) == found.as_uri()
    assert FIND[name](str(found)) == str(found)


def test_a_store_may_have_the_name_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "index" / "commitlog").mkdir(parents=True)
    with pytest.raises(InputError, match="has no folder index/"):
        index_folder(str(tmp_path / "index"))


def test_both_kinds_of_queues(tmp_path: Path) -> None:
    (tmp_path / "batchconsumequeue").mkdir()
    batch = NamedQueueFolder(str(tmp_path / "batchconsumequeue"), True)
    assert queue_folders(str(tmp_path)) == [batch]
    assert queue_folders(batch.path) == [batch]
    (tmp_path / "consumequeue").mkdir()
    assert queue_folders(str(tmp_path)) == [NamedQueueFolder(str(tmp_path / "consumequeue"), False), batch]


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
def test_queues_in_rocksdb(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "MANIFEST-000005").write_bytes(b"x")
    with pytest.raises(InputError, match="RocksDB cannot read it"):
        read_rows(ConsumeQueueSource, tmp_path)


def test_no_password_is_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        index_folder(f"{tmp_path}/s3://user:secret@bucket/x")
    assert "secret" not in str(raised.value)
