"""``rmq-reindex query`` as a whole: what it prints, how it ends, and that it waits for nothing it does not need."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.api.looking import query
from rocketmq_reindex.jobs.api.messages import QueryResult
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.scan import range_notes
from tests.tools.batch_log import MADE, batch
from tests.tools.encode import EPOCH, ROLLBACK, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import random_log
from tests.tools.seeds import cases

SIZES = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


def build(store: Path, **settings: Any) -> None:
    """Put beside a commitlog what is built of it."""
    out = store.parent / f"{store.name}-built"
    summary = local_build(store, out, None, **(SIZES | settings))
    assert summary.exit == 0, summary.error
    for part in out.iterdir():
        part.rename(store / part.name)


def make(folder: Path, messages: list[Message], segment_size: int = 1 << 12, **settings: Any) -> list[Put]:
    """A whole store of these messages."""
    with LogWriter(folder / "commitlog", segment_size) as writer:
        puts = [writer.append(message) for message in messages]
    build(folder, **settings)
    return puts


def keyed(count: int, **more: Any) -> list[Message]:
    """Messages of one queue, a second apart, each with a unique key, and a key that three share."""
    return [
        Message(
            topic="T", body=f"body {k}".encode(), store_timestamp=EPOCH + 1000 * k,
            properties={"UNIQ_KEY": f"u{k}", "KEYS": f"all k{k // 3}"}, **more,
        )
        for k in range(count)
    ]  # fmt: skip


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    """ask(store, words, status): (rows, what went to stderr)."""

    def run(store: Path, words: str, status: int = 0) -> tuple[list[dict[str, Any]], str]:
        assert main(["query", str(store), "--json", *words.split()]) == status
        told = capsys.readouterr()
        return [json.loads(line) for line in told.out.splitlines()], told.err

    return run


def places(rows: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for row in rows]


def test_every_way_to_ask(tmp_path: Path, ask: Any) -> None:
    puts = make(tmp_path, keyed(60))
    at = [put.offset for put in puts]
    assert places(ask(tmp_path, "--topic T --key k5")[0]) == at[15:18]
    assert places(ask(tmp_path, "--topic T --key u59")[0]) == at[59:]
    assert places(ask(tmp_path, "--topic T --key all")[0]) == at
    assert places(ask(tmp_path, "--topic T --key all --max 4")[0]) == at[-4:]
    begin, end = EPOCH + 10_000, EPOCH + 20_000
    assert places(ask(tmp_path, f"--topic T --key all --begin {begin} --end {end}")[0]) == at[10:21]
    assert places(ask(tmp_path, f"--topic T --key all --begin {begin + 1} --end {end - 1} --max 3")[0]) == at[17:20]
    assert places(ask(tmp_path, "--topic T --queue 0 --offset 7")[0]) == at[7:8]
    assert places(ask(tmp_path, "--topic T --queue 0 --offset 57 --max 100")[0]) == at[57:]
    assert places(ask(tmp_path, f"--topic T --queue 0 --time {EPOCH + 30_001} --max 2")[0]) == at[31:33]
    assert places(ask(tmp_path, f"--topic T --queue 0 --time {EPOCH + 30_000} --scan")[0]) == at[30:31]
    assert places(ask(tmp_path, "--topic T --queue 0 --time 2023-11-14T22:13:25Z")[0]) == at[5:6]
    assert places(ask(tmp_path, f"--physical {at[9]}")[0]) == at[9:10]
    assert places(ask(tmp_path, "--id u33")[0]) == places(ask(tmp_path, "--id u33 --topic T")[0]) == at[33:34]
    row = ask(tmp_path, f"--physical {at[9]}")[0][0]
    assert places(ask(tmp_path, f"--id {row['msgId'].lower()}")[0]) == at[9:10]
    for words in ("--topic T --key nobody", "--id nobody", "--topic T --queue 9 --offset 0 --scan"):
        assert ask(tmp_path, words)[0] == []
    assert ask(tmp_path, "--topic U --key all", 1)[0] == []
    assert "0 to 59" in ask(tmp_path, "--topic T --queue 0 --offset 60")[1]
    assert "0 to 59" in ask(tmp_path, f"--topic T --queue 0 --time {EPOCH + 10**9}")[1]


def test_what_is_not_there_is_said_with_what_is_near(tmp_path: Path, ask: Any) -> None:
    make(tmp_path, [Message(topic="OrderPaid", body=b"b", properties={"UNIQ_KEY": "u"}, store_timestamp=EPOCH)])
    near = "topic orderpaid: the store has no queue of it (near it: OrderPaid)"
    for words in ("--key u", "--tag u", "--key u --scan"):
        assert near in ask(tmp_path, f"--topic orderpaid {words}", 1)[1]
    with pytest.raises(InputError, match=re.escape(f"nothing found: {near}")):
        query(tmp_path, topic="orderpaid", key="u")
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(json.dumps({"topicConfigTable": {"new": {"topicName": "new"}}}))
    assert "topic new: the store has no queue of it" in ask(tmp_path, "--topic new --key u")[1]
    assert "are lost (near it: OrderPaid): add --scan" in ask(tmp_path, "--topic orderpaid --queue 0 --offset 0", 1)[1]
    far = ask(tmp_path, "--topic zzz\\x1b --key u", 1)[1]
    assert "topic zzz" in far
    assert "near it" not in far
    assert "no queue" not in ask(tmp_path, "--topic OrderPaid --key nobody")[1]
    assert "id zzz: no message has it as its unique id, and a broker's id has 32 or 56" in ask(tmp_path, "--id zzz")[1]
    for words in ("--id u", f"--id {'0' * 32}"):
        assert "unique id" not in ask(tmp_path, words)[1]


def test_a_place_where_another_topic_has_its_message(tmp_path: Path, ask: Any) -> None:
    """It is not shown for a topic that it is not of: one line says whose it is."""
    (put,) = make(tmp_path, [Message(topic="Paid", body=b"b", properties={"UNIQ_KEY": "u"}, store_timestamp=EPOCH)])
    (row,) = ask(tmp_path, f"--physical {put.offset} --topic Paid")[0]
    for asked in (f"--physical {put.offset}", f"--id {row['msgId']}", f"--id {row['msgId'].lower()}"):
        assert places(ask(tmp_path, asked)[0]) == [put.offset]
        rows, told = ask(tmp_path, f"{asked} --topic paid", 1)
        assert rows == []
        assert told.splitlines()[0] == f"warning: offset {put.offset}: the message there is of topic Paid, not of paid"


@pytest.mark.parametrize("how", ["", " --scan"])
def test_a_unique_id_of_another_topic(how: str, tmp_path: Path, ask: Any) -> None:
    """One line says whose it is, as for the broker's id, and none that nobody has it."""
    messages = [Message(topic=topic, properties={"UNIQ_KEY": f"of{topic}"}) for topic in ("Paid", "Orders")]
    paid, orders = make(tmp_path, messages)
    for topic, put, other in (("Paid", paid, "Orders"), ("Orders", orders, "Paid")):
        assert places(ask(tmp_path, f"--id of{topic} --topic {topic}{how}")[0]) == [put.offset]
        rows, told = ask(tmp_path, f"--id of{topic} --topic {other}{how}")
        said = f"warning: offset {put.offset}: the message there is of topic {topic}, not of {other}"
        assert (rows, [line for line in told.splitlines() if line.startswith("warning")]) == ([], [said])
    assert "of topic Paid, not of paid" in ask(tmp_path, f"--id ofPaid --topic paid{how}", 1)[1]
    told = ask(tmp_path, f"--id nobody --topic Paid{how}")[1]
    assert "id nobody: no message has it as its unique id" in told
    assert "of topic" not in told


def test_the_id_of_another_host_and_another_topic(tmp_path: Path, ask: Any) -> None:
    """Where only the offset of an id is one of the log, the same rule says whose message stands there."""
    waits = {"REAL_TOPIC": "Paid", "REAL_QID": "0", "DELAY": "3"}
    (put,) = make(tmp_path, [Message(topic="SCHEDULE_TOPIC_XXXX", properties=waits)])
    (row,) = ask(tmp_path, f"--physical {put.offset}")[0]
    elsewhere = f"0909090900000001{row['msgId'][16:]}"
    for topic in ("", " --topic Paid", " --topic SCHEDULE_TOPIC_XXXX"):
        rows, told = ask(tmp_path, f"--id {elsewhere}{topic}")
        assert places(rows) == [put.offset]
        assert f"was stored by another host: its id is {row['msgId']}" in told
    rows, told = ask(tmp_path, f"--id {elsewhere} --topic Orders", 1)
    assert rows == []
    assert f"offset {put.offset}: the message there is of topic SCHEDULE_TOPIC_XXXX, not of Orders" in told


def test_a_message_that_waits_is_of_its_topic(tmp_path: Path, ask: Any) -> None:
    """A client that sends a delayed message is told the id of this record."""
    properties = {"REAL_TOPIC": "Paid", "REAL_QID": "0", "DELAY": "3", "UNIQ_KEY": "u"}
    (put,) = make(tmp_path, [Message(topic="SCHEDULE_TOPIC_XXXX", properties=properties)])
    (row,) = ask(tmp_path, f"--physical {put.offset}")[0]
    for asked in (f"--physical {put.offset}", f"--id {row['msgId']}", "--id u", "--id u --scan"):
        for topic in ("Paid", "SCHEDULE_TOPIC_XXXX"):
            assert places(ask(tmp_path, f"{asked} --topic {topic}")[0]) == [put.offset]
        assert ask(tmp_path, f"{asked} --topic Orders", 1)[0] == []


@pytest.mark.parametrize("size", [1 << 12, 1 << 18])
def test_an_offset_inside_a_record_names_it(size: int, tmp_path: Path, ask: Any) -> None:
    puts = make(tmp_path, [*keyed(3), Message(topic="T", body=b"b" * (size - 1000))], size)
    for put in (puts[0], puts[2], puts[3]):
        begin, end = put.offset, put.offset + put.size
        for at in (begin + 1, begin + 5, begin + 50, end - 1):
            told = ask(tmp_path, f"--physical {at}", 1)[1]
            assert f"offset {at}: is inside the record of T/0 at {begin}, queue offset {put.queue_offset}: " in told
            assert f"ask for --physical {begin}\n" in told
    assert "is inside" not in ask(tmp_path, f"--physical {puts[3].offset + puts[3].size + 9}", 1)[1]


def test_all_fields(tmp_path: Path, ask: Any) -> None:
    make(tmp_path, keyed(2, born_host=("2001:db8::1", 80), flag=5, reconsume_times=2))
    (row,) = ask(tmp_path, "--topic T --queue 0 --offset 1")[0]
    properties = {"UNIQ_KEY": "u1", "KEYS": "all k0"}
    expected = {
        "topic": "T", "queueId": 0, "queueOffset": 1, "servedAt": 1, "storeTimestamp": EPOCH + 1000, "bornTimestamp": EPOCH,
        "storeTime": "2023-11-14T22:13:21.000Z", "bornHost": "[2001:db8::1]:80", "storeHost": "10.0.0.9:10911", "version": 1,
        "uniqueKey": "u1", "keys": ["all", "k0"], "tags": None, "flag": 5, "reconsumeTimes": 2, "kinds": [], "bodyLength": 6,
        "properties": properties, "bodyFormat": "text", "body": "body 1", "bodyCrcMatches": True, "bodyTruncated": False,
        "compression": None, "preparedTransactionOffset": 0, "sysFlag": 16, "bodyCrc": zlib.crc32(b"body 1") & 0x7FFFFFFF,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected


def test_a_random_store(seed: int, tmp_path: Path, ask: Any) -> None:
    """Every key of every record, by the index and by a scan; rollbacks are in neither."""
    rng = random.Random(seed)
    puts = random_log(tmp_path / "commitlog", seed, records=150)
    build(tmp_path)
    # A query that finds nothing in another topic ends with 1: a topic may have rollbacks alone.
    queued = {path.name for path in (tmp_path / "consumequeue").iterdir()}
    asked = 0
    for put in rng.sample(puts, cases(40, 12)):
        (row,) = ask(tmp_path, f"--physical {put.offset}")[0]
        words = [row["uniqueKey"], *row["keys"]]
        key = next((word for word in words if word and word.isprintable() and " " not in word), None)
        if key is None or " " in row["topic"] or key.startswith("-") or row["topic"] not in queued:
            continue
        asked += 1
        found = [ask(tmp_path, f"--topic {row['topic']} --key {key} {more}")[0] for more in ("", "--scan")]
        assert found[0] == found[1]
        if put.message.sysflag & ROLLBACK != ROLLBACK:
            assert put.offset in places(found[0])
        assert all(one["topic"] == row["topic"] and key in (one["uniqueKey"], *one["keys"]) for one in found[0])
    # A broker's reader may be asked for none of a few.
    assert asked or cases(len(puts) < 150, True)


def test_keys_with_one_hash(tmp_path: Path, ask: Any) -> None:
    """Aa and BB have one hash; so have topic and key cut elsewhere."""
    names = (("T", "Aa"), ("T", "BB"), ("T#x", "y"), ("T", "x#y"))
    puts = make(tmp_path, [Message(topic=topic, properties={"KEYS": key}) for topic, key in names])
    for (topic, key), put in zip(names, puts, strict=True):
        assert places(ask(tmp_path, f"--topic {topic} --key {key}")[0]) == [put.offset]


def test_times_of_the_index_are_not_trusted(tmp_path: Path, ask: Any) -> None:
    """A clock that jumps, header times of all zeros, negative timeDiffs: the records say when they were stored."""
    times = [0, 10**11, -(10**10), 5, 6, 10**11]
    puts = make(tmp_path, [Message(topic="T", properties={"KEYS": "k"}, store_timestamp=EPOCH + time) for time in times])
    for path in (tmp_path / "index").iterdir():
        content = bytearray(path.read_bytes())
        content[0:16] = bytes(16)
        for item in range(1, 6):
            at = 40 + 4 * 7 + 20 * item + 12
            content[at : at + 4] = b"\xff" * 4
        path.write_bytes(content)
    for number, time in enumerate(times[1:5], 1):
        moment = EPOCH + time
        found = places(ask(tmp_path, f"--topic T --key k --begin {moment} --end {moment}")[0])
        assert found == [puts[k].offset for k in range(6) if times[k] == time]
        assert puts[number].offset in found


# -- bodies -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "how", "expected"),
    [
        (b"text \xd0\xba", "text", ("text", "text к")),
        (b"\xff\x00", "text", ("hex", "ff00")),
        (b'{"a": [1, null]}', "json", ("json", {"a": [1, None]})),
        (b'{"a": [1, null]', "json", ("text", '{"a": [1, null]')),
        (b"[1e999]", "json", ("text", "[1e999]")),
        (b"[NaN]", "json", ("text", "[NaN]")),
        (b"[" * 100_000, "json", ("text", "[" * 100_000)),
        (b"9" * 5000, "json", ("text", "9" * 5000)),
        (b'"\\ud800"', "json", ("json", "\ud800")),
        (b"\xff", "json", ("hex", "ff")),
        (b"abc", "hex", ("hex", "616263")),
        (b"", "text", ("text", "")),
    ],
)
def test_bodies(body: bytes, how: str, expected: tuple[str, Any], tmp_path: Path, ask: Any) -> None:
    make(tmp_path, [Message(body=body)], segment_size=1 << 18)
    (row,) = ask(tmp_path, f"--physical 0 --body {how}")[0]
    assert (row["bodyFormat"], row["body"]) == expected


def test_no_body(tmp_path: Path, ask: Any) -> None:
    make(tmp_path, keyed(1))
    (row,) = ask(tmp_path, "--physical 0 --body none")[0]
    assert "body" not in row
    assert row["bodyLength"] == 6


def test_packed_bodies_and_bombs(tmp_path: Path, ask: Any) -> None:
    bomb = zlib.compress(bytes(50 << 20))
    broken = bytearray(zlib.compress(b"hello" * 100))
    broken[-10] ^= 1
    bodies = [zlib.compress(b"hello"), bomb, bytes(broken), b"junk"]
    puts = make(tmp_path, [Message(body=body, sysflag=1) for body in bodies], segment_size=1 << 17)
    rows = [ask(tmp_path, f"--physical {put.offset} --body-max 1000") for put in puts]
    assert [row["body"] for (row,), _ in rows][:2] == ["hello", "\0" * 1000]
    assert [row["bodyTruncated"] for (row,), _ in rows] == [False, True, True, True]
    assert ["ZLIB" in told for _, told in rows] == [False, False, True, True]


def test_a_wrong_crc_is_told(tmp_path: Path, ask: Any) -> None:
    make(tmp_path, [Message(body=b"x", body_crc=1)], crc="none")
    (row,), told = ask(tmp_path, "--physical 0")
    assert (row["bodyCrcMatches"], "CRC" in told) == (False, True)


# -- what is broken ---------------------------------------------------------------------------------------------------------


def test_no_index(tmp_path: Path, ask: Any) -> None:
    puts = make(tmp_path, keyed(9))
    shutil.rmtree(tmp_path / "index")
    rows, told = ask(tmp_path, "--topic T --key k1", 1)
    assert rows == []
    assert "--scan" in told
    assert f"`rmq-reindex info {tmp_path}` names the build that makes it anew" in told
    for words in ("--topic T --key k1 --scan", "--topic T --key k1 --scan --max 3"):
        assert places(ask(tmp_path, words)[0]) == [put.offset for put in puts[3:6]]
    assert places(ask(tmp_path, "--id u4 --scan")[0]) == [puts[4].offset]


@pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T", "consumequeue/T/0", "consumequeue/T/0/*"])
def test_a_queue_without_its_files(gone: str, tmp_path: Path, ask: Any) -> None:
    """Its messages are in the log all the same: an error that says so, and with --scan the messages."""
    puts = make(tmp_path, keyed(9))
    if gone.endswith("*"):
        for path in (tmp_path / "consumequeue/T/0").iterdir():
            path.unlink()
    else:
        shutil.rmtree(tmp_path / gone)
    for words in ("--offset 3", f"--time {EPOCH}"):
        rows, told = ask(tmp_path, f"--topic T --queue 0 {words}", 1)
        assert (rows, told.count("\n")) == ([], 1)
        what = "holds no file of the queue" if gone.endswith("*") else "is not there"
        assert f"consumequeue/T/0: {what}: " in told
        assert "--scan" in told
        assert f"`rmq-reindex verify {tmp_path}` names the build that makes lost files anew" in told
    for words, found in (
        ("--offset 3", puts[3:4]),
        ("--offset 3 --max 4", puts[3:7]),
        ("--offset 7 --max 100", puts[7:]),
        (f"--time {EPOCH + 4500}", puts[5:6]),
        (f"--time {EPOCH + 4000} --max 3", puts[4:7]),
    ):
        rows, told = ask(tmp_path, f"--topic T --queue 0 {words} --scan")
        assert (places(rows), told) == ([put.offset for put in found], "")
    for words in ("--queue 0 --offset 9", "--queue 1 --offset 3", f"--queue 0 --time {EPOCH + 10**6}"):
        assert ask(tmp_path, f"--topic T {words} --scan") == ([], "")
    assert ask(tmp_path, "--topic Other --queue 0 --offset 0 --scan") == ([], "")


def test_scan_of_a_queue_tells_of_damage(tmp_path: Path, ask: Any) -> None:
    """What was asked for may have stood there. Beside a queue with files --scan reads the log as well."""
    puts = make(tmp_path, keyed(60))
    (tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}").unlink()
    assert ask(tmp_path, "--topic T --queue 0 --offset 25", 1)[0] == []
    assert places(ask(tmp_path, "--topic T --queue 0 --offset 25 --scan")[0]) == [puts[25].offset]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(puts[3].offset + 4)
        file.write(b"\0\0\0\0")
    rows, told = ask(tmp_path, "--topic T --queue 0 --offset 3 --scan", 1)
    assert (rows, f"offset {puts[3].offset}, {puts[3].size} bytes" in told) == ([], True)


def test_scan_over_more_damage_than_is_listed(tmp_path: Path, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of it is bounded, what is left out is said, and what lies behind it is found."""
    monkeypatch.setattr(range_notes, "HOLES_MAX", 12)
    puts = make(tmp_path, keyed(60), 1 << 16)
    for said, last in ((False, 24), (True, 50)):
        with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
            for put in puts[0:last:2]:
                file.seek(put.offset + 4)
                file.write(b"\0\0\0\0")
        rows, told = ask(tmp_path, "--id u59 --scan")
        assert places(rows) == [puts[59].offset]
        assert ("more than 12 damaged places: no more of them are told" in told) == said


def test_scan_of_a_topic_made_anew_shows_both_lives(tmp_path: Path, ask: Any) -> None:
    anew = [dataclasses.replace(message, queue_offset=k) for k, message in enumerate(keyed(3))]
    puts = make(tmp_path, [*keyed(5), *anew])
    shutil.rmtree(tmp_path / "consumequeue" / "T")
    rows, _ = ask(tmp_path, "--topic T --queue 0 --offset 1 --max 2 --scan")
    assert places(rows) == [puts[k].offset for k in (1, 6, 2, 7)]
    assert [row["queueOffset"] for row in rows] == [1, 1, 2, 2]


def test_scan_of_batches_of_a_topic_made_anew_shows_both_lives(tmp_path: Path, ask: Any) -> None:
    """Each life has a batch with the offset in the middle."""
    puts = make(tmp_path, [*(batch(base, 5) for base in (0, 5, 10)), *(batch(base, 3) for base in (0, 3, 6, 9))], **MADE)
    shutil.rmtree(tmp_path / "batchconsumequeue")
    for words, found in (("--offset 7", (1, 5)), ("--offset 0", (0, 3)), ("--offset 11", (6, 2)), ("--offset 14", (2,))):
        rows, _ = ask(tmp_path, f"--topic BatchA --queue 0 {words} --scan")
        assert places(rows) == [puts[k].offset for k in found]


def test_segments_that_are_gone(tmp_path: Path, ask: Any) -> None:
    """The first expired: told, no error. One in the middle lost: what was asked for may have been there."""
    puts = make(tmp_path, keyed(120))
    segments = sorted((tmp_path / "commitlog").iterdir())
    assert len(segments) > 3
    segments[0].unlink()
    left = [put.offset for put in puts if put.offset >= 1 << 12]
    rows, told = ask(tmp_path, "--topic T --key all")
    assert (places(rows), "expired" in told) == (left, True)
    assert ask(tmp_path, "--topic T --key u0")[0] == []
    assert places(ask(tmp_path, f"--topic T --queue 0 --time {EPOCH}")[0]) == left[:1]
    segments[2].unlink()
    gone = next(k for k, put in enumerate(puts) if put.offset >= 2 << 12)
    rows, told = ask(tmp_path, f"--topic T --key u{gone}", 1)
    assert (rows, "missing" in told) == ([], True)
    rows, told = ask(tmp_path, f"--topic T --queue 0 --offset {gone - 1} --max 2")
    assert (len(rows), "missing" in told) == (1, True)


def test_torn_files(tmp_path: Path, ask: Any) -> None:
    puts = make(tmp_path, keyed(60))
    last = max((tmp_path / "commitlog").iterdir())
    with last.open("r+b") as file:
        file.truncate(puts[-1].offset - int(last.name) + 50)
    rows, told = ask(tmp_path, "--topic T --key all")
    assert places(rows) == [put.offset for put in puts[:-1]]
    assert "impossible record size" in told
    newest = max((tmp_path / "index").iterdir())
    with newest.open("r+b") as file:
        file.truncate(100)
    rows, told = ask(tmp_path, "--topic T --key all")
    assert "IndexFile" in told or "wrong size" in told or "bytes" in told
    assert set(places(rows)) < {put.offset for put in puts}
    queue = tmp_path / "consumequeue" / "T" / "0"
    (queue / f"{400:020d}").unlink()
    rows, told = ask(tmp_path, "--topic T --queue 0 --offset 0 --max 60")
    assert places(rows) == [put.offset for put in [*puts[:20], *puts[40:59]]]
    assert "offsets 20 to 39" in told
    (queue / "notes.txt").write_text("x")
    assert "notes.txt" in ask(tmp_path, "--topic T --queue 0 --offset 0")[1]
    for number in range(7):
        (queue / f"notes-{number}").write_text("x")
    told = ask(tmp_path, "--topic T --queue 0 --offset 0")[1].splitlines()
    assert sum(line.endswith(": is no file of a queue: not looked at") for line in told) == 5
    assert "warning: not a file of the queue: 3 more" in told


def test_broken_chains(seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Random bytes in the index: what is found is right, and nothing hangs."""
    rng = random.Random(seed)
    puts = make(tmp_path, keyed(60))
    whole = {path: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    for _ in range(25):
        for path, content in whole.items():
            spoilt = bytearray(content)
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(spoilt))
                spoilt[at : at + 4] = rng.choice((rng.randbytes(4), bytes([0, 0, 0, rng.randrange(60)])))[: len(spoilt) - at]
            path.write_bytes(spoilt)
        k = rng.randrange(60)
        assert main(["query", str(tmp_path), "--json", "--topic", "T", "--key", f"u{k}"]) in (0, 1)
        found = [json.loads(line)["physicalOffset"] for line in capsys.readouterr().out.splitlines()]
        assert found in ([], [puts[k].offset])


def test_sizes_of_the_index(tmp_path: Path, ask: Any) -> None:
    """Told by the files; a broker's last file is not full; wrong ones that are given find nothing, or say so."""
    puts = make(tmp_path, keyed(60), checkpoint="broker")
    assert len(ask(tmp_path, "--topic T --key all")[0]) == 60
    for path in sorted((tmp_path / "index").iterdir())[:-1]:
        path.unlink()
    rows, _ = ask(tmp_path, "--topic T --key all --hash-slots 7 --index-items 40")
    assert places(rows) == [put.offset for put in puts][-len(rows) :]
    assert rows
    assert ask(tmp_path, "--topic T --key all")[0] == rows


def test_what_is_passed_over_in_a_broker_conf(tmp_path: Path, ask: Any) -> None:
    """It is a warning as in other commands, and never why something was not found."""
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    make(store, keyed(9))
    conf.write_text("brokerName=a\nmaxIndexNums=7\nstorePathDLedgerCommitLog=/other\n")
    rows, told = ask(store, f"--topic T --key u3 --broker-conf {conf}")
    assert len(rows) == 1
    read = "where STORE or a --commitlog is named, name this folder by --commitlog, too"
    assert told.splitlines()[:2] == [
        f"warning: {conf}: has maxIndexNums: is maxIndexNum meant? A broker passes over it",
        f"warning: {conf}: has storePathDLedgerCommitLog=/other: {read}",
    ]
    for path in (store / "index").iterdir():
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(InputError, match=r"could not be read: .*/index/\d+: ") as refused:
        query(str(store), broker_conf=str(conf), topic="T", key="u3")
    assert isinstance(refused.value.result, QueryResult)
    assert len(refused.value.result.warnings) > 2


def test_index_files_of_two_sizes(tmp_path: Path, ask: Any) -> None:
    """A broker whose settings were changed: what each file says of itself counts."""
    puts = make(tmp_path / "old", keyed(60), checkpoint="broker")
    make(tmp_path / "new", keyed(60), hash_slots=11, index_items=100)
    old, new = (sorted((tmp_path / name / "index").iterdir()) for name in ("old", "new"))
    old[-1].unlink()
    for path in new[1:]:
        path.rename(tmp_path / "old" / "index" / path.name)
    rows, told = ask(tmp_path / "old", "--topic T --key all")
    assert (places(rows), told) == ([put.offset for put in puts], "")


def test_an_encoding_that_lacks_letters(tmp_path: Path) -> None:
    make(tmp_path, [Message(topic="Тема", body="ключ".encode(), properties={"KEYS": "k"})])
    for words in (
        ["query", str(tmp_path), "--physical", "0"],
        ["inspect", str(tmp_path / "commitlog" / f"{0:020d}"), "--records"],
    ):
        command = [sys.executable, "-m", "rocketmq_reindex", *words]
        done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"\\u0422" in done.stdout


def test_batch_queues(tmp_path: Path, ask: Any) -> None:
    puts = make(tmp_path, [batch(base, 5) for base in range(0, 50, 5)], **MADE)
    assert places(ask(tmp_path, "--topic BatchA --queue 0 --offset 17")[0]) == [puts[3].offset]
    assert places(ask(tmp_path, "--topic BatchA --queue 0 --offset 17 --max 8")[0]) == [puts[3].offset, puts[4].offset]
    assert ask(tmp_path, "--topic BatchA --queue 0 --offset 50")[0] == []
    (row,) = ask(tmp_path, "--topic BatchA --queue 0 --offset 44")[0]
    assert (row["servedAt"], row["kinds"]) == (40, ["need-unwrap", "inner-batch"])
    shutil.rmtree(tmp_path / "batchconsumequeue")
    assert places(ask(tmp_path, "--topic BatchA --queue 0 --offset 17 --scan")[0]) == [puts[3].offset]
    assert places(ask(tmp_path, "--topic BatchA --queue 0 --offset 17 --max 8 --scan")[0]) == [puts[3].offset, puts[4].offset]
    assert ask(tmp_path, "--topic BatchA --queue 0 --offset 50 --scan")[0] == []


def test_a_store_by_uri(tmp_path: Path, ask: Any) -> None:
    """Through pyarrow.fs, as a remote one: the same rows."""
    puts = make(tmp_path, keyed(60))
    uri = f"file://{tmp_path}"
    for words in ("--topic T --key k7", "--topic T --queue 0 --offset 9 --max 3", f"--physical {puts[4].offset}", "--id u5"):
        rows, told = ask(uri, words)
        assert (rows, told) == ask(tmp_path, words)
        assert rows


# -- how it ends ------------------------------------------------------------------------------------------------------------


WRONG = """
--key k
--topic T
--topic T --key k --physical 1
--topic T --queue 0
--topic T --queue 0 --offset 1 --time 100000000002
--topic T --offset 1
--physical -1
--topic T --queue -1 --offset 0
--topic T --key k --max 0
--physical 1 --begin 100000000002
--topic ../x --queue 0 --offset 0
--topic T --key k --begin yesterday
--topic T --key k --begin 2023-11-14T22:13:20Z --end 2023-11-14T22:13:19Z
--physical 1 --body all
--physical 1 --body-max -1
--topic T --key k --hash-slots 5
--topic T --key k --hash-slots 0 --index-items 5
--physical 99999999999999999999
"""


@pytest.mark.parametrize("words", WRONG.splitlines())
def test_usage(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(tmp_path), *words.split()]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_no_store(tmp_path: Path, ask: Any) -> None:
    assert "is not there" in ask(tmp_path / "nowhere", "--physical 0", 1)[1]
    assert "commitlog" in ask(tmp_path, "--physical 0", 1)[1]
    (tmp_path / "index").mkdir()
    told = ask(tmp_path, "--physical 0", 1)[1]
    assert "offset 0: lies in no segment: the store has none" in told
    assert "expired" not in told


@pytest.mark.parametrize("words", ["query nowhere://x/y --physical 0", "inspect nowhere://x/y"])
def test_a_uri_that_nobody_knows(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    told = capsys.readouterr().err
    assert (told.startswith("error: "), told.count("\n")) == (True, 1)


def test_a_table_shows_no_controls_and_takes_nothing_for_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[31m[red]\u202e\r\n\x07"
    messages = [Message(topic="T", body=evil.encode(), properties={"KEYS": "k", "p": evil, evil: "v"}) for _ in range(2)]
    make(tmp_path, messages)
    for words in ("--physical 0", "--topic T --key k"):
        assert main(["query", str(tmp_path), *words.split()]) == 0
        shown = capsys.readouterr().out
        assert "\\x1b[31m[red]\\u202e" in shown.replace("\n", "").replace(" ", "")
        assert all(c.isprintable() or c == "\n" for c in shown)


def test_it_waits_for_nothing_it_does_not_need(tmp_path: Path) -> None:
    """Neither what compiles nor Spark, Arrow, pandas, numpy and rich."""
    make(tmp_path, keyed(9))
    heavy = ("numba", "llvmlite", "pyspark", "pandas", "pyarrow", "numpy", "delta", "rich")
    code = (
        "import sys; from rocketmq_reindex.jobs.cli import main; status = main(sys.argv[1:]); "
        f"print(sorted(set(sys.modules) & set({heavy!r})), file=sys.stderr); sys.exit(status)"
    )
    for words in ("--topic T --key k1", "--topic T --queue 0 --offset 1 --json", "--id u1 --json"):
        command = [sys.executable, "-c", code, "query", str(tmp_path), *words.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.strip()) == (0, "[]")
    command = [sys.executable, "-c", code, "inspect", str(tmp_path / "checkpoint"), "--json"]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip() == "[]"


def test_whoever_reads_may_stop(tmp_path: Path) -> None:
    make(tmp_path, keyed(200), segment_size=1 << 15)
    command = f"{sys.executable} -m rocketmq_reindex query {tmp_path} --topic T --key all --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, "")


@pytest.mark.parametrize(
    "words",
    [["query", ".", "--topic", "T", "--key", "all"], ["inspect", "checkpoint"], ["info", ".", "--json"]],
    ids=lambda w: w[0],
)
def test_nobody_reads(words: list[str], tmp_path: Path) -> None:
    """A short answer that could not be written is tried again when Python ends, unless stdout leads elsewhere by then."""
    make(tmp_path, keyed(3), segment_size=1 << 15)
    # Without a buffer nothing is left to be tried again.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        command = [sys.executable, "-m", "rocketmq_reindex", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=buffered, stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
