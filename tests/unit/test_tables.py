"""What ``--tables`` computes without Spark: the manifest's list in stretches, hashes of keys, places, the README."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest

from jobs import tables_delta
from jobs.build_options import parse_settings
from jobs.settings import BuildSettings
from jobs.tables_place import check_place, quoted, spark_path, table_path
from jobs.tables_rows import quarantine_rows, text
from storage_format.errors import InputError, UsageError
from tests.reference import java
from tests.reference.index_file import key_hash
from tests.tools.local_engine import local_build
from tests.tools.make_log import random_log
from udfs.message_batches import fields
from udfs.segments import Commitlog
from udfs.table_files import ManifestFiles
from udfs.table_messages import with_keys
from udfs.table_quarantine import first_bytes, read_first_bytes
from udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, TABLES

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def ids(count: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays([pa.array([k], pa.int64())], ["id"]) for k in range(count)]


# -- files ---------------------------------------------------------------------------------------------------------------------


def in_stretches(manifest: Path, tasks: int) -> list[dict[str, Any]]:
    reads = ManifestFiles(str(manifest), manifest.stat().st_size, tasks, "b")
    return [row for batch in reads(iter(ids(tasks))) for row in batch.to_pylist()]


def test_each_file_of_the_manifest_once(seed: int, tmp_path: Path) -> None:
    """However many tasks share its bytes."""
    random_log(tmp_path / "store" / "commitlog", seed, records=60)
    assert local_build(tmp_path / "store", tmp_path / "out", cq_file_size=200, hash_slots=10, index_items=30).exit == 0
    manifest = tmp_path / "out" / "reindex.json"
    listed = [
        {"build": "b", "path": f["path"], "kind": f["path"].split("/")[0], "size": f["size"], "used": f["used"],
         "digest": f["digest"]}
        for f in json.loads(manifest.read_text())["files"]
    ]  # fmt: skip
    rng = random.Random(seed)
    for tasks in (1, 2, 3, rng.randrange(4, 200), 997):
        assert in_stretches(manifest, tasks) == listed


def test_paths_in_the_manifest_may_hold_anything(tmp_path: Path) -> None:
    paths = ['consumequeue/a\\b"]},\n  {/0/0', "consumequeue/é\U0001f600\u2028/0/0", "consumequeue/" + "x" * 300 + "/0/0"]
    entries = [json.dumps({"path": path, "size": 9, "used": 1, "digest": "0" * 32, "header": {"size": 3}}) for path in paths]
    head = json.dumps({"warnings": ['  {"path": "no", "size": 1}', "\n  {"], "damage": [{"path": "no"}]}, indent=1)[:-2]
    manifest = tmp_path / "reindex.json"
    manifest.write_text(head + ',\n "files": [\n  ' + ",\n  ".join(entries) + "\n ]\n}\n")
    for tasks in (1, 5, 50):
        found = in_stretches(manifest, tasks)
        assert [row["path"] for row in found] == paths
        assert {row["size"] for row in found} == {9}


def test_a_manifest_without_files(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert local_build(tmp_path / "store", tmp_path / "out", only=("index",)).exit == 0
    assert in_stretches(tmp_path / "out" / "reindex.json", 3) == []


# -- messages ------------------------------------------------------------------------------------------------------------------


def records(rows: list[tuple[str, str | None, str | None]]) -> pa.RecordBatch:
    """Rows of (topic, uniqKey, keys) with all else zero."""
    everything = fields(body=False, damage=False)
    schema = pa.schema([everything.field(name) for name in MESSAGES.arrow.names if name in everything.names])
    given = {"topic": [r[0] for r in rows], "uniqKey": [r[1] for r in rows], "keys": [r[2] for r in rows]}
    columns = [
        pa.array(given[f.name], f.type) if f.name in given else
        pa.array([None if f.name == "tags" else 0] * len(rows), f.type) for f in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def expected(topic: str, unique: str | None, keys: str | None) -> dict[str, Any]:
    first = [] if unique is None else [unique]
    rest = [key for key in (keys or "").split(" ") if key]
    prints = [mmh3.hash64(f"{topic}#{key}")[0] for key in first + rest]
    return {
        "keyHashes": [key_hash(java.java_text(f"{topic}#{key}")) for key in first + rest],
        "keyFingerprints": prints,
        "uniqFingerprint": prints[0] if first else None,
        "keyFingerprint": prints[len(first)] if rest else None,
    }


def test_keys_and_their_hashes(seed: int) -> None:
    """Random keys with spaces, none, empty and repeated ones, against Java's hash and mmh3."""
    rng = random.Random(seed)

    def word() -> str:
        return "".join(rng.choice("ab é漢#\U0001f600") for _ in range(rng.randrange(6)))

    rows = [
        ("T" + word(), rng.choice([None, "", word()]), rng.choice([None, "", " ", word(), f"{word()} {word()}  {word()} "]))
        for _ in range(200)
    ]
    made = with_keys(records(rows), "b")
    assert made.schema.equals(MESSAGES.arrow)
    for row, given in zip(made.to_pylist(), rows, strict=True):
        assert {name: row[name] for name in expected(*given)} == expected(*given), given
        assert row["build"] == "b"


def test_no_keys_at_all() -> None:
    assert with_keys(records([("T", None, None)]), "b").to_pylist()[0]["keyHashes"] == []
    assert len(with_keys(records([]), "b")) == 0


# -- quarantine ----------------------------------------------------------------------------------------------------------------


def test_first_bytes(tmp_path: Path) -> None:
    segment = tmp_path / "00000000000000001000"
    segment.write_bytes(bytes(range(100)))
    assert first_bytes(str(segment), 1000, 1010, 5) == bytes(range(10, 15)).hex()
    assert first_bytes(str(segment), 1000, 1010, 1 << 40) == bytes(range(10, 74)).hex()
    assert first_bytes(str(segment), 1000, 1090, 1 << 40) == bytes(range(90, 100)).hex()
    for offset, length in ((1100, 5), (900, 5), (1010, 0), (2**62, 5)):
        assert first_bytes(str(segment), 1000, offset, length) is None
    assert first_bytes(None, 1000, 1000, 5) is None
    assert first_bytes(str(tmp_path / "gone"), 1000, 1000, 5) is None
    assert first_bytes(str(tmp_path), 1000, 1000, 5) is None


def test_places_keep_their_rows() -> None:
    damage = [{"segment": f"{7:020d}", "offset": 7, "length": 3, "reason": "missing segment"}]
    made = quarantine_rows("b", Commitlog([], [], []), damage)
    (batch,) = read_first_bytes(iter(made.to_batches()))
    assert batch.schema.equals(QUARANTINE.arrow)
    assert batch.to_pylist() == [{"build": "b", **damage[0], "path": None, "firstBytes": None}]


# -- places and statements -----------------------------------------------------------------------------------------------------


def test_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark_path("tables") == f"file:{tmp_path}/tables"
    assert table_path("s3://bucket/a b/", "files") == "s3://bucket/a b/files"
    assert spark_path("dbfs:/t") == "dbfs:/t"
    assert spark_path("/Volumes/c/s/v/t/") == "/Volumes/c/s/v/t"
    assert quoted("file:/a`b'") == "delta.`file:/a``b'`"


@pytest.mark.parametrize(("tables", "fine"), [
    ("beside", True), ("store-2", True), (".", True), ("store", False), ("store/commitlog", False), ("store/t", False),
    ("out", False), ("out/t", False), ("file", False), ("s3://store/t", True),
])  # fmt: skip
def test_tables_lie_apart(tables: str, fine: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    settings = BuildSettings("store", "out", tables=tables)
    if fine:
        check_place(settings)
    else:
        with pytest.raises(InputError, match=r"^--tables .*: name "):
            check_place(settings)


def test_options_that_go_together() -> None:
    words = ["store", "--out", "out"]
    wrong = [["--tables", "t", "--build-id", name] for name in ("a'b", "a b", "x" * 201)]
    for more in (["--messages-table"], ["--build-id", "x"], *wrong):
        with pytest.raises(UsageError, match=r"--build-id"):
            parse_settings([*words, *more])
    settings = parse_settings([*words, "--tables", "t", "--messages-table", "--build-id", "manual__2026-01-01T00:00:00+00:00"])
    assert (settings.tables, settings.messages_table) == ("t", True)


def test_one_line_for_any_error() -> None:
    for absent in ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta.\nmore", "Cannot find DeltaCatalog"):
        assert tables_delta.reason(Exception(absent)).startswith("this Spark session has no Delta Lake")
    assert tables_delta.reason(Exception("one\ntwo\x1b[0m")) == "one"
    assert tables_delta.reason(ValueError()) == "ValueError"


def test_paths_that_are_no_text() -> None:
    assert text("a\udcff") == "a\ufffd"


def test_definitions() -> None:
    for table in TABLES:
        assert len({column.name.lower() for column in table.columns}) == len(table.columns)
        assert {*table.clustered} <= {column.name for column in table.columns}
        assert all("'" not in column.comment and "\\" not in column.comment for column in table.columns)
        assert table.columns[0].name == "build"
    assert [table.name for table in TABLES] == ["builds", "segments", "files", "quarantine", "messages"]
    assert BUILDS.columns[0].required
    assert FILES.ddl.startswith("build STRING, path STRING")


# -- the README ----------------------------------------------------------------------------------------------------------------


def test_the_readme_has_every_column() -> None:
    """Name, type (``?`` where it may be null) and meaning, as in the tables themselves."""
    section = README.split("\n## Delta tables\n", 1)[1].split("\n## ", 1)[0]
    for table in TABLES:
        part = section.split(f"\n**`{table.name}`**", 1)[1].split("\n**`", 1)[0]
        cells = [re.split(r" ?\| ?", line.strip("| ")) for line in part.splitlines() if line.startswith("| `")]
        assert cells == [
            [f"`{c.name}`", f"`{c.sql}`" + ("" if c.required else " or null"), c.comment] for c in table.columns
        ], table.name
