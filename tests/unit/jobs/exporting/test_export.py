"""``export``: what is chosen, what stands in each format, and that nothing comes out as it must not."""

from __future__ import annotations

import base64
import csv
import datetime as dt
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.udfs.exporting import formats, sinks
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, overwrite
from tests.tools.make_log import random_log

Make = Callable[..., Path]
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
DAY = 86_400_000


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a store of these messages."""

    def write(*messages: Message, segment: int = 1 << 16) -> Path:
        with LogWriter(tmp_path / "store" / "commitlog", segment) as writer:
            for message in messages:
                writer.append(message)
        return tmp_path / "store"

    return write


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a store with all that a log may hold."""
    store = tmp_path_factory.mktemp("export") / "store"
    random_log(store / "commitlog", 31, records=400, segment_size=1 << 15)
    return store


def rows_of(store: Path, body: Any = "stored") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rr.messages(store, body=body).read_all().to_pylist(maps_as_pydicts="lossy")
    return rows


def exported(store: Path, to: Path, **keywords: Any) -> list[dict[str, Any]]:
    result = rr.export(store, to=to, **keywords)
    lines = to.read_text(encoding="utf-8").splitlines()
    assert result.messages == len(lines)
    return [json.loads(line) for line in lines]


def bytes_of(row: dict[str, Any]) -> bytes | None:
    form, body = row["bodyFormat"], row["body"]
    return None if body is None else base64.b64decode(body) if form == "base64" else body.encode()


def test_json_lines_have_all_of_each_message(mixed: Path, tmp_path: Path) -> None:
    unpacked = {row["commitLogOffset"]: row["body"] for row in rows_of(mixed, "unpacked")}
    wanted = rows_of(mixed)
    found = exported(mixed, tmp_path / "all.jsonl", kind="all")
    assert [row["commitLogOffset"] for row in found] == [row["commitLogOffset"] for row in wanted]
    packed = 0
    for row, want in zip(found, wanted, strict=True):
        whole = unpacked[want["commitLogOffset"]]
        packed += row["bodyCompression"] is not None
        assert (row["bodyCompression"] is None) == (whole is not None), "what does not unpack is there as it is stored"
        assert bytes_of(row) == (want["body"] if whole is None else whole)
        for name in set(row) & set(want) - {"body", "storeTime", "bornTime"}:
            assert row[name] == want[name], name
        known = want["storeTime"]
        assert row["storeTime"] == (known and known.strftime("%Y-%m-%dT%H:%M:%S.") + f"{known.microsecond // 1000:03d}Z")
    assert 0 < packed < len(found)


def test_by_default_it_is_what_clients_get(make: Make, tmp_path: Path) -> None:
    waiting = {"REAL_TOPIC": "Orders", "REAL_QID": "0"}
    store = make(
        Message(topic="Orders", body=b"a"), Message(topic=HALF, properties=waiting), Message(topic="Other", body=b"b"),
        Message(topic="%DLQ%g", body=b"c"), Message(topic="%RETRY%g", properties={"RETRY_TOPIC": "Orders"}),
        Message(topic="rmq_sys_x"),
    )  # fmt: skip
    result = rr.export(store, count=True)
    assert (result.topics, result.left_out) == (
        {"Orders": 1, "Other": 1},
        {"dead_letter": 1, "half": 1, "retry": 1, "system": 1},
    )
    named = rr.export(store, topic="Ord*", count=True)
    assert (named.topics, named.left_out) == ({"Orders": 1}, {"half": 1}), "what waits for the topic is counted"
    assert rr.export(store, topic="%DLQ%g", count=True).topics == {"%DLQ%g": 1}
    both = rr.export(store, topic="Orders", kind=["half", "retry"], count=True)
    assert both.topics == {HALF: 1, "%RETRY%g": 1}
    assert not both.to
    assert os.listdir(tmp_path) == ["store"], "to count writes nothing"


def test_a_topic_that_is_written_wrong(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 16) as writer:
        writer.append(Message("Orders"))
    (store / "consumequeue" / "Orders").mkdir(parents=True)
    said = "topic orders: the store has no queue of it (near it: Orders)"
    assert rr.export(store, topic="orders", count=True).warnings == [said]
    with pytest.raises(rr.InputError, match=re.escape(said)):
        rr.export(store, topic="orders", to=tmp_path / "x.jsonl")
    assert not rr.export(store, topic="orders*", count=True).warnings, "a glob is no name"


def test_what_is_chosen(mixed: Path, tmp_path: Path) -> None:
    every = [row for row in rows_of(mixed) if row["kind"] == "message"]
    topic = max({row["topic"] for row in every}, key=lambda name: sum(row["topic"] == name for row in every))
    of_topic = [row for row in every if row["topic"] == topic]
    time = sorted(row["storeTimestamp"] for row in every)[len(every) // 2]
    key = next(row["keys"] for row in of_topic if row["keys"]).split(" ")[0]
    tag = next(row["tags"] for row in of_topic if row["tags"])

    def check(wanted: list[dict[str, Any]], **keywords: Any) -> None:
        to = tmp_path / f"{len(os.listdir(tmp_path))}.jsonl"
        found = exported(mixed, to, allow_empty=True, **keywords)
        assert [row["commitLogOffset"] for row in found] == [row["commitLogOffset"] for row in wanted], keywords
        assert rr.export(mixed, count=True, **keywords).messages == len(wanted)

    check(of_topic, topic=topic)
    check([row for row in of_topic if row["queueId"] == 1], topic=topic, queue=1)
    part = [row for row in of_topic if row["queueId"] == 1 and 2 <= row["consumeQueueOffset"] < 5]
    check(part, topic=topic, queue=1, begin_offset=2, end_offset=5)
    check([row for row in every if row["storeTimestamp"] >= time], since=time)
    check([row for row in every if row["storeTimestamp"] < time], until=time)
    check([row for row in every if key in (row["keys"] or "").split(" ") or key == row["uniqKey"]], key=key)
    check([row for row in of_topic if row["tags"] in (tag, "none")], topic=topic, tag=[tag, "none"])
    whole = {row["commitLogOffset"]: row["body"] for row in rows_of(mixed, "unpacked")}
    bodies = {row["commitLogOffset"]: whole[row["commitLogOffset"]] or b"" for row in every}
    check([row for row in every if b"\x00" in bodies[row["commitLogOffset"]]], regex=r"\x00")
    check([row for row in every if b"ab" in bodies[row["commitLogOffset"]]], text="ab")


def test_sql_asks_the_properties(make: Make) -> None:
    texts = ("7", "5", "x", None)
    store = make(
        *(Message(topic="T", properties={"TAGS": "red"} | ({"a": text} if text else {})) for text in texts),
        Message(topic="%DLQ%g[1]", properties={"a": "9"}), Message(topic="%DLQ%g1"),
    )  # fmt: skip

    def count(sql: str, **keywords: Any) -> int:
        return rr.export(store, sql=sql, count=True, **keywords).messages

    assert count("a > 5 AND TAGS IS NOT NULL") == 1
    assert count("a <> 5") == 1, "x is no number: that message has no answer"
    assert count("a IS NULL") == 1
    assert count("TAGS = 'red'") == 4
    assert count("TRUE") == 4
    assert count("a > 5", kind="all") == 2
    assert rr.export(store, dlq="g[1]", count=True).topics == {"%DLQ%g[1]": 1}


def test_undecided_half_messages(make: Make, tmp_path: Path) -> None:
    def half(key: str | None, real: str = "Orders") -> Message:
        return Message(topic=HALF, properties={"REAL_TOPIC": real, "REAL_QID": "0"} | ({"UNIQ_KEY": key} if key else {}))

    def op(*offsets: int, tag: str = "d") -> Message:
        body = "".join(f"{offset}," for offset in offsets).encode()
        return Message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", properties={"TAGS": tag}, body=body)

    given_up = Message(topic="TRANS_CHECK_MAX_TIME_TOPIC", properties={"UNIQ_KEY": "gone", "REAL_TOPIC": "Orders"})
    store = make(
        half("decided"), half("open"), half("again"), half("gone"), half(None), half("other", "Other"), half("open"),
        half("again"), op(0, 7), op(1, tag="x"), given_up, Message(topic="Orders"),
    )  # fmt: skip
    assert [row["uniqKey"] for row in exported(store, tmp_path / "x.jsonl", undecided=True)] == [None, "other", "open"]
    assert [row["uniqKey"] for row in exported(store, tmp_path / "y.jsonl", undecided=True, topic="Orders")] == [None, "open"]
    assert rr.export(store, undecided=True, count=True, key="open").messages == 1
    with pytest.raises(UsageError):
        rr.export(store, undecided=True, kind="half", count=True)


FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "'quoted",
    "''",
    "plain",
    "a=b",
    '"',
    ",",
    "two\nlines",
    "＝1",
    "",
    "x;=1",
    "x\t+1",
    "\t=1",
    "x;'=1",
    ";;-1",
    "x\n@1",
)


def test_cells_of_csv_are_no_formulas_and_can_be_read_back(make: Make, tmp_path: Path) -> None:
    cells = [Message(topic="T", body=text.encode(), properties={"KEYS": text or "k"}) for text in FORMULAS]
    store = make(
        *cells, Message(topic="T", body=b"\xff\x00", properties={"TAGS": "\x1b[2J"}), Message(topic="T", body=b"\x1b]0;x\x07")
    )
    rr.export(store, to=tmp_path / "all.csv", format="csv")
    data = (tmp_path / "all.csv").read_bytes()
    assert b"\x1b" not in data
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert not any(value.startswith(tuple("=+-@\t\r＝")) for value in row.values())
        assert not any(re.search("[;\t\n][=+@＝-]", value) for value in row.values()), "also where cells end at others"
    found = [re.sub("([;\t\r\n])'", r"\1", row["body"].removeprefix("'")) for row in rows]
    assert found[: len(FORMULAS)] == list(FORMULAS)
    assert [row["bodyFormat"] for row in rows[-2:]] == ["base64", "base64"]
    assert [base64.b64decode(body) for body in found[-2:]] == [b"\xff\x00", b"\x1b]0;x\x07"]
    assert [json.loads(row["properties"])["KEYS"] for row in rows[: len(FORMULAS)]] == [text or "k" for text in FORMULAS]


def test_escape_sequences_stay_within_strings_of_json(make: Make, tmp_path: Path) -> None:
    evil = '\x1b[2J"\\\x07\x9b\u2028\n\x00'
    store = make(Message(topic="T", body=evil.encode(), properties={"KEYS": evil.replace("\x01", ""), evil: "v"}))
    (row,) = exported(store, tmp_path / "x.jsonl")
    text = (tmp_path / "x.jsonl").read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert not [character for character in text[:-1] if not character.isprintable()]
    assert (row["body"], row["properties"]) == (evil, {"KEYS": evil, evil: "v"})
    assert "\x1b" not in str(rr.export(store, count=True))


TOPICS = (
    "plain", "...", "a=b&c", "%25", "%RETRY%g", "__HIVE_DEFAULT_PARTITION__", "_hidden", ".dot", "ключ", "a b", "007", "~",
    "L" * 250, "é" * 120,
)  # fmt: skip


def test_topics_never_leave_the_folder_of_parquet(make: Make, tmp_path: Path) -> None:
    store = make(
        *(
            Message(topic=topic, version=2, body=topic.encode(), store_timestamp=EPOCH + k * DAY)
            for k, topic in enumerate(TOPICS)
        )
    )
    to = tmp_path / "parquet"
    result = rr.export(store, to=to, format="parquet", kind="all")
    assert (result.messages, result.files) == (len(TOPICS), len(TOPICS))
    assert sorted(os.listdir(tmp_path)) == ["parquet", "store"]
    found = sorted(to.rglob("*.parquet"))
    assert {len(path.relative_to(to).parts) for path in found} == {3}
    kinds = ds.partitioning(pa.schema([("topic", pa.string()), ("day", pa.date32())]), flavor="hive")
    rows = ds.dataset(to, partitioning=kinds).to_table().to_pylist()
    by_body = {row["body"].decode(): row for row in rows}
    for k, topic in enumerate(TOPICS):
        day = dt.datetime.fromtimestamp((EPOCH + k * DAY) / 1000, dt.timezone.utc).date()
        assert by_body[topic]["day"] == day
        if "~" in (folder := sinks.topic_folder(topic)):
            assert by_body[topic]["topic"] in folder.replace("%C3%A9", "é")
            assert by_body[topic]["realTopic"] == topic
        else:
            assert by_body[topic]["topic"] == topic
    assert len(result.warnings) == 3, "two names are too long for a folder, and one stands for null"
    # No scan takes such a name.
    folders = [sinks.topic_folder(topic) for topic in ("../../up", "..", "/", "a\x1b[0m", "\\")]
    assert folders == ["topic=..%2F..%2Fup", "topic=..", "topic=%2F", "topic=a%1B%5B0m", "topic=%5C"]


def test_mixed_topics_make_few_row_groups(mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where memory is short and files are opened again, each message is there once."""
    monkeypatch.setattr(sinks, "BUFFER", 1 << 16)
    monkeypatch.setattr(sinks, "OPEN_MAX", 1)
    rr.export(mixed, to=tmp_path / "parquet", format="parquet", kind="all")
    table = ds.dataset(tmp_path / "parquet", partitioning="hive").to_table()
    assert sorted(table.column("commitLogOffset").to_pylist()) == sorted(row["commitLogOffset"] for row in rows_of(mixed))
    assert table.schema.field("storeTime").type == pa.timestamp("us", "UTC")


def test_damage_is_counted_and_changes_the_exit_status(make: Make, tmp_path: Path) -> None:
    store = make(*(Message(topic="T", body=b"body-%d" % k) for k in range(5)))
    second = rows_of(store)[1]
    overwrite(store / "commitlog", second["commitLogOffset"] + 4, b"junk")
    result = rr.export(store, to=tmp_path / "x.jsonl")
    assert (result.exit_status, result.messages, result.damaged, result.damaged_bytes) == (3, 4, 1, second["msgSize"])
    assert f"offset {second['commitLogOffset']}" in result.warnings[0]
    assert rr.export(store, count=True).exit_status == 3


def test_bodies(make: Make, tmp_path: Path) -> None:
    long = bytes(range(256)) * (4 << 12)
    packed = zlib.compress(b"packed")
    store = make(
        Message(topic="T", body=packed, sysflag=1), Message(topic="T", body=zlib.compress(long), sysflag=1),
        Message(topic="T", body=long), Message(topic="T", body=b"broken", sysflag=1), segment=1 << 23,
    )  # fmt: skip
    found = exported(store, tmp_path / "unpacked.jsonl")
    assert [bytes_of(row) for row in found] == [b"packed", long, long, b"broken"]
    assert [row["bodyCompression"] for row in found] == [None, None, None, "zlib"]
    short = exported(store, tmp_path / "short.jsonl", body_max=100)
    assert [bytes_of(row) for row in short] == [b"packed", zlib.compress(long), long, b"broken"]
    stored = rr.export(store, to=tmp_path / "stored.jsonl", body="stored")
    assert not stored.warnings
    assert "body" not in exported(store, tmp_path / "none.jsonl", body="none")[0]
    assert rr.export(store, text="packed", count=True).messages == 1


def test_bodies_that_cannot_be_searched_are_told(make: Make, tmp_path: Path) -> None:
    packed = zlib.compress(b"needle")
    store = make(
        Message(topic="T", body=packed, sysflag=1), Message(topic="T", body=b"needle"), Message(topic="T", body=b"other"),
        Message(topic="T", body=b"needle but no zlib", sysflag=1), Message(topic=HALF, body=b"other"),
    )  # fmt: skip
    result = rr.export(store, text="needle", to=tmp_path / "found.jsonl")
    assert (result.messages, result.unsearched, result.exit_status, len(result.warnings)) == (2, 1, 3, 1)
    assert "not searched" in result.warnings[0]
    assert not result.left_out, "nobody looked into those of other kinds"
    assert rr.export(store, regex="^nee", body_max=1, count=True).unsearched == 2
    stored = exported(store, tmp_path / "stored.jsonl", regex="^needle$", body="stored")
    assert [(bytes_of(row), row["bodyCompression"]) for row in stored] == [(packed, "zlib"), (b"needle", None)]


def test_regular_expressions_match_characters(make: Make) -> None:
    store = make(*(Message(topic="T", body=text) for text in ("grün".encode(), "É".encode(), b"gr\xfcn\xff")))
    for regex, count in (("gr[üö]n", 1), ("(?i)é", 1), ("^gr.n$", 1), ("^.$", 1), (r"\xff", 1), ("^gr.n", 2)):
        assert rr.export(store, regex=regex, count=True).messages == count, regex


def test_the_queue_of_what_waits_is_the_one_that_it_waits_for(make: Make) -> None:
    store = make(
        *(Message(topic=HALF, properties={"REAL_TOPIC": "T", "REAL_QID": str(queue)}) for queue in (0, 2, 2)),
        Message(topic="T", queue_id=2), Message(topic="T"),
    )  # fmt: skip
    counts = [rr.export(store, topic="T", kind="half", queue=queue, count=True).messages for queue in (0, 1, 2)]
    assert counts == [1, 0, 2]
    plain = rr.export(store, topic="T", queue=2, count=True)
    assert (plain.messages, plain.left_out) == (1, {"half": 2})
    assert rr.export(store, topic="T", queue=2, undecided=True, count=True).messages == 2
    assert rr.export(store, topic=HALF, queue=0, begin_offset=0, count=True).messages == 3, "that topic itself is named"
    for kind in ("half", "timer", "all"):
        with pytest.raises(UsageError, match="wait in other queues"):
            rr.export(store, topic="T", kind=kind, queue=0, begin_offset=0, count=True)


def test_a_committed_message_decides_without_an_op_message(make: Make, tmp_path: Path) -> None:
    def half(key: str) -> Message:
        properties = {"REAL_TOPIC": "T", "REAL_QID": "0"} | ({"UNIQ_KEY": key} if key else {})
        return Message(topic=HALF, properties=properties)

    halves = half(""), half("again"), half("again"), half("open"), half("")
    places = [row["commitLogOffset"] for row in rows_of(make(*halves))]
    shutil.rmtree(tmp_path / "store")
    store = make(
        *halves,
        Message(topic="T", sysflag=8, prepared_offset=places[0]),
        Message(topic="T", sysflag=8, prepared_offset=places[1], properties={"UNIQ_KEY": "again"}),
        Message(topic="T", properties={"UNIQ_KEY": "open"}),
    )  # fmt: skip
    found = exported(store, tmp_path / "x.jsonl", undecided=True)
    assert [row["commitLogOffset"] for row in found] == places[3:]


@pytest.mark.parametrize("turn", ["\u202e", "\u2028", "\u061c", "\u200f", "\u2069"])
def test_what_turns_a_text_is_escaped(make: Make, tmp_path: Path, turn: str) -> None:
    store = make(Message(topic="T", body=f"a{turn}b".encode(), properties={"TAGS": f"x{turn}", "KEYS": turn}))
    (row,) = exported(store, tmp_path / "x.jsonl")
    assert (row["body"], row["tags"], row["properties"]["KEYS"]) == (f"a{turn}b", f"x{turn}", turn)
    rr.export(store, to=tmp_path / "x.csv", format="csv")
    for name in ("x.jsonl", "x.csv"):
        assert turn not in (tmp_path / name).read_text(encoding="utf-8")


def test_long_texts_are_base64(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "ESCAPED_MAX", 100)
    store = make(*(Message(topic="T", body=zlib.compress(b"\x01" * size), sysflag=1) for size in (100, 101)))
    found = exported(store, tmp_path / "x.jsonl")
    assert [(row["bodyFormat"], bytes_of(row)) for row in found] == [("text", b"\x01" * 100), ("base64", b"\x01" * 101)]


def test_without_hard_links_nothing_is_written_over(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_link(_: str, target: str) -> None:
        if target.endswith("taken.jsonl"):
            Path(target).write_text("mine")
        raise OSError(95, "Operation not supported")

    store = make(Message(topic="T", body=b"x"))
    monkeypatch.setattr(os, "link", no_link)
    assert exported(store, tmp_path / "x.jsonl")[0]["body"] == "x"
    with pytest.raises(InputError, match="is there meanwhile"):
        rr.export(store, to=tmp_path / "taken.jsonl")
    assert (tmp_path / "taken.jsonl").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["store", "taken.jsonl", "x.jsonl"]


def test_nothing_is_written_over(mixed: Path, tmp_path: Path) -> None:
    taken, folder = tmp_path / "file", tmp_path / "folder"
    taken.write_text("mine")
    folder.mkdir()
    (folder / "mine").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for to, kind in ((taken, "jsonl"), (folder, "jsonl"), (tmp_path / "link", "csv"), (folder, "parquet"), (taken, "parquet")):
        with pytest.raises(InputError):
            rr.export(mixed, to=to, format=kind)  # type: ignore[arg-type]
    for inside in (mixed / "x.jsonl", mixed / "commitlog" / "x"):
        with pytest.raises(InputError, match="lies inside"):
            rr.export(mixed, to=inside)
    assert taken.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "delta", "iceberg"])
def test_a_failure_leaves_nothing(mixed: Path, tmp_path: Path, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sinks.FileSink, "add", fail)
    monkeypatch.setattr(sinks.ParquetSink, "add", fail)
    with pytest.raises(InputError, match="No space left"):
        rr.export(mixed, to=tmp_path / "out", format=kind)
    assert not os.listdir(tmp_path)


KILLED = """
import os, sys, rocketmq_reindex as rr
rename = os.rename
def dies(old, new):
    if str(old).endswith("sealed"):
        os._exit(9)
    rename(old, new)
os.rename = dies
rr.export(sys.argv[1], to=sys.argv[2], format="parquet")
"""


def test_an_export_that_was_killed_while_it_was_published(mixed: Path, tmp_path: Path) -> None:
    """The next one clears what it left."""
    target = tmp_path / "out"
    assert subprocess.run([sys.executable, "-c", KILLED, mixed, target]).returncode == 9
    (left,) = tmp_path.glob(".out.rmq-reindex-*/sealed")
    assert any(left.rglob("*.parquet"))
    done = rr.export(mixed, to=target, format="parquet")
    assert ds.dataset(target, partitioning=None).count_rows() == done.messages > 0
    assert not list(tmp_path.glob(".out*"))


def test_a_folder_that_somebody_fills_meanwhile(mixed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the export gets into it."""
    target, sync = tmp_path / "out", files.sync

    def filled(folder: str, since: int = -1) -> None:
        sync(folder, since)
        target.mkdir()
        (target / "other").touch()

    monkeypatch.setattr(files, "sync", filled)
    with pytest.raises(InputError, match="out: holds other, which no build writes: name an empty folder"):
        rr.export(mixed, to=target, format="parquet")
    assert [path.name for path in target.iterdir()] == ["other"]
    assert not list(tmp_path.glob(".out*"))


def test_an_export_of_nothing_is_asked_for(mixed: Path, tmp_path: Path) -> None:
    for kind in ("jsonl", "csv", "parquet", "delta", "iceberg"):
        with pytest.raises(InputError, match="allow_empty"):
            rr.export(mixed, topic="none", to=tmp_path / kind, format=kind)
        assert not os.listdir(tmp_path)
    assert rr.export(mixed, topic="none", to=tmp_path / "x.csv", format="csv", allow_empty=True).messages == 0
    assert (tmp_path / "x.csv").read_text().startswith("topic,queueId,")


def test_a_topic_that_is_no_text(make: Make, tmp_path: Path) -> None:
    """A broker reads it with U+FFFD, and so do columns, which a warning says; a store keeps the bytes. A body is bytes."""
    store = make(Message(topic="Orders", body=b"\xff\x00\xfe"), Message(topic="Orders", body=b"text"))
    first = next((store / "commitlog").iterdir())
    first.write_bytes(first.read_bytes().replace(b"Orders", b"Ord\xffrs", 1))
    done = rr.export(store, to=tmp_path / "x.jsonl")
    assert done.topics == {"Ord\ufffdrs": 1, "Orders": 1}
    assert [warning for warning in done.warnings if "no UTF-8" in warning] == [
        "topic Ord\\ufffdrs: is no UTF-8: it is exported as a broker reads it"
    ]
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [bytes_of(row) for row in rows] == [b"\xff\x00\xfe", b"text"]
    new = rr.export(store, to=tmp_path / "new", format="store")
    assert not [warning for warning in new.warnings if "exported as" in warning]
    assert b"Ord\xffrs" in next((tmp_path / "new" / "commitlog").iterdir()).read_bytes()


def test_wrong_keywords(mixed: Path) -> None:
    for keywords in (
        {}, {"count": True, "queue": 1}, {"count": True, "begin_offset": 1}, {"count": True, "regex": "("},
        {"count": True, "topic": ""}, {"count": True, "topic": "T", "queue": 1, "begin_offset": 2, "end_offset": 2},
        {"count": True, "since": 2 * EPOCH, "until": EPOCH}, {"count": True, "body_max": 0},
        {"count": True, "body_max": (256 << 20) + 1},
        {"count": True, "topic": "T", "queue": 1, "end_offset": INT64_MAX}, {"count": True, "kind": "no"},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            rr.export(mixed, **keywords)
    with pytest.raises(UsageError, match="name a store"):
        rr.export(count=True)


def test_what_a_group_has_not_been_given(make: Make, tmp_path: Path) -> None:
    """From its offset on, of the topics that it reads, and what came again to it."""
    store = make(
        *(Message(topic="Orders", queue_id=queue, body=b"%d-%d" % (queue, n)) for queue in (0, 1, 2) for n in range(3)),
        *(Message(topic="%RETRY%billing", properties={"RETRY_TOPIC": "Orders"}, body=b"again-%d" % n) for n in range(2)),
        Message(topic="%RETRY%audit", properties={"RETRY_TOPIC": "Orders"}, body=b"others"),
        Message(topic="Unread", body=b"unread"),
    )
    (store / "config").mkdir()
    offsets = {"Orders@billing": {"0": 1, "1": 3}, "%RETRY%billing@billing": {"0": 1}, "Unread@audit": {"0": 0}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))

    def bodies(name: str, **keywords: Any) -> list[str]:
        return [row["body"] for row in exported(store, tmp_path / name, unconsumed_by="billing", **keywords)]

    assert bodies("all") == ["0-1", "0-2", "2-0", "2-1", "2-2", "again-1"]
    assert bodies("topic", topic="Orders", queue=0) == ["0-1", "0-2", "again-1"], "a retry is meant for that topic"
    assert bodies("kind", kind="message") == ["0-1", "0-2", "2-0", "2-1", "2-2"]
    newer = tmp_path / "newer.json"
    newer.write_text(json.dumps({"offsetTable": {"Orders@billing": {"0": 3, "1": 2, "2": 3}}}))
    assert bodies("newer", consumer_offsets=newer) == ["1-2"]
    both = [store / "config" / "consumerOffset.json", newer]
    assert bodies("both", consumer_offsets=both) == ["0-1", "0-2", "1-2", "again-1"], "of two files the lowest offset counts"
    with pytest.raises(InputError, match="no file of consumer offsets names this group"):
        rr.export(store, count=True, unconsumed_by="nobody")
