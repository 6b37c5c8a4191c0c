"""``export --format delta`` and what takes such a table: as its log has it, whoever changed it since."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.errors import InputError
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

pytestmark = pytest.mark.usefixtures("inline_local")

DAY = 86_400_000
TOPICS = ("plain", "a=b&c", "%25", "%RETRY%g", "__HIVE_DEFAULT_PARTITION__", "_x", "ключ", "a b", "007", "~", "L" * 250)
"""names that a folder's cannot be, or that say something to a reader"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Returns a store with three messages of each topic, and one without a store time."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for number in range(3 * len(TOPICS)):
            writer.append(Message(
                topic=TOPICS[number % len(TOPICS)], version=2, queue_id=number % 2, body=b"body %d" % number,
                store_timestamp=EPOCH + number * DAY // 4, properties={"KEYS": f"k{number}"},
            ))  # fmt: skip
    return tmp_path / "store"


def sorted_rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(maps_as_pydicts="strict"), key=lambda row: row["commitLogOffset"])


def test_the_table_has_all_of_each_message(store: Path, tmp_path: Path) -> None:
    """Its rows are those of the folder of Parquet, and no topic is cut."""
    done = rr.export(store, to=tmp_path / "table", format="delta", kind="all")
    assert (done.messages, done.warnings) == (3 * len(TOPICS), [])
    found = sorted_rows(deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table())
    assert [row["topic"] for row in found] == [TOPICS[number % len(TOPICS)] for number in range(len(found))]
    assert all(row["day"] == row["storeTime"].date() for row in found)
    rr.export(store, to=tmp_path / "parquet", format="parquet", kind="all")
    other = sorted_rows(ds.dataset(tmp_path / "parquet", partitioning=None).to_table())
    assert [{name: row[name] for name in other[0]} for row in found] == other


def test_readers_pass_over_files(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "table", format="delta", kind="all")
    table = deltalake.DeltaTable(tmp_path / "table")
    assert len(table.file_uris(file_pruning_predicate="topic = '%RETRY%g'")) == 3
    actions = pa.table(table.get_add_actions()).to_pylist()
    rows = {row["topic"]: row for row in sorted_rows(table.to_pyarrow_table())}
    for action in actions:
        assert action["num_records"] == 1
        assert action["min"]["commitLogOffset"] == action["max"]["commitLogOffset"]
    offsets = {action["min"]["commitLogOffset"] for action in actions}
    assert {row["commitLogOffset"] for row in rows.values()} <= offsets


def test_what_was_changed_in_the_table_is_imported(store: Path, tmp_path: Path) -> None:
    """Files that the log no longer names are in the folder still, and no row of them comes back."""
    rr.export(store, to=tmp_path / "table", format="delta", topic=["plain", "~", "L*"])
    table = deltalake.DeltaTable(tmp_path / "table")
    table.delete("queueId = 1 AND topic != '~'")
    table.update(predicate="topic = 'plain'", updates={"body": "CAST('mended' AS BYTEA)"})
    left = deltalake.DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert left.num_rows < len(list((tmp_path / "table").rglob("*.parquet")))
    done = rr.import_messages(tmp_path / "table", to=tmp_path / "new", segment_size=1 << 16)
    assert done.messages == left.num_rows
    messages = rr.messages(tmp_path / "new").read_all().to_pylist()
    wanted = [(row["topic"], row["body"]) for row in sorted_rows(left)]
    assert [(row["topic"], row["body"]) for row in messages] == wanted
    assert ("plain", b"mended") in wanted


Change = Callable[[dict[str, Any]], None]


def _elsewhere(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["path"] = "../store/x.parquet"


def _without_topic(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["partitionValues"]["topic"] = None


def _with_vectors(action: dict[str, Any]) -> None:
    if "protocol" in action:
        names = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **names}


def _no_protocol(action: dict[str, Any]) -> None:
    action.pop("protocol", None)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_elsewhere, r"its log names \.\./store/x\.parquet, which lies elsewhere"),
        (_without_topic, "the table's log names no topic for its rows"),
        (_with_vectors, "is a Delta table with deletionVectors"),
        (_no_protocol, "the log of this Delta table cannot be read"),
    ],
)
def test_tables_that_say_more_or_less(change: Change, told: str, store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "table", format="delta")
    (log,) = (tmp_path / "table" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions if action))
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "table", to=tmp_path / "new")
    with pytest.raises(InputError, match=told):
        rr.replay(tmp_path / "table", dry_run=True)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("parts", [[], ["topic", "queueId"]])
def test_a_table_of_other_parts(parts: list[str], store: Path, tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "table", rr.messages(store, topics=["plain"]).read_all(), partition_by=parts)
    told = f"is a Delta table parted by {' and '.join(parts) or 'nothing'}, not by topic and day: write it anew, or as Parquet"
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "table", to=tmp_path / "new")


def test_a_table_below_the_folder_that_is_named(store: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    rr.export(store, to=tmp_path / "all" / "table", format="delta")
    with pytest.raises(InputError, match="all/table: is a Delta table, whose log says which files count: name this folder"):
        rr.import_messages(tmp_path / "all", to=tmp_path / "new")


def test_without_the_library(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rr.export(store, to=tmp_path / "table", format="delta")
    monkeypatch.setitem(sys.modules, "deltalake.transaction", None)
    told = r"with deltalake: pip install 'rocketmq-reindex\[deltalake\]'"
    with pytest.raises(InputError, match=told):
        rr.export(store, to=tmp_path / "other", format="delta")
    with pytest.raises(InputError, match=told):
        rr.import_messages(tmp_path / "table", to=tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "table"]
