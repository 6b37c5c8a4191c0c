"""``export --format iceberg`` and what takes such a table: whole, as it was written, or not at all."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, StaticTable, Table
from pyiceberg.table.update import update_table_metadata

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

pytestmark = pytest.mark.usefixtures("inline_local")

DAY = 86_400_000
TOPICS = ("plain", "a=b&c", "%25", "%RETRY%g", "__HIVE_DEFAULT_PARTITION__", "_x", "ключ", "a b", "007", "~", "L" * 250)
"""names that a folder's cannot be, or that say something to a reader"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Returns a store with three messages of each topic."""
    return written(tmp_path / "store", 3)


@pytest.fixture
def timeless(tmp_path: Path) -> Path:
    """Returns a store with four messages of each topic: the last of each has a store time that is none."""
    return written(tmp_path / "store", 4)


def written(place: Path, rounds: int) -> Path:
    with LogWriter(place / "commitlog", 1 << 16) as writer:
        for number in range(rounds * len(TOPICS)):
            no_time = number >= 3 * len(TOPICS)
            writer.append(Message(
                topic=TOPICS[number % len(TOPICS)], version=2, queue_id=number % 2, body=b"body %d" % number,
                store_timestamp=(1 << 62) if no_time else EPOCH + number * DAY // 4, properties={"KEYS": f"k{number}"},
            ))  # fmt: skip
    return place


def table_at(place: Path) -> StaticTable:
    return StaticTable.from_metadata(str(place / "metadata" / "v1.metadata.json"))


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["commitLogOffset"])


def test_the_table_has_all_of_each_message(timeless: Path, tmp_path: Path) -> None:
    """Its rows are those of the folder of Parquet, and no topic is cut."""
    done = rr.export(timeless, to=tmp_path / "table", format="iceberg", kind="all")
    assert (done.messages, done.warnings) == (4 * len(TOPICS), [])
    found = sorted_rows(table_at(tmp_path / "table").scan().to_arrow())
    assert [row["topic"] for row in found] == [TOPICS[number % len(TOPICS)] for number in range(len(found))]
    rr.export(timeless, to=tmp_path / "parquet", format="parquet", kind="all")
    other = sorted_rows(ds.dataset(tmp_path / "parquet", partitioning=None).to_table())
    assert [{name: row[name] for name in other[0]} for row in found] == other
    assert StaticTable.from_metadata(str(tmp_path / "table")).scan().count() == len(found)


def test_in_a_process_of_its_own(store: Path, tmp_path: Path) -> None:
    """No other import has brought along what the library needs."""
    words = "import sys, rocketmq_reindex as rr; rr.export(sys.argv[1], to=sys.argv[2], format='iceberg')"
    subprocess.run([sys.executable, "-c", words, store, tmp_path / "table"], check=True)
    words = "import sys, rocketmq_reindex as rr; rr.import_messages(sys.argv[1], to=sys.argv[2])"
    subprocess.run([sys.executable, "-c", words, tmp_path / "table", tmp_path / "new"], check=True)
    assert rr.messages(tmp_path / "new").read_all().num_rows == table_at(tmp_path / "table").scan().count() > 0


def test_readers_pass_over_files(timeless: Path, tmp_path: Path) -> None:
    rr.export(timeless, to=tmp_path / "table", format="iceberg", kind="all")
    table = table_at(tmp_path / "table")
    assert len(list(table.scan("topic == '%RETRY%g'").plan_files())) == 4
    assert len(list(table.scan("storeTime IS NULL").plan_files())) == len(TOPICS)
    row = sorted_rows(table.scan().to_arrow())[5]
    (planned,) = table.scan(f"commitLogOffset == {row['commitLogOffset']}").plan_files()
    assert planned.file.record_count == 1
    day = f"storeTime >= '{row['storeTime'].date()}T00:00:00+00:00' AND storeTime <= '{row['storeTime'].date()}T23:59:59+00:00'"
    assert 0 < len(list(table.scan(day).plan_files())) <= 5


@pytest.mark.parametrize("moved", [False, True])
def test_a_table_is_imported(store: Path, tmp_path: Path, *, moved: bool) -> None:
    """It may lie elsewhere by now."""
    exported = rr.export(store, to=tmp_path / "table", format="iceberg", body="stored")
    place = tmp_path / "table"
    if moved:
        place = place.rename(tmp_path / "moved %41")
    done = rr.import_messages(place, to=tmp_path / "new", segment_size=1 << 16)
    assert done.messages == exported.messages > 0
    old, new = (rr.messages(each).read_all().to_pylist() for each in (store, tmp_path / "new"))
    wanted = [(row["topic"], row["body"]) for row in old if row["topic"] in exported.topics]
    assert [(row["topic"], row["body"]) for row in new] == wanted
    assert rr.replay(place, dry_run=True).messages == exported.messages


def test_an_empty_table(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "table", format="iceberg", topic=["none"], allow_empty=True)
    table = table_at(tmp_path / "table")
    assert (table.scan().to_arrow().num_rows, len(table.schema().fields)) == (0, 26)


Change = Callable[[Path], Any]


class _Committing(NoopCatalog):
    """Writes a new version of a table beside the old one, as catalogs do."""

    def commit_table(self, table: Table, _requirements: Any, updates: Any) -> CommitTableResponse:
        changed = update_table_metadata(table.metadata, updates)
        place = f"{table.metadata.location}/metadata/v2.metadata.json"
        ToOutputFile.table_metadata(changed, table.io.new_output(place))
        return CommitTableResponse.model_validate({"metadata": changed, "metadata-location": place})


def _one_file(table: Path) -> Path:
    return min(table.rglob("*.parquet"))


def _removed(table: Path) -> None:
    _one_file(table).unlink()


def _added(table: Path) -> None:
    shutil.copy(_one_file(table), _one_file(table).with_name("part-00001.parquet"))


def _added_elsewhere(table: Path) -> None:
    shutil.copy(_one_file(table), table / "more.parquet")


def _linked(table: Path) -> None:
    (table / "data" / "topic=x").symlink_to(table / "data")


def _other(table: Path) -> None:
    shutil.copy(table / "metadata" / "v1.metadata.json", _one_file(table))


def _deleted(table: Path) -> None:
    found = table_at(table)
    located = str(table / "metadata" / "v1.metadata.json")
    changed = Table(("t",), found.metadata, located, found.io, _Committing("none"))
    changed.delete("topic == 'plain'")


def _deleted_in_place(table: Path) -> None:
    _deleted(table)
    (table / "metadata" / "v2.metadata.json").replace(table / "metadata" / "v1.metadata.json")


def _second_version(table: Path) -> None:
    shutil.copy(table / "metadata" / "v1.metadata.json", table / "metadata" / "v2.metadata.json")


def _no_version(table: Path) -> None:
    (table / "metadata" / "v1.metadata.json").unlink()


def _no_manifest(table: Path) -> None:
    (table / "metadata" / "files.avro").unlink()


def _damaged(table: Path) -> None:
    path = table / "metadata" / "files.avro"
    path.write_bytes(path.read_bytes()[:-40])


def _elsewhere(table: Path) -> None:
    path = table / "metadata" / "v1.metadata.json"
    path.write_text(path.read_text().replace("/metadata/manifests.avro", "/../manifests.avro"))


def _waits(*names: str) -> Change:
    def change(table: Path) -> None:
        path = table.joinpath(*names) if names else _one_file(table)
        path.unlink()
        os.mkfifo(path)

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_waits("metadata", "v1.metadata.json"), "v1.metadata.json: is no regular file"),
        (_waits("metadata", "manifests.avro"), "manifests.avro: is no regular file"),
        (_waits("metadata", "files.avro"), "files.avro: is no regular file"),
        (_waits(), "parquet: is no regular file"),
        (_removed, "changed since it was exported: it lacks 1 file: data/topic="),
        (_added, "changed since it was exported: it also has 1 file: data/topic="),
        (_added_elsewhere, "it also has 1 file: more.parquet"),
        (_linked, "it also has 1 file: data/topic=x"),
        (_other, r"data/topic=.* has [0-9,]+ bytes, not"),
        (_deleted, "its metadata have 2 versions, not one"),
        (_deleted_in_place, "it has 2 snapshots, not one"),
        (_second_version, "its metadata have 2 versions, not one"),
        (_no_version, "its metadata have 0 versions, not one"),
        (_no_manifest, "the metadata of this Iceberg table cannot be read"),
        (_damaged, "the metadata of this Iceberg table cannot be read"),
        (_elsewhere, r"its metadata name .*\.\./manifests\.avro, which lies elsewhere"),
    ],
)
def test_a_table_that_was_changed(change: Change, told: str, store: Path, tmp_path: Path) -> None:
    """It is refused: never is a part of it read as the whole."""
    rr.export(store, to=tmp_path / "table", format="iceberg")
    change(tmp_path / "table")
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "table", to=tmp_path / "new")
    with pytest.raises(InputError, match=told):
        rr.replay(tmp_path / "table", dry_run=True)
    assert not (tmp_path / "new").exists()


def test_a_table_below_the_folder_that_is_named(store: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    rr.export(store, to=tmp_path / "all" / "table", format="iceberg")
    told = "all/table: is an Iceberg table, whose metadata say which files count: name this folder"
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "all", to=tmp_path / "new")


@pytest.mark.parametrize(("end", "told"), [("?", r"end a path at \?"), ("\n", "drop tabs and line ends of a path")])
def test_a_place_that_readers_would_misread(store: Path, tmp_path: Path, end: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"readers of Iceberg {told}: name another folder"):
        rr.export(store, to=tmp_path / f"to{end}", format="iceberg")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_without_the_library(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rr.export(store, to=tmp_path / "table", format="iceberg")
    monkeypatch.setitem(sys.modules, "pyiceberg.table.update", None)
    told = r"with pyiceberg: pip install 'rocketmq-reindex\[iceberg\]'"
    with pytest.raises(InputError, match=told):
        rr.export(store, to=tmp_path / "other", format="iceberg")
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "table", to=tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "table"]
