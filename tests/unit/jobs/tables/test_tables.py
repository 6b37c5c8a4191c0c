"""What ``--tables`` computes without Spark: the manifest's list in stretches, hashes of keys, places."""

from __future__ import annotations

import dataclasses
import getpass
import json
import os
import random
import socket
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import mmh3
import pyarrow as pa
import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings, parse_settings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.command.tables_place import check_place, quoted, spark_path, table_path
from rocketmq_reindex.jobs.tables.making import create_statement, hadoop_settings, hdfs_user
from rocketmq_reindex.jobs.tables.rows import Attempt, build_row, quarantine_rows, text
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.udfs.messages.batches import fields
from rocketmq_reindex.udfs.scan.segments import Commitlog
from rocketmq_reindex.udfs.table_rows import ManifestFiles, first_bytes, read_first_bytes, with_keys
from rocketmq_reindex.udfs.table_schema import BUILDS, FILES, MESSAGES, QUARANTINE, TABLES
from tests.reference import java
from tests.reference.index_file import key_hash
from tests.tools.local_engine import local_build
from tests.tools.make_log import random_log

HADOOP = "org.apache.hadoop.fs.s3a"


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


def test_every_column_has_a_type_and_is_explained() -> None:
    for table in TABLES:
        assert table.arrow.names == [column.name for column in table.columns]
        for column in table.columns:
            assert column.comment.split(), column
            assert column.comment.strip() != column.sql
        assert table.comment.startswith("One row a ")


def test_columns_that_may_be_null() -> None:
    """All others are NOT NULL."""
    nullable = {table.name: " ".join(column.name for column in table.columns if not column.required) for table in TABLES}
    assert nullable == {
        "builds": "exit error endedAt buildSeconds "
        "store host user pid updatedAt stage stageBytes stageTotalBytes run digestKind",
        "segments": "digest minStoreTimestamp maxStoreTimestamp",
        "files": "",
        "quarantine": "path firstBytes",
        "messages": "tags uniqKey keys uniqFingerprint keyFingerprint",
    }
    for table in TABLES:
        statement = create_statement(table, "/tables")
        for column in table.columns:
            words = f"\n  {column.name} {column.sql}{' NOT NULL' if column.required else ''} COMMENT '"
            assert words in statement


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


def test_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark_path("tables") == f"file:{tmp_path}/tables"
    assert spark_path("/Volumes/c/s/v/t/") == "/Volumes/c/s/v/t"
    assert quoted("file:/a`b'") == "delta.`file:/a``b'`"


@pytest.mark.parametrize(("given", "taken", "path"), [
    ("s3://bucket/a%20b%25/%C3%A9//?region=r&scheme=http", None, "s3a://bucket/a b%/é"),
    ("s3://key:sec%2Fret@bucket", None, "s3a://bucket"),
    ("s3a://bucket/t", "s3://bucket/t", "s3a://bucket/t"),
    ("webhdfs://alice:secret@host:9870/t%20?user=bob", None, "webhdfs://host:9870/t "),
    ("webhdfs://host/t?use_https=true", None, "swebhdfs://host/t"),
    ("hdfs://alice@cluster/t", None, "hdfs://cluster/t"),
    ("abfss://box:key@account.dfs.core.windows.net/t", None, "abfss://box@account.dfs.core.windows.net/t"),
    ("gs://bucket/t?access_token=x", None, "gs://bucket/t"),
    ("dbfs:/t", "/dbfs/t", "dbfs:/t"),
    ("dbfs:/Volumes/c/s/v/t", "/Volumes/c/s/v/t", "/Volumes/c/s/v/t"),
    ("file:///a%20b%25", "/a b%", "file:/a b%"),
    ("oss://bucket/t/", None, "oss://bucket/t"),
])  # fmt: skip
def test_one_place_for_both(given: str, taken: str | None, path: str) -> None:
    """What ``files`` takes, and what Hadoop's Path takes: decoded, without user and options."""
    settings = BuildSettings("store", "out", tables=given).check()
    assert settings.tables == (taken or given)
    assert table_path(settings.tables, "files") == f"{path}/files"


@pytest.mark.parametrize("wrong", [
    "hdfs:/t", "file:/t", "s3:/bucket/t", "s3://bucket/../t", "s3:///t", "hdfs:///t", "file://host/t", "webhdfs://h/t#x",
])  # fmt: skip
def test_what_is_no_place(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"^--tables "):
        BuildSettings("store", "out", tables=wrong).check()


def test_what_spark_alone_knows() -> None:
    """--incremental keeps what it knows there by other means."""
    with pytest.raises(UsageError, match=r"^--tables oss://bucket/t: is a URI of an unknown kind"):
        BuildSettings("store", "out", tables="oss://bucket/t", incremental=True).check()


def test_s3a_is_told_what_the_uri_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("URL", "URL_S3"):
        monkeypatch.delenv(f"AWS_ENDPOINT_{name}", raising=False)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)

    def told(place: str) -> dict[str, str]:
        return {name.removeprefix("fs.s3a.bucket.b.c."): value for name, value in hadoop_settings(place).items()}

    assert told("s3://b.c/t") == {}
    assert told("s3://b.c/t?region=eu-west-1") == {"endpoint.region": "eu-west-1"}
    plain = {"endpoint": "http://h:9", "connection.ssl.enabled": "false", "path.style.access": "true"}
    assert told("s3://b.c/t?endpoint_override=h%3A9&scheme=http") == plain | {"endpoint.region": "us-east-1"}
    assert told("s3://b.c/t?endpoint_override=h&force_virtual_addressing=true&region=r") == {
        "endpoint": "https://h", "path.style.access": "false", "endpoint.region": "r",
    }  # fmt: skip
    keys = {"access.key": "k", "secret.key": "s/+=", "aws.credentials.provider": f"{HADOOP}.SimpleAWSCredentialsProvider"}
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert told("s3://k:s%2F+=@b.c/t") == keys
    assert told("s3://b.c/t")["aws.credentials.provider"].endswith(".ProfileCredentialsProvider")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    assert told("s3://b.c/t") == {}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://h:9")
    monkeypatch.setenv("AWS_REGION", "r")
    assert told("s3://b.c/t") == plain | {"endpoint.region": "r"}


def test_other_stores_are_told_little() -> None:
    account = "account.dfs.core.windows.net"
    assert hadoop_settings(f"abfss://box:a%2Bb@{account}/t") == {f"fs.azure.account.key.{account}": "a+b"}
    for place in (f"abfss://box@{account}/t", "gs://b/t", "webhdfs://u:p@h/t", "hdfs://h/t", "oss://u:p@b/t", "/t"):
        assert hadoop_settings(place) == {}


def test_who_writes_in_an_hdfs() -> None:
    assert [hdfs_user(place) for place in ("webhdfs://a%40b:p@h/t", "hdfs://c@h/t?user=d", "swebhdfs://h/t?user=d")] == [
        "a@b", "c", "d",
    ]  # fmt: skip
    assert {hdfs_user(place) for place in ("webhdfs://h/t", "s3://k:s@b/t", "oss://u@b/t", "/t", "")} == {""}
    with pytest.raises(InputError, match="no user's name"):
        hdfs_user("hdfs://a%20-Dx@h/t")


@pytest.mark.parametrize(("tables", "fine"), [
    ("beside", True), ("store-2", True), (".", True), ("store", False), ("store/commitlog", False), ("store/t", False),
    ("out", False), ("out/t", False), ("file", False), ("s3://store/t", True), ("FILE/beside", True), ("FILE/store", False),
    ("FILE/store/t", False), ("FILE/out/t", False), ("FILE/file", False), ("FILE/link/t", False), ("link", False),
])  # fmt: skip
def test_tables_lie_apart(tables: str, fine: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where a file:// URI leads, and links."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("store/commitlog")
    settings = BuildSettings("store", "out", tables=tables.replace("FILE", tmp_path.as_uri())).check()
    if fine:
        check_place(settings.tables, (settings.out, *settings.inputs))
    else:
        with pytest.raises(InputError, match=r"^--tables .*: name "):
            check_place(settings.tables, (settings.out, *settings.inputs))


@pytest.mark.parametrize(("tables", "fine"), [
    ("s3://b/t", True), ("s3://b/store-2", True), ("s3://b/store", False), ("s3a://k:s@b/store/x?region=r", False),
    ("webhdfs://h:9870/out/t", False), ("hdfs://h/out/t", False), ("hdfs://h/out2", True), ("gs://b/store", True),
])  # fmt: skip
def test_tables_lie_apart_behind_uris(tables: str, fine: bool) -> None:
    settings = BuildSettings("s3://b/store", "webhdfs://u@h/out", tables=tables).check()
    if fine:
        check_place(settings.tables, (settings.out, *settings.inputs))
    else:
        with pytest.raises(InputError, match=r"^--tables .*: lies inside .*: name ") as caught:
            check_place(settings.tables, (settings.out, *settings.inputs))
        assert "k:s" not in str(caught.value)


def test_options_that_go_together() -> None:
    words = ["store", "--out", "out"]
    wrong = [["--tables", "t", "--build-id", name] for name in ("a'b", "a b", "x" * 201)]
    for more in (["--messages-table"], ["--build-id", "x"], *wrong):
        with pytest.raises(UsageError, match=r"--build-id"):
            parse_settings([*words, *more])
    settings = parse_settings([*words, "--tables", "t", "--messages-table", "--build-id", "manual__2026-01-01T00:00:00+00:00"])
    assert (settings.tables, settings.messages_table) == ("t", True)


def test_a_row_says_who_runs_and_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Paths are absolute. A user may have no name, or one that is no text."""
    monkeypatch.chdir(tmp_path)
    settings = BuildSettings("store", "out", tables="t", build_id="b").check()
    attempt = Attempt(2, "word", datetime(2026, 1, 1, tzinfo=timezone.utc))

    def row(settings: BuildSettings, ended: datetime | None = None) -> dict[str, Any]:
        (found,) = build_row(settings, BuildResult(), Commitlog([], [], []), "started", attempt, ended).to_pylist()
        return dict(found)

    found = row(settings)
    store = str(tmp_path / "store")
    assert (found["out"], found["store"], found["inputs"]) == (str(tmp_path / "out"), store, [f"{store}/commitlog"])
    assert (found["attempt"], found["run"], found["stage"]) == (2, "word", "scan")
    assert (found["host"], found["pid"]) == (socket.gethostname(), os.getpid())
    assert row(dataclasses.replace(settings, store_name="broker-a"))["store"] == "broker-a"
    assert row(dataclasses.replace(settings, store="s3://k:secret@b/x"))["store"] == "s3://***@b/x"
    over = row(settings, attempt.started)
    assert (over["stage"], over["stageBytes"], over["updatedAt"]) == (None, None, attempt.started)

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert row(settings)["user"] == str(os.getuid())
    monkeypatch.setattr(getpass, "getuser", lambda: "a\udcff")
    assert row(settings)["user"] == "a\ufffd"


def test_paths_that_are_no_text() -> None:
    assert text("a\udcff") == "a\ufffd"


def test_secrets_are_no_rows(tmp_path: Path) -> None:
    assert text("s3://k:s@b/x?token=t") == "s3://***@b/x?token=***"
    segment = tmp_path / f"{7:020d}"
    segment.write_bytes(b"abc")
    path = f"file://{segment}?token=t"
    log = Commitlog([Segment(segment.name, path, 7, 10, 10)], [], [])
    made = quarantine_rows("b", log, [{"segment": segment.name, "offset": 8, "length": 9, "reason": "bad"}])
    (batch,) = read_first_bytes(iter(made.to_batches()))
    assert [(row["path"], row["firstBytes"]) for row in batch.to_pylist()] == [(f"file://{segment}?token=***", b"bc".hex())]


def test_definitions() -> None:
    for table in TABLES:
        assert len({column.name.lower() for column in table.columns}) == len(table.columns)
        assert {*table.clustered} <= {column.name for column in table.columns}
        assert all("'" not in column.comment and "\\" not in column.comment for column in table.columns)
        assert table.columns[0].name == "build"
    assert [table.name for table in TABLES] == ["builds", "segments", "files", "quarantine", "messages"]
    assert BUILDS.columns[0].required
    assert FILES.ddl.startswith("build STRING, path STRING")
