"""``import``: rows of an export become the messages that they were, and what no broker takes is refused with its row."""

from __future__ import annotations

import csv
import json
import random
import resource
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs import cli
from rocketmq_reindex.jobs.importing import sources
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import random_log

pytestmark = pytest.mark.usefixtures("inline_local")

SAME = (
    "topic", "queueId", "storeTimestamp", "storeHost", "bornTimestamp", "bornHost", "uniqKey", "keys", "tags", "flag",
    "reconsumeTimes", "preparedTransactionOffset", "batchSize", "properties", "body",
)  # fmt: skip
TEXT = "=1+1;@x\t'-\r\n'plain' \u202eturned \x1b[31m \N{GRINNING FACE}"


def rows_of(store: Path) -> list[dict[str, Any]]:
    """The messages of users in a store, with unpacked bodies; the checksum over where a record lay is not the message's."""
    table = rr.messages(store).read_all()
    table = table.filter(pc.equal(table["kind"], "message"))
    rows: list[dict[str, Any]] = table.select(SAME).to_pylist(maps_as_pydicts="lossy")
    for row in rows:
        row["properties"].pop("__CRC32#", None)
    return rows


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Returns a store with texts that formats must hide, of three topics and two days."""
    rng = random.Random(5)
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for number in range(150):
            # No key has a control character: CSV would show an escape.
            known = {"KEYS": f"k{number} ='+", "TAGS": "=paid;-x", "UNIQ_KEY": f"{number:032X}", "a": TEXT, "empty": ""}
            body = rng.choice([b"", TEXT.encode(), b"'=2", b"\xff\x00\x01", b"x" * 3000, b"=1;'@"])
            writer.append(Message(
                topic=rng.choice(["Orders", "Other", "%RETRY%g", "L" * 200]), queue_id=number % 3, body=body, flag=number,
                properties=known if number % 4 else {}, store_timestamp=EPOCH + number * 3_600_000,
                crc_property=number % 5 == 0,
                born_host=("2001:db8::1", 80) if number % 6 == 0 else ("10.1.2.3", 51234), reconsume_times=number % 2,
            ))  # fmt: skip
    return tmp_path / "store"


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a", "table"])
def test_what_was_exported_is_imported(store: Path, tmp_path: Path, name: str) -> None:
    forms: dict[str, Any] = {"a.jsonl": "jsonl", "a.csv": "csv", "a": "parquet", "table": "delta", "ice": "iceberg"}
    exported = rr.export(store, to=tmp_path / name, format=forms[name])
    done = rr.import_messages(tmp_path / name, to=tmp_path / "new", segment_size=1 << 15)
    assert (done.messages, done.topics, done.warnings) == (exported.messages, exported.topics, [])
    assert rows_of(tmp_path / "new") == rows_of(store), "in the order of the log"
    assert rr.verify(tmp_path / "new", engine="local").exit_status == 0
    assert rr.preflight(tmp_path / "new").exit_status == 0
    again = rr.import_messages(tmp_path / name, to=tmp_path / "again", segment_size=1 << 15)
    assert again.bytes == done.bytes
    for path in (tmp_path / "new").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "again" / path.relative_to(tmp_path / "new")).read_bytes(), path


def test_every_kind_of_record(tmp_path: Path) -> None:
    """Packed bodies come in unpacked, and those that do not unpack as they are."""
    random_log(tmp_path / "store" / "commitlog", 31, records=400, segment_size=1 << 15)
    rr.export(tmp_path / "store", to=tmp_path / "a.jsonl")
    done = rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new", segment_size=1 << 15)
    assert "no consumer gets them" in done.warnings[0]
    assert all("topic" in text for text in done.warnings[1:]), "names that TopicValidator refuses"
    assert rows_of(tmp_path / "new") == rows_of(tmp_path / "store")


def test_a_mended_body(store: Path, tmp_path: Path) -> None:
    rr.export(store, topic="Orders", to=tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    lines[3]["body"], lines[3]["bodyFormat"] = "mended", "text"
    (tmp_path / "a.jsonl").write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new")
    wanted = [row for row in rows_of(store) if row["topic"] == "Orders"]
    wanted[3]["body"] = b"mended"
    assert rows_of(tmp_path / "new") == wanted
    (segment,) = (tmp_path / "new" / "commitlog").iterdir()
    assert segment.stat().st_size == 1 << 30, "a broker maps whole segments"


def test_the_next_step_names_the_size_that_a_broker_has_to_have(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rr.export(store, to=tmp_path / "a.jsonl")
    start = "next     start a broker whose storePathRootDir this is"
    for words, line in (([], start), (["--segment-size", "32768"], f"{start}, with mappedFileSizeCommitLog=32768")):
        assert cli.main(["import", str(tmp_path / "a.jsonl"), "--to", str(tmp_path / f"new{len(words)}"), *words]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == line


def test_few_columns_are_enough(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"topic": "Orders", "storeTimestamp": 5, "body": "x", "keys": "k1 k2", "tags": "paid"}\n'
    )
    rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new", segment_size=1 << 15)
    (row,) = rows_of(tmp_path / "new")
    assert row["properties"] == {"KEYS": "k1 k2", "TAGS": "paid"}
    assert (row["queueId"], row["bornTimestamp"], row["bornHost"], row["storeHost"]) == (0, 5, "0.0.0.0:0", "0.0.0.0:0")
    assert [message.keys for message in rr.query(tmp_path / "new", topic="Orders", key="k2")] == [["k1", "k2"]]


GOOD: dict[str, Any] = {"topic": "Orders", "storeTimestamp": 5, "body": "x"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no topic": ({"topic": None}, "topic: is missing"),
    "a path": ({"topic": "../x"}, "topic ../x: cannot be the name of a folder"),
    "own": ({"topic": "SCHEDULE_TOPIC_XXXX"}, r"is the broker's own \(scheduled\)"),
    "queue": ({"queueId": -1}, "queueId -1: is the number of no queue"),
    "far queue": ({"queueId": 1 << 30}, "is the number of no queue"),
    "long number": ({"queueId": 1 << 31}, "is no whole number of 32 bits"),
    "text": ({"flag": "7"}, "flag: '7' is no whole number of 32 bits"),
    "true": ({"flag": True}, "flag: True is no whole number"),
    "no time": ({"storeTimestamp": None}, "storeTimestamp: give milliseconds since 1970"),
    "base64": ({"body": "%", "bodyFormat": "base64"}, "body: is no base64"),
    "form": ({"bodyFormat": "hex"}, "take text or base64"),
    "surrogate": ({"body": "\ud800"}, "half of a character"),
    "host": ({"bornHost": "localhost:80"}, "bornHost 'localhost:80': is no address with a port"),
    "port": ({"storeHost": "10.0.0.1:99999999999"}, "is no address with a port"),
    "tags": ({"tags": "a", "properties": {"TAGS": "b"}}, "tags is not what properties say"),
    "keys": ({"keys": "a", "properties": {}}, "keys is not what properties say"),
    "separator": ({"properties": {"a": "x\x02y"}}, "or U[+]0002 in it"),
    "name": ({"properties": {"a\x01": "x"}}, "U[+]0001 in its name"),
    "properties": ({"properties": {"a": 1}}, "is no object of texts"),
    "long": ({"properties": {"a": "x" * 32765}}, "32,768 bytes: a record has at most 32,767"),
    "packed": ({"bodyCompression": "lz4"}, "bodyCompression 'lz4': is not what sysFlag says"),
    "batch": (
        {"sysFlag": 0x80, "properties": {"INNER_NUM": "0", "INNER_BASE": "0"}},
        "INNER_NUM: a batch has from 1 to 32767 messages",
    ),
    "no number": ({"properties": {"INNER_NUM": "two", "INNER_BASE": "0"}}, "INNER_NUM and INNER_BASE: one is no number"),
    "no base": (
        {"sysFlag": 0x80, "properties": {"INNER_NUM": "2", "INNER_BASE": "x"}}, "INNER_NUM and INNER_BASE: one is no number"
    ),
    "column": ({"bdy": "x"}, "bdy: an export has only"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_no_broker_takes(name: str, tmp_path: Path) -> None:
    changed, told = WRONG[name]
    lines = [json.dumps(GOOD), json.dumps({**GOOD, **changed})]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(InputError, match=rf"a\.jsonl line 2: .*{told}"):
        rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new", segment_size=1 << 17)
    assert not (tmp_path / "new").exists()


def test_what_is_no_export(tmp_path: Path) -> None:
    def refused(name: str, data: bytes, told: str, **keywords: Any) -> None:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=told):
            rr.import_messages(tmp_path / name, to=tmp_path / "new", **keywords)
        (tmp_path / name).unlink()
        assert not (tmp_path / "new").exists()

    refused("a.jsonl", b"", "has no row: nothing is written without --allow-empty".replace("--allow-empty", "allow_empty"))
    refused("a.jsonl", b"[1]\n", r"a\.jsonl line 1: is no JSON object")
    refused("a.jsonl", b"[" * 100_000, "line 1: is no JSON object")
    refused("a.jsonl", b'{"topic": "x"}', "has no storeTimestamp and body, which each message needs")
    refused("a.txt", b"", r"ends with none of \.jsonl, ")
    refused("a.parquet", b"PAR1", r"a\.parquet: ")
    refused("a.csv", b'"topic","topic"\n"a","b"\n', "a column is named twice")
    refused("a.csv", b'"topic","storeTimestamp","body"\n"a",x,"b"\n', "row 1: storeTimestamp: 'x' is no whole number")
    refused("a.csv", b'"topic","storeTimestamp","body"\n"a",1\n', r"a\.csv ")
    refused("a.jsonl", json.dumps(GOOD).encode(), "does not fit into a segment of 100: give a larger", segment_size=100)
    with pytest.raises(InputError, match="there is no such file or folder"):
        rr.import_messages(tmp_path / "none.jsonl", to=tmp_path / "new")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no Parquet file"):
        rr.import_messages(tmp_path / "empty", to=tmp_path / "new")
    with pytest.raises(UsageError, match="segment_size"):
        rr.import_messages(tmp_path / "empty", to=tmp_path / "new", segment_size=4)
    (tmp_path / "a.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("")
    with pytest.raises(InputError, match="new: is not empty"):
        rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new")


def test_topics_of_cut_folders(tmp_path: Path) -> None:
    """A folder's name holds 240 bytes of a topic with its escapes: the file says the whole."""
    topic = "%" * 200
    with LogWriter(tmp_path / "store" / "commitlog") as writer:
        writer.append(Message(topic=topic))
    rr.export(tmp_path / "store", to=tmp_path / "a", format="parquet")
    assert rr.import_messages(tmp_path / "a", to=tmp_path / "new", segment_size=1 << 15).topics == {topic: 1}
    for path in (tmp_path / "a").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.replace_schema_metadata(None), path)
    with pytest.raises(InputError, match="names no topic"):
        rr.import_messages(tmp_path / "a", to=tmp_path / "other")


def read_by(path: Path, scratch: Path) -> pa.Table:
    """All rows of a source, put together."""
    scratch.mkdir()
    table = pa.Table.from_batches([rows.batch for rows in sources.open_source(str(path)).read(str(scratch))])
    assert list(scratch.iterdir()) == []
    return table


def test_parquet_files_side_by_side(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few rows are held at once, and few files are open, they come in the order of the log."""
    rr.export(store, to=tmp_path / "a", format="parquet")
    assert len(list((tmp_path / "a").rglob("*.parquet"))) == 20
    whole = read_by(tmp_path / "a", tmp_path / "scratch")
    monkeypatch.setattr(sources, "_STEP", 7)
    monkeypatch.setattr(sources, "BYTES", 1 << 10)
    assert read_by(tmp_path / "a", tmp_path / "pieces").equals(whole)
    monkeypatch.setattr(sources, "_OPEN_MAX", 3)
    assert read_by(tmp_path / "a", tmp_path / "merged").equals(whole), "merged in several rounds"
    assert whole["commitLogOffset"].to_pylist() == sorted(whole["commitLogOffset"].to_pylist())
    assert len(whole) == 96


def test_more_files_than_may_be_open(tmp_path: Path) -> None:
    """All of them have rows of the whole log."""
    count, each = 400, 4
    for number in range(count):
        folder = tmp_path / "a" / f"topic=T{number}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({
            "storeTimestamp": [5] * each, "body": [b"%d" % number] * each,
            "commitLogOffset": [100 * (count * row + number) for row in range(each)],
        }), folder / "a.parquet")  # fmt: skip
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        rows = read_by(tmp_path / "a", tmp_path / "scratch")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert rows["commitLogOffset"].to_pylist() == [100 * number for number in range(count * each)]
    assert rows["topic"].to_pylist() == [f"T{number}" for number in range(count)] * each


def test_equal_bodies_are_not_decoded_at_once(tmp_path: Path) -> None:
    """A file holds them once."""
    count = 500
    bodies = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([bytes(1 << 20)], pa.binary()))
    table = pa.table({"topic": ["A"] * count, "storeTimestamp": [5] * count, "body": bodies})
    pq.write_table(table, tmp_path / "b.parquet", store_schema=False)
    assert (tmp_path / "b.parquet").stat().st_size < 1 << 21
    sizes = [batch.batch.nbytes for batch in sources.open_source(str(tmp_path / "b.parquet")).read(str(tmp_path))]
    assert max(sizes) < 20 << 20
    assert sum(sizes) > count << 20


def test_lines_whose_names_differ(tmp_path: Path) -> None:
    """Each row is checked by the columns that it has; they need no batch of their own."""
    known = {"keys": "k", "properties": {"KEYS": "k"}}
    lines = [{**GOOD, **(known if number % 2 else {"tags": "t", "queueId": 1})} for number in range(4000)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    read = list(sources.open_source(str(tmp_path / "a.jsonl")).read(str(tmp_path)))
    assert len(read) == 1
    assert rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new", segment_size=1 << 20).messages == 4000
    lines.append({**GOOD, "keys": None, "properties": {"KEYS": "k"}})
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(InputError, match="line 4001: keys is not what properties say"):
        rr.import_messages(tmp_path / "b.jsonl", to=tmp_path / "other")


def test_a_damaged_page_names_its_file(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "a", format="parquet", topic="Orders")
    paths = sorted((tmp_path / "a").rglob("*.parquet"))
    found = pq.ParquetFile(paths[1]).metadata.row_group(0)
    column = next(found.column(at) for at in range(found.num_columns) if found.column(at).path_in_schema == "body")
    with open(paths[1], "r+b") as file:
        file.seek(column.dictionary_page_offset + 30)
        file.write(b"\xff" * 20)
    with pytest.raises(InputError, match=rf"{paths[1].name}: ") as error:
        rr.import_messages(tmp_path / "a", to=tmp_path / "new")
    assert paths[1].parent.name in str(error.value)
    assert not (tmp_path / "new").exists()


def test_a_folder_of_another_topic_than_its_files(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "a", format="parquet", topic="Orders")
    (tmp_path / "a" / "topic=Orders").rename(tmp_path / "a" / "topic=N%20ew")
    with pytest.raises(InputError, match=r"part-00000\.parquet: its folder names topic N ew, and the file says topic Orders"):
        rr.import_messages(tmp_path / "a", to=tmp_path / "new")


def test_a_line_of_a_broker_that_does_not_know_the_record(tmp_path: Path) -> None:
    for changed, told in (
        ({"topic": "L" * 200}, "200 bytes, a record of the second version: RocketMQ 4.9 reads none"),
        ({"sysFlag": 0x80, "properties": {"INNER_NUM": "2", "INNER_BASE": "0"}}, "a batch of messages: RocketMQ 4.9 has none"),
    ):  # fmt: skip
        (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, [GOOD, {**GOOD, **changed}])))
        with pytest.raises(InputError, match=rf"a\.jsonl line 2: .*{told}"):
            rr.import_messages(tmp_path / "a.jsonl", to=tmp_path / "new", broker_version="4.9")
        assert not (tmp_path / "new").exists()


def test_a_csv_file_as_a_spreadsheet_leaves_it(store: Path, tmp_path: Path) -> None:
    """All cells in quotes, other ends of lines: the same messages."""
    rr.export(store, topic="Other", to=tmp_path / "a.csv", format="csv")
    with open(tmp_path / "a.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(tmp_path / "b.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    rr.import_messages(tmp_path / "b.csv", to=tmp_path / "new", segment_size=1 << 15)
    assert rows_of(tmp_path / "new") == [row for row in rows_of(store) if row["topic"] == "Other"]
