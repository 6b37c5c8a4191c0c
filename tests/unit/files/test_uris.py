"""Paths and URIs as text, which file system a URI leads to, and that no password is shown. Nothing here is reached."""

from __future__ import annotations

import random
from pathlib import Path
from urllib.parse import quote

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import systems, uris
from rocketmq_reindex.files.object_store import ObjectStore
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape, redacted


@pytest.mark.parametrize(
    ("folder", "names", "joined"),
    [
        ("/a/b", ("c",), "/a/b/c"),
        ("/a/b/", ("%c d", "e"), "/a/b/%c d/e"),
        ("s3://bucket", ("a b", "c"), "s3://bucket/a%20b/c"),
        ("s3://bucket/x/?region=eu", ("%RETRY%g", "0"), "s3://bucket/x/%25RETRY%25g/0?region=eu"),
        ("s3://bucket/x?region=eu", ("consumequeue/T/0",), "s3://bucket/x/consumequeue/T/0?region=eu"),
        ("webhdfs://u@h:9870", ("?#",), "webhdfs://u@h:9870/%3F%23"),
    ],
)
def test_join_parent_and_base(folder: str, names: tuple[str, ...], joined: str) -> None:
    assert files.join(folder, *names) == joined
    assert files.base(joined) == names[-1].rpartition("/")[2]
    above = files.parent(joined)
    assert files.join(above, files.base(joined)) == joined


def test_random_names_come_back(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        name = "".join(rng.choice("ab%?#&=+ :;@*é😀.\\\"'|[]~") for _ in range(rng.randrange(1, 12)))
        if name in (".", ".."):
            continue
        uri = files.join("s3://bucket/folder?a=b%20c&d=", name)
        assert (files.base(uri), uris.split(uri).segments) == (name, ("folder", name))
        assert uris.split(uri).query == "a=b%20c&d="
        assert files.beside(uri, ".keys") == files.join("s3://bucket/folder?a=b%20c&d=", f"{name}.keys")
        assert quote(name, safe="") in uri


@pytest.mark.parametrize(
    "uri",
    [
        "s3://bucket/../other", "s3://bucket/a/./b", "s3://bucket/%2e%2e/x", "s3://bucket/a%2Fb", "s3://bucket/a%00", "s3:///x",
        "ftp://host/x", "http://host/x", "://x", "s3://bucket/a#b", "s3://bucket/a#", "s3://[", "webhdfs:///x", "s3a://bucket/x",
        "s3://key:se/cret@bucket/x",
    ],
)  # fmt: skip
def test_what_is_no_place(uri: str) -> None:
    with pytest.raises(InputError) as raised:
        files.checked(uri)
    assert "\n" not in str(raised.value)
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("dbfs:/x/y", "/dbfs/x/y"), ("dbfs:///x", "/dbfs/x"), ("dbfs:/Volumes/c/s/v", "/Volumes/c/s/v"), ("dbfs:x", "dbfs:x"),
        ("/Volumes/c/s/v", "/Volumes/c/s/v"), ("s3://b/x", "s3://b/x"), ("dbfs:/Volumesque", "/dbfs/Volumesque"),
    ],
)  # fmt: skip
def test_databricks_paths_are_mounts(given: str, place: str) -> None:
    assert files.checked(given) == place


def test_where_no_folder_can_be_renamed(tmp_path: Path) -> None:
    for place in ("s3://b/x", "gs://b/x", "webhdfs://h/x", "file:///x", "/Volumes/c/s/v/out", "/dbfs/x"):
        assert files.no_rename(place)
        assert files.free_bytes(place) is None
    for place in (str(tmp_path), "Volumes/x", "/Volumesque/x"):
        assert not files.no_rename(place)
    assert [files.is_flat(place) for place in ("s3://b/x", "gs://b/x", "abfss://c@a/x", "webhdfs://h/x", "/x")] == [
        True, True, True, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3://b/store", "s3://b/store/x", True),
        ("s3://b/store", "s3://b/stores", False),
        ("s3://b/store/", "s3://k:s@b//store?region=eu", True),
        ("s3://b/st%6Fre", "s3://b/store", True),
        ("s3://a/store", "s3://b/store", False),
        ("hdfs://nn:8020/a", "webhdfs://root@nn:9870/a/b", True),
        ("hdfs://nn:8020/a", "webhdfs://other:9870/a", False),
        ("abfss://c@acc.dfs.core.windows.net/x", "abfs://c@acc.dfs.core.windows.net/x/y", True),
        ("abfss://c@acc.dfs.core.windows.net/x", "abfss://d@acc.dfs.core.windows.net/x", False),
        ("file:///tmp/a", "/tmp/a/b", True),
        ("/tmp/a", "s3://tmp/a", False),
    ],
)
def test_places_that_overlap(one: str, other: str, same: bool) -> None:
    assert files.overlap(one, other) == files.overlap(other, one) == same


@pytest.mark.parametrize(
    ("uri", "kind", "inner"),
    [
        ("s3://bucket/a%20b?region=eu-west-1", "s3", "bucket/a b"),
        ("s3://bucket?region=eu-west-1", "s3", "bucket"),
        ("gs://bucket/a%25b", "gcs", "bucket/a%b"),
        ("abfss://container@account.dfs.core.windows.net/a/b", "abfs", "container/a/b"),
        ("file:///tmp/a%20b", "local", "/tmp/a b"),
    ],
)
def test_which_system_a_uri_leads_to(uri: str, kind: str, inner: str) -> None:
    """All that can be known of gs:// and abfss:// without their clouds."""
    system, path = systems.resolve(uri)
    assert system is not None
    assert (system.fs.type_name, path) == (kind, inner)
    assert systems.resolve(files.join(uri, "x"))[0] is system


def test_webhdfs_is_opened_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    for uri, url, user in (
        ("webhdfs://me@nn:1234/x", "http://nn:1234/webhdfs/v1", "me"),
        ("webhdfs://nn/x", "http://nn:9870/webhdfs/v1", "somebody"),
        ("swebhdfs://nn/x", "https://nn:9871/webhdfs/v1", "somebody"),
    ):
        system, path = systems.resolve(uri)
        assert system is not None
        assert not isinstance(system.fs, ObjectStore)
        found = system.fs.handler.fs
        assert (found.url, found.user, path) == (url, user, "/x")


def test_an_endpoint_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example:9000")
    monkeypatch.setenv("AWS_REGION", "somewhere")
    system, _ = systems.resolve("s3://a-bucket-of-this-test")
    assert system is not None
    assert isinstance(system.fs, ObjectStore)
    assert system.fs.once.region == "somewhere"
    options = system.fs.once.__reduce__()[1][0]
    assert (options["endpoint_override"], options["scheme"]) == ("s3.example:9000", "https")


def test_unknown_options_are_told_without_secrets() -> None:
    with pytest.raises(InputError) as raised:
        systems.resolve("s3://key:hunter2@bucket/x?colour=blue&region=eu")
    assert "colour" in str(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("cannot read s3://key:se/cret@b/x", "cannot read s3://***@b/x"),
        ("webhdfs://nn:9870/a@b", "webhdfs://nn:9870/a@b"),
        ("at https://h/x?user.name=me&delegation=abc&op=OPEN: no", "at https://h/x?user.name=me&delegation=***&op=OPEN: no"),
        ("x?sig=abc%2B&y=1", "x?sig=***&y=1"),
        ("s3://b/x?secret_key=abc", "s3://b/x?secret_key=***"),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("s3:/key:secret@bucket/x", "s3:/***@bucket/x"),
        ("/cwd/s3:/key:se/cret@bucket/x: is not there", "/cwd/s3:/***@bucket/x: is not there"),
        ("s3:///key:secret@bucket/x", "s3:///***@bucket/x"),
        ("s3:key:secret@bucket/x", "s3:***@bucket/x"),
        ("s3//key:secret@bucket/x", "s3//***@bucket/x"),
        ("s3;//key:secret@bucket", "s3;//***@bucket"),
        ("//key:secret@bucket", "//***@bucket"),
        ("s3 ://key:secret@bucket", "s3 ://***@bucket"),
        ("s4:/key:secret@bucket", "s4:/***@bucket"),
        ("s3://key:secret%40bucket/x", "s3://***%40bucket/x"),
        ("s3:/key:se/cret%40bucket/x", "s3:/***%40bucket/x"),
        ("s3://key:secret", "s3://***"),
        ("s3://key:se/cret/bucket?region=eu", "s3://***?region=eu"),
        ("s3:/key:secret/bucket", "s3:/***"),
        ("AKIAIOSFODNN7EXAMPLE:secret@bucket/x", "***@bucket/x"),
        ("dbfs:/Volumes/c/s/v", "dbfs:/Volumes/c/s/v"),
        ("hdfs://nn:8020/a: is not there", "hdfs://nn:8020/a: is not there"),
        ("s3://bucket: is not there", "s3://bucket: is not there"),
        ("s3://bucket/a%40b/c:d", "s3://bucket/a%40b/c:d"),
        ("s3://bucket?endpoint_override=host:9000&scheme=http", "s3://bucket?endpoint_override=host:9000&scheme=http"),
        ("http://[::1]:9000/x", "http://[::1]:9000/x"),
        ("/data/a@b/c:d", "/data/a@b/c:d"),
        ("/cwd/s3/key:secret@bucket/x", "/cwd/s3/***@bucket/x"),
        ("store/consumequeue/%LMQ%a:b@c/0", "store/consumequeue/%LMQ%a:b@c/0"),
        ("%LMQ%a:b@@@c", "%LMQ%a:b@@@c"),
        ("2026-11-21T22:13:20Z to b@c", "2026-11-21T22:13:20Z to b@c"),
        ("a@b = c", "a@b = c"),
        ("a topic named x=y", "a topic named x=y"),
    ],
)
def test_no_secret_is_shown(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert escape(text) == shown
