"""``rr.messages``: each record of a log is a row as the reference reads it, in the order of the log; damage is rows, too."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex import files
from rocketmq_reindex.udfs.messages.log_rows import LogRowReader
from rocketmq_reindex.udfs.messages.pieces import in_order
from tests.golden.stores import GoldenStore
from tests.tools import spoil
from tests.tools.encode import EPOCH, Message
from tests.tools.faulty_processes import ROOT
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import random_log
from tests.unit.udfs.sql.test_source_commitlog import damage_expected, damage_of, expected_rows, reference

SEGMENT = 1 << 14
UNIT = struct.Struct(">qiq")


def rows_of(reader: pa.RecordBatchReader) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.read_all().to_pylist(maps_as_pydicts="strict")
    return rows


def test_rows_of_random_logs(seed: int, tmp_path: Path) -> None:
    puts = random_log(tmp_path / "commitlog", seed, records=200, segment_size=SEGMENT)
    wanted = expected_rows(puts, reference(tmp_path, broker_version="5.5"), "5.5")
    rows = rows_of(rr.messages(tmp_path, body="stored"))
    assert [row.pop("damage") for row in rows] == [None] * len(puts)
    assert rows == wanted
    rng = random.Random(seed)
    topics = rng.sample(sorted({row["topic"] for row in wanted}), 2)
    kept = rows_of(rr.messages(tmp_path, body="stored", topics=[topics[0], f"{topics[1]}*"], damage="skip"))
    assert kept == [row for row in wanted if row["topic"] == topics[0] or row["topic"].startswith(topics[1])]
    low, high = sorted(rng.choice(wanted)["storeTimestamp"] for _ in range(2))
    kept = rows_of(rr.messages(tmp_path, body="stored", since=low, until=high, damage="skip"))
    assert kept == [row for row in wanted if low <= row["storeTimestamp"] < high]


def test_keys(seed: int, tmp_path: Path) -> None:
    """A word of KEYS or a whole unique key, and no part of one; a body that is not asked for is not read."""
    puts = random_log(tmp_path / "commitlog", seed, records=150, segment_size=SEGMENT)
    wanted = expected_rows(puts, reference(tmp_path, broker_version="5.5"), "5.5")
    rng = random.Random(seed)
    words = sorted({word for row in wanted for word in (row["keys"] or "").split(" ") if word})
    unique = sorted({row["uniqKey"] for row in wanted if row["uniqKey"]})
    for keys in ([rng.choice(words)], [rng.choice(unique)], rng.sample(words, 3) + rng.sample(unique, 2)):
        kept = rows_of(rr.messages(tmp_path, body="stored", keys=keys, damage="skip"))
        assert kept == [row for row in wanted if row["uniqKey"] in keys or {*(row["keys"] or "").split(" ")} & {*keys}]


def test_keys_that_are_parts_of_others(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "commitlog", SEGMENT) as writer:
        for keys in ("a", "ab", "b a", "a b", "", "A", " a"):
            writer.append(Message(properties={"KEYS": keys, "UNIQ_KEY": f"u {keys}"}))
    offsets = [put.offset for put in writer.puts]

    def found(*keys: str) -> list[int]:
        rows = rows_of(rr.messages(tmp_path, keys=keys, columns=["commitLogOffset"]))
        return [offsets.index(row["commitLogOffset"]) for row in rows]

    assert found("a") == [0, 2, 3, 6]
    assert found("ab") == [1]
    assert found("a b") == [], "two keys are not one"
    assert found("u a b", "A") == [3, 5]


def test_damage_is_rows(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    puts = random_log(tmp_path / "commitlog", seed, records=150, segment_size=SEGMENT)
    for record in sorted(rng.sample(range(5, len(puts) - 5), 4), reverse=True):
        spoil.spoil_any(tmp_path, record, rng)
    log = reference(tmp_path)
    rows = rows_of(rr.messages(tmp_path, body="stored"))
    assert damage_of(rows) == damage_expected(log)
    sound = [row["commitLogOffset"] for row in rows if not row["damage"]]
    assert sound == [record.offset for record in log.records]
    few = rows_of(rr.messages(tmp_path, columns=["topic"], damage="skip"))
    assert (len(few), set(few[0])) == (len(sound), {"topic"})
    # Also where no column for it was asked for: a row of nulls would say nothing.
    assert [row["damage"] for row in rows_of(rr.messages(tmp_path, columns=["topic"])) if row["damage"]] == [
        row["damage"] for row in rows if row["damage"]
    ]
    reader = rr.messages(tmp_path, damage="fail")
    with pytest.raises(rr.RefusedError, match=r'^segment \d{20}: damage: offset .*: read with damage="skip" or damage="rows"$'):
        reader.read_all()


def test_a_segment_that_is_missing_is_a_row(tmp_path: Path) -> None:
    puts = random_log(tmp_path / "commitlog", 5, records=120, segment_size=SEGMENT)
    (tmp_path / "commitlog" / f"{SEGMENT:020d}").unlink()
    (hole,) = (row for row in rows_of(rr.messages(tmp_path)) if row["damage"])
    assert (hole["commitLogOffset"], hole["msgSize"], hole["damage"]) == (SEGMENT, SEGMENT, "segment missing")
    assert len(rows_of(rr.messages(tmp_path, damage="skip"))) == sum(put.offset // SEGMENT != 1 for put in puts)


@pytest.mark.parametrize("name", ["basic-4.9", "basic-5.5", "transactions-delay", "trimmed-head", "v2-ipv6-batch", "wide-keys"])
def test_golden_stores_have_a_row_for_each_message_that_query_finds(name: str, golden_store: Any) -> None:
    """What ``query`` reads at the offset of a row is that row: another reader, in plain Python."""
    store: GoldenStore = golden_store(name)
    rows = rows_of(rr.messages(store.path))
    assert rows
    for row in rows[:: max(1, len(rows) // 25)]:
        (message,) = rr.query(store.path, physical=row["commitLogOffset"], body="hex", body_max=1 << 22)
        told = message.fields
        assert (told["topic"], told["queueId"], told["queueOffset"], told["size"], told["storeTimestamp"]) == (
            row["topic"], row["queueId"], row["consumeQueueOffset"], row["msgSize"], row["storeTimestamp"],
        )  # fmt: skip
        assert (told["properties"], told["uniqueKey"], told["tags"]) == (row["properties"], row["uniqKey"], row["tags"])
        assert bytes.fromhex(told["body"]) == row["body"]


@pytest.mark.parametrize("name", ["basic-4.9", "basic-5.5", "transactions-delay", "trimmed-head", "v2-ipv6-batch", "wide-keys"])
def test_each_unit_that_the_broker_wrote_is_a_row(name: str, golden_store: Any) -> None:
    """And each row that says so has its unit: by the files of the real broker, and by the CRCs that it put into the records."""
    store: GoldenStore = golden_store(name)
    units = {}
    for path, data in store.rebuilt().items():
        if path.startswith("consumequeue/"):
            *_, topic, queue, first = path.split("/")
            for number, (phy_offset, size, tags_code) in enumerate(UNIT.iter_unpack(data)):
                # What lies before the first unit of a queue has the largest size, what follows the last one none.
                if 0 < size < 2**31 - 1:
                    units[topic, int(queue), int(first) // UNIT.size + number] = phy_offset, size, tags_code
    rows = rows_of(rr.messages(store.path, body="stored", damage="skip"))
    assert units
    assert units == {
        (row["topic"], row["queueId"], row["consumeQueueOffset"]): (row["commitLogOffset"], row["msgSize"], row["tagsCode"])
        for row in rows if row["hasUnit"]
    }  # fmt: skip
    assert [row["commitLogOffset"] for row in rows] == sorted(row["commitLogOffset"] for row in rows)
    assert all(zlib.crc32(row["body"]) & 0x7FFFFFFF == row["bodyCRC"] for row in rows)


def test_bodies(tmp_path: Path) -> None:
    text = b"a body that packs well " * 500
    with LogWriter(tmp_path / "commitlog", 1 << 18) as writer:
        writer.append(Message(body=zlib.compress(text), sysflag=1))
        writer.append(Message(body=pa.compress(text, "zstd", asbytes=True), sysflag=0x201))
        writer.append(Message(body=b"no zlib", sysflag=1))
        writer.append(Message(body=text))
    stored = [put.message.body for put in writer.puts]

    def bodies(**keywords: Any) -> list[bytes | None]:
        return [row["body"] for row in rows_of(rr.messages(tmp_path, columns=["body"], **keywords))]

    assert bodies() == [text, text, None, text]
    assert bodies(max_body=len(text) - 1) == [None, None, None, text]
    assert bodies(body="stored") == stored
    assert "body" not in rr.messages(tmp_path, body="none").schema.names


def test_several_folders_and_times_with_zones(tmp_path: Path) -> None:
    puts = random_log(tmp_path / "all", 3, records=90, segment_size=SEGMENT)
    segments = sorted((tmp_path / "all").iterdir())
    (tmp_path / "more").mkdir()
    segments[1].rename(tmp_path / "more" / segments[1].name)
    rows = rows_of(rr.messages(commitlog=[tmp_path / "all", tmp_path / "more"], columns=["commitLogOffset", "storeTime"]))
    assert [row["commitLogOffset"] for row in rows] == [put.offset for put in puts]
    since = dt.datetime.fromtimestamp(EPOCH / 1000, dt.timezone(dt.timedelta(hours=5))) + dt.timedelta(milliseconds=20)
    late = rows_of(rr.messages(commitlog=[tmp_path / "all", tmp_path / "more"], since=since, columns=["storeTime"]))
    assert late == [{"storeTime": row["storeTime"], "damage": None} for row in rows if row["storeTime"] >= since]
    with pytest.raises(rr.UsageError, match="since: 2026-01-01T00:00:00 has no time zone: give one"):
        rr.messages(tmp_path, since=dt.datetime(2026, 1, 1))  # noqa: DTZ001  that is the point


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({}, "messages: name a store, or commitlog folders"),
        ({"store": "store", "columns": ["Topic"]}, "messages: columns: there is no Topic: take of topic, queueId, "),
        ({"store": "store", "columns": ["topic", "topic"]}, "messages: columns: one is named twice: name it once"),
        ({"store": "store", "columns": ["body"], "body": "none"}, "messages: columns: there is no body: take of topic, "),
        ({"store": "store", "columns": ["a\x1b[31m"]}, r"messages: columns: there is no a\x1b[31m: take of topic, "),
        ({"store": "store", "body": "text"}, "messages: body 'text': take unpacked or stored or none"),
        ({"store": "store", "damage": "stop"}, "messages: damage 'stop': take skip or rows or fail"),
        ({"store": "store", "segment_size": -1}, "messages: segment_size -1: take a number of bytes above 0"),
        ({"store": "store", "max_body": 0}, "messages: max_body 0: take a number of bytes above 0"),
        ({"store": "store", "keys": ""}, "messages: a topic and a key have at least one character"),
        ({"store": "store", "since": 1700000000}, "messages: since 1700000000: ten digits are seconds: take "),
        ({"store": "s3:/b/x"}, "messages: s3:/b/x: is no URI: write it with ://, or ./s3:/b/x for a path of that name"),
    ],
)
def test_what_cannot_be_asked(keywords: dict[str, Any], error: str) -> None:
    with pytest.raises(rr.UsageError) as raised:
        rr.messages(**keywords)
    assert str(raised.value).startswith(error)


def test_what_is_no_log(tmp_path: Path) -> None:
    """It is said at once, not when the first batch is asked for."""
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert rr.messages(tmp_path / "store").read_all().num_rows == 0
    for store, error in ((tmp_path / "nowhere", "is not there: store is"), (tmp_path / "store/commitlog", "is not there")):
        with pytest.raises(rr.InputError, match=error):
            rr.messages(store)
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(b"")
    with pytest.raises(rr.InputError, match=f"is no store: .*: did you mean the store around it, {tmp_path}/store"):
        rr.messages(tmp_path / "store" / "commitlog")
    (tmp_path / "store" / "commitlog").rename(tmp_path / "segments")
    with pytest.raises(rr.InputError, match=f"is no store: .*: did you mean commitlog=.{tmp_path}/segments"):
        rr.messages(tmp_path / "segments")
    (tmp_path / "segments").rename(tmp_path / "store" / "commitlog")
    log = tmp_path / "log" / "commitlog"
    puts = random_log(log, 3, records=200, segment_size=SEGMENT)
    first, second = sorted(log.iterdir())[:2]
    second.write_bytes(second.read_bytes()[:-100])
    with pytest.raises(rr.InputError, match="16,284 bytes where a segment has 16,384: give the right file or segment_size"):
        rr.messages(tmp_path / "log")
    for path in log.iterdir():
        path.unlink() if path not in (first, second) else None
    assert rr.messages(tmp_path / "log", segment_size=SEGMENT).read_all().num_rows < len(puts)
    (tmp_path / "store" / "commitlog" / "notes.txt").write_text("x")
    with pytest.raises(rr.InputError, match="is not a segment"):
        rr.messages(tmp_path / "store")


def test_rows_keep_their_bytes_where_a_log_is_read_into_one_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a bucket: the buffer is filled anew while the rows of what it held are made."""
    random_log(tmp_path / "commitlog", 4, records=400, segment_size=1 << 17)
    mapped = rr.messages(tmp_path).read_all()
    settings = vars(LogRowReader)["settings"].fget
    monkeypatch.setattr(LogRowReader, "settings", property(lambda rows: dataclasses.replace(settings(rows), chunk=4096)))
    monkeypatch.setattr(files.Reader, "view", lambda *_: None)
    assert rr.messages(tmp_path).read_all().equals(mapped)


def test_results_come_in_order_and_are_not_made_far_ahead() -> None:
    made, taken, most = [], 0, 0
    lock = threading.Lock()

    def piece(number: int) -> Iterator[int]:
        for k in range(3):
            with lock:
                made.append(3 * number + k)
            # The first pieces take longest.
            time.sleep(0.01 / (number + 1))
            yield 3 * number + k

    pieces = (lambda number=number: piece(number) for number in range(40))
    for result in in_order(pieces, 3):
        assert result == taken
        taken += 1
        with lock:
            most = max(most, len(made) - taken)
    assert taken == 120
    # Three pieces are worked on, and three wait in front of whoever takes: each of two results, and one in the making.
    assert most <= 3 * 3 * 2


@pytest.mark.parametrize("where", ["piece", "pieces", "closed"])
def test_no_thread_outlives_a_reading(where: str) -> None:
    before = set(threading.enumerate())

    def piece() -> Iterator[int]:
        yield 1
        if where == "piece":
            raise rr.InputError("in a piece")

    def pieces() -> Iterator[Any]:
        for _ in range(50):
            yield piece
        if where == "pieces":
            raise rr.InputError("in the pieces")
        while where == "closed":
            yield piece

    results = in_order(pieces(), 2)
    if where == "closed":
        assert next(results) == 1
        results.close()  # type: ignore[attr-defined]  # it is a generator
    else:
        with pytest.raises(rr.InputError, match=f"in {'a' if where == 'piece' else 'the'} {where}"):
            list(results)
    # One of another test may end meanwhile.
    assert set(threading.enumerate()) <= before


LEFT = """
import sys, threading
from rocketmq_reindex.udfs.messages.pieces import in_order
results = in_order((lambda k=k: iter([k] * 5) for k in range(1000)), 2)
print(next(results), flush=True)
if sys.argv[1] == "raises":
    raise SystemExit(next(results))
if sys.argv[1] == "goes on in another thread":
    threading.Thread(target=lambda: print(sum(results))).start()
"""


@pytest.mark.parametrize(
    ("how", "told"), [("stops", ["0"]), ("raises", ["0"]), ("goes on in another thread", ["0", "2497500"])]
)
def test_a_program_ends_that_left_a_reading_half_way(how: str, told: list[str]) -> None:
    """Python waits for threads before it gives up what a module holds; one that still reads gets all."""
    words = [sys.executable, "-c", LEFT, how]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == told


def test_what_gives_the_pieces_is_closed() -> None:
    """It may have a segment open, and an error keeps what has raised it."""
    closed = threading.Event()

    def pieces() -> Iterator[Any]:
        try:
            while True:
                yield lambda: iter([1])
        finally:
            closed.set()

    results = in_order(pieces(), 2)
    assert next(results) == 1
    results.close()  # type: ignore[attr-defined]  # it is a generator
    assert closed.is_set()
