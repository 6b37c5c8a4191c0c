"""The pages that search: what they find is what ``query`` and ``export`` find, part after part, and each part is bounded."""

from __future__ import annotations

import itertools
import json
import random
import re
import shlex
import shutil
import zlib
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import facts, known_places, remembered, search_pages, searching
from rocketmq_reindex.storage_format.scan import range_scan, stale_tail
from rocketmq_reindex.udfs.messages import log_rows
from rocketmq_reindex.udfs.scan.ranges import find_stale_tail
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages, check
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message, body_start, encode
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases
from tests.tools.stale_log import stale_log, write_at

Stores = Callable[[str], GoldenStore]
pytestmark = pytest.mark.usefixtures("inline_local")


def part_at(pages: Pages, **fields: Any) -> Any:
    """The part at a place, which may have to be walked to first."""
    left = list[int]()
    while (part := pages.json("scan", **fields)["part"])["toWalk"]:
        assert (part["messages"], part["spans"], part["damage"]["count"]) == ([], [], 0)
        assert not left or part["toWalk"] < left[-1], "the walk does not move"
        left.append(part["toWalk"])
    return part


def parts(pages: Pages, **fields: Any) -> list[dict[str, Any]]:
    """All parts of a search, from its beginning to its end."""
    found = [pages.json("scan", **fields)["part"]]
    while (cursor := found[-1]["next"]) is not None:
        assert cursor not in [part["from"] for part in found], "the search does not move"
        found.append(pages.json("scan", **fields, cursor=cursor)["part"])
        assert found[-1]["toWalk"] == 0, "a place is not remembered"
    return found


def offsets(found: list[dict[str, Any]]) -> list[int]:
    return [row["physicalOffset"] for part in found for row in part["messages"]]


def exported(store: Path, to: Path, **keywords: Any) -> list[int]:
    to.unlink(missing_ok=True)
    rr.export(store=store, to=to, format="jsonl", kind=["all"], allow_empty=True, **keywords)
    return [json.loads(line)["commitLogOffset"] for line in to.read_text().splitlines()]


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part has all that there is."""
    monkeypatch.setattr(searching, "HITS_MAX", 100_000)
    monkeypatch.setattr(searching, "PART_SECONDS", 100.0)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts as small as can be: their ends lie everywhere."""
    monkeypatch.setattr(searching, "HITS_MAX", 7)
    monkeypatch.setattr(searching, "PART_SECONDS", 0.0)
    monkeypatch.setattr(searching, "RANGE", 3000)
    monkeypatch.setattr(searching, "PIECE_BYTES", 2000)


def write_log(store: Path, messages: list[Message], segment: int = 1 << 16) -> Path:
    with LogWriter(store / "commitlog", segment) as writer:
        for message in messages:
            writer.append(message)
    return store


# -------------------------------------------------------------------------------------------------------------------- the same


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", ["basic-5.3", "transactions-delay"])
def test_the_log_has_what_export_finds(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name).path
    pages, to = Pages(f"a={store}"), tmp_path / "out.jsonl"
    every = [row for part in parts(pages, topic="*") for row in part["messages"]]
    assert [row["physicalOffset"] for row in every] == exported(store, to)
    assert len(every) > 100
    one = next(row for row in every[40:] if row["keys"] and row["tags"])
    middle, late = (every[len(every) * k // 4]["storeTimestamp"] for k in (1, 3))
    asked: list[dict[str, Any]] = [
        {"topic": one["topic"], "queue": one["queueId"], "tag": one["tags"]}, {"topic": "T*", "tag": one["tags"], "text": "a"},
        {"key": one["keys"][0]}, {"key": "none"}, {"regex": "[0-7]{5}"}, {"text": "a", "regex": "e.*o"},
        {"since": middle, "until": late, "topic": one["topic"]}, {"since": late, "queue": 1, "topic": "*A"},
    ]  # fmt: skip
    for fields in asked:
        (part,) = parts(pages, **fields)
        words = {name: [value] if name in ("topic", "key", "tag") else value for name, value in fields.items()}
        assert offsets([part]) == exported(store, to, **words), fields
        (command,) = part["commands"]
        assert shlex.split(command)[:3] == ["rmq-reindex", "export", str(store)]
        assert all(str(value) in shlex.split(command) for value in fields.values())
    page, found = pages.both("scan", key=one["keys"][0])
    assert found["part"]["messages"]
    assert found["part"]["commands"][0] in unescape(page)


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("name", ["basic-5.3", "transactions-delay", "dledger-5.3"])
def test_a_key_is_what_query_finds_without_an_index(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name).path
    if name != "dledger-5.3":
        shutil.copytree(store / "commitlog", tmp_path / "store" / "commitlog")
        store = tmp_path / "store"
    pages = Pages(f"a={store}")
    (every,) = parts(pages, topic="*")
    # No broker gives items to a rollback, by which a query goes.
    for row in [each for each in every["messages"] if each["keys"] and "rollback" not in each["kinds"]][:60:30]:
        key, topic = row["keys"][0], row["topic"]
        found = [each for part in parts(pages, topic=topic, key=key) for each in part["messages"]]
        found = [each for each in found if each["topic"] == topic and "rollback" not in each["kinds"]]
        expected = [each.to_dict() for each in rr.query(store=store, topic=topic, key=key, scan=True, body_max=4096)]
        assert [{**each, "store": "a"} for each in expected] == found
        assert expected


@pytest.mark.usefixtures("small")
def test_parts_have_each_record_once(tmp_path: Path) -> None:
    """Wherever they end: by hits, by time, by bytes, inside of a record."""
    messages = [
        Message("TopicA" if k % 3 else "B", body=b"%04d" % k * (k % 40), properties={"KEYS": f"k{k}"}) for k in range(150)
    ]
    store, to = write_log(tmp_path / "store", messages, 1 << 13), tmp_path / "out.jsonl"
    questions: list[dict[str, Any]] = [{"topic": "TopicA"}, {"text": "7"}, {"key": "none"}]
    for fields in questions:
        words = {name: [value] if name in ("topic", "key") else value for name, value in fields.items()}
        pages, alone = Pages(f"a={store}"), Pages(f"a={store}")
        found = parts(pages, **fields)
        assert offsets(found) == exported(store, to, **words)
        assert all(len(part["messages"]) <= 7 for part in found)
        assert len(found) > 8
        spans = [(span["from"], span["to"]) for part in found for span in part["spans"]]
        assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(spans))
        log = found[-1]["bytes"]
        assert sum(part["bytes"]["part"] for part in found) == log["reached"] == log["all"] == spans[-1][1] - spans[0][0]
        reached = [part["bytes"]["reached"] for part in found]
        assert reached == sorted(reached)
        # Another process knows nothing of the parts before, and finds where a record begins by itself.
        for part in found[-2::-3]:
            again = part_at(alone, **fields, cursor=part["from"])
            assert (again["messages"], again["next"]) == (part["messages"], part["next"])


@pytest.mark.usefixtures("small")
def test_parts_of_a_log_of_dledger(golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "RANGE", 100_000)
    monkeypatch.setattr(searching, "HITS_MAX", 40)
    store = golden_store("dledger-5.3").path
    found = parts(Pages(store), topic="*")
    assert offsets(found) == exported(store, tmp_path / "out.jsonl")
    assert len(found) > 3


@pytest.mark.usefixtures("small")
def test_a_body_with_the_image_of_a_record_is_one_message(tmp_path: Path) -> None:
    """A cursor from an address may lie inside of it, and a range may end there."""
    images = b""
    while len(images) < 9000:
        # Each names the place where it lies.
        images += encode(Message("T", body=b"y" * 300, properties={"KEYS": "inside"}), body_start(Message()) + len(images))
    store = write_log(tmp_path / "store", [Message("T", body=images), Message("T", properties={"KEYS": "behind"})])
    assert (store / "commitlog" / ("0" * 20)).read_bytes()[body_start(Message()) :].startswith(images)
    pages = Pages(store)
    for cursor in ("0.0", "0.100", "0.400", "0.5000"):
        found = pages.json("scan", topic="T", cursor=cursor)["part"]
        while found["next"] and not found["messages"]:
            found = pages.json("scan", topic="T", cursor=found["next"])["part"]
        assert found["messages"][0]["keys"] == ([] if cursor == "0.0" else ["behind"])


# ---------------------------------------------------------------------------------------------------------------------- damage


@pytest.mark.usefixtures("small")
def test_parts_end_inside_of_long_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one goes on there: none begins the search behind the damage anew, and it is told once, whole."""
    monkeypatch.setattr(searching, "CHUNK", 4096)
    monkeypatch.setattr(searching, "RANGE", 1 << 15)
    messages = [Message("T", body=b"%04d" % k * 20, properties={"KEYS": f"k{k}"}) for k in range(1000)]
    store = write_log(tmp_path / "store", messages, 1 << 18)
    path = min((store / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(700)
        file.write(b"\xda" * 100_000)
    pages, to = Pages(f"a={store}"), tmp_path / "out.jsonl"
    found = parts(pages, topic="*")
    empty = [part for part in found if not part["messages"] and part["next"]]
    inside = [part for part in empty if 700 < int(part["next"].split(".")[1]) < 100_700]
    assert len(inside) >= 20
    assert [part["damage"]["count"] for part in inside] == [0] * len(inside)
    told = [place for part in found for place in part["damage"]["places"]]
    assert len(told) == 1
    assert told[0]["offset"] <= 700
    assert told[0]["offset"] + told[0]["bytes"] >= 100_700
    assert offsets(found) == exported(store, to, topic=["*"])
    # One that comes from elsewhere walks through the damage first, in parts.
    alone = part_at(Pages(f"a={store}"), topic="*", cursor=inside[-1]["next"])
    follows = found[found.index(inside[-1]) + 1]
    assert (alone["next"], alone["damage"], alone["messages"]) == (follows["next"], follows["damage"], follows["messages"])


def test_a_part_is_remembered_while_no_segment_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "SETTLED", -1 << 62)
    messages = [Message("T", body=b"%04d" % k, properties={"KEYS": f"k{k}"}) for k in range(50)]
    store = write_log(tmp_path / "store", messages)
    pages, calls = Pages(f"a={store}"), list[str]()
    part = searching.LogSearch.part

    def counted(self: Any, cursor: Any) -> Any:
        calls.append(str(cursor))
        return part(self, cursor)

    def fails(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(searching.LogSearch, "part", counted)
    first = pages.json("scan", key="k7")
    assert pages.json("scan", key="k7") == first
    assert calls == ["0.0"]
    assert len(pages.json("scan", key="k8")["part"]["messages"]) == 1
    assert calls == ["0.0"] * 2
    # What could not be read once may be read the next time.
    with monkeypatch.context() as failing:
        failing.setattr(searching.LogSearch, "_look", fails)
        (warning,) = pages.json("scan", key="k9")["part"]["warnings"]
    assert warning.startswith("not searched: ")
    assert len(pages.json("scan", key="k9")["part"]["messages"]) == 1
    # Another file that came into the place of one, of the same size.
    path = min((store / "commitlog").iterdir())
    changed = path.read_bytes().replace(b"KEYS\x01k7\x02", b"KEYS\x01x7\x02")
    (tmp_path / "new").write_bytes(changed)
    (tmp_path / "new").replace(path)
    assert pages.json("scan", key="k7")["part"]["messages"] == []


def test_a_search_goes_on_by_itself_until_a_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a header, with a link that stops it; only where that was chosen, and not over what a person has to read."""
    monkeypatch.setattr(searching, "PART_BYTES", 4096)
    monkeypatch.setattr(searching, "RANGE", 4096)
    messages = [Message("T", body=b"%04d" % k * 20, properties={"KEYS": f"k{k}"}) for k in range(150)]
    pages = Pages(f"a={write_log(tmp_path / 'store', messages)}")

    def ask(address: str) -> Any:
        answer = pages.client.get(address)
        assert answer.status_code == 200
        check(answer.text)
        return answer

    alone = ask("/scan?key=k100")
    assert "refresh" not in alone.headers
    (going,) = set(re.findall(r'href="([^"]*go=until-hit[^"]*)"', alone.text))
    seen, address = list[str](), unescape(going)
    while "refresh" in (answer := ask(address)).headers:
        seconds, _, address = answer.headers["refresh"].partition("; url=")
        assert (int(seconds), address.partition("?")[0]) == (search_pages.EACH, "/scan")
        (stop,) = re.findall(r'<a href="([^"]*)" autofocus>Stop here</a>', answer.text)
        assert "refresh" not in ask(unescape(stop)).headers
        assert address not in seen
        seen.append(address)
    assert len(seen) >= 2
    assert "k100" in answer.text
    assert "refresh" not in ask("/scan?key=none&go=until-hit&cursor=0.99999999").headers, "the end"


def test_what_a_search_needs_is_loaded_by_a_search_that_meets_all_of_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / ("0" * 20)).write_bytes(known_places.sample())
    part = Pages(f"a={store}").json("scan", tag="sample", key="sample", topic="sample")["part"]
    assert [row["uniqueKey"] for row in part["messages"]] == ["sample"]
    assert part["messages"][0]["bodyCrcMatches"] is True
    assert [place["text"] for place in part["damage"]["places"]] == ["bad magic code"]
    searching.load(lambda: False)


def test_bodies_that_unpack_to_much_are_looked_at_few_at_a_time() -> None:
    """Of packed ones a piece is short at first, and longer where they take little time."""
    count, size = 4000, 100
    columns = {"sysFlag": pa.array([1] * count, pa.int32()), "msgSize": pa.array([size] * count, pa.int32())}
    batch = pa.record_batch(columns | {"body": pa.array([b"x"] * count, pa.binary())})
    rows = [piece.num_rows for piece in searching._pieces(batch)]
    assert sum(rows) == count
    assert rows[0] == searching.PACKED_BYTES[0] // size
    assert max(rows) <= searching.PACKED_BYTES[1] // size


@pytest.mark.usefixtures("small")
def test_damage_is_told_once_with_its_part(tmp_path: Path) -> None:
    messages = [Message("T", body=b"%04d" % k * 20, properties={"KEYS": f"k{k}"}) for k in range(200)]
    store = write_log(tmp_path / "store", messages, 1 << 14)
    for segment, at in ((0, 700), (0, 9000), (1, 300), (2, 5000)):
        path = sorted((store / "commitlog").iterdir())[segment]
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff" * 600)
    pages = Pages(f"a={store}")
    found = parts(pages, topic="*")
    rows = [row for batch in rr.messages(store=store, body="none", damage="rows") for row in batch.to_pylist()]
    told = [(place["offset"], place["bytes"]) for part in found for place in part["damage"]["places"]]
    assert told == sorted((row["commitLogOffset"], row["msgSize"]) for row in rows if row["damage"])
    assert len(told) >= 4
    ends = [row for row in rows if row["damage"] and row["damage"].startswith("torn tail")]
    assert sum(part["damage"]["count"] for part in found) == len(told) - len(ends)
    assert offsets(found) == [row["commitLogOffset"] for row in rows if not row["damage"]]
    damaged = next(part for part in found if part["damage"]["count"])
    page, at = pages.html("scan", topic="*", cursor=damaged["from"]), damaged["damage"]["places"][0]["offset"]
    assert "1 place," in page
    assert f'physical={at}">offset {at}</a>' in page


@pytest.mark.usefixtures("small")
def test_a_torn_tail_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parts end inside of it, and in what the broker had allocated behind it."""
    monkeypatch.setattr(searching, "CHUNK", 4096)
    monkeypatch.setattr(searching, "RANGE", 1 << 17)
    store = write_log(tmp_path / "store", [Message("T", properties={"KEYS": "k"})] * 20, 1 << 17)
    path = min((store / "commitlog").iterdir())
    end = len(path.read_bytes().rstrip(b"\0"))
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"\xda" * 20_000)
        file.truncate(1 << 17)
    found = parts(Pages(f"a={store}"), topic="*")
    assert len([part for part in found if part["next"] and int(part["next"][2:]) > end + 20_000]) > 3
    told = [(place["offset"], place["bytes"]) for part in found for place in part["damage"]["places"]]
    assert told == [(end, 20_000)]


@pytest.mark.usefixtures("whole")
def test_a_segment_that_is_missing_and_foreign_files(tmp_path: Path) -> None:
    """They do not end the search; what is missing is told."""
    messages = [Message("T", body=b"x" * 900, properties={"KEYS": f"k{k}"}) for k in range(60)]
    store = write_log(tmp_path / "store", messages, 1 << 14)
    segments = sorted((store / "commitlog").iterdir())
    segments[1].unlink()
    (store / "commitlog" / "notes.txt").write_text("x")
    (part,) = parts(Pages(store), topic="*")
    assert [place["text"] for place in part["damage"]["places"]] == ["segment missing"]
    assert part["damage"]["bytes"] == 1 << 14
    assert 20 < len(part["messages"]) < 60


def test_an_empty_store_and_no_question(tmp_path: Path, golden_store: Stores) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    pages = Pages(f"a={store}", f"b={golden_store('basic-5.3').path}")
    assert pages.both("scan")[1] == {"part": None, "facets": {}}
    page, found = pages.both("scan", store="a", text="x")
    assert (found["part"]["next"], found["part"]["messages"], found["part"]["bytes"]["all"]) == (None, [], 0)
    assert "0 of 0 segments" in page
    assert "Nothing is left to look at." in page
    assert 'class="verdict good"' in page
    # One store is searched after another.
    both = parts(pages, topic="TopicA")
    assert {row["store"] for part in both for row in part["messages"]} == {"b"}
    assert both[0]["bytes"]["all"] > 0


def test_several_stores_one_after_another(golden_store: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "HITS_MAX", 30)
    names = {"a": "trimmed-head", "b": "basic-5.3"}
    pages = Pages(*(f"{name}={golden_store(of).path}" for name, of in names.items()))
    found = parts(pages, topic="TopicA")
    rows = [(row["store"], row["physicalOffset"]) for part in found for row in part["messages"]]
    alone = [
        (name, offset) for name in names for offset in offsets(parts(pages, store=name, topic="TopicA"))
    ]  # fmt: skip
    assert rows == alone
    assert {name for name, _ in rows} == set(names)
    assert [part["segments"]["reached"] for part in found] == sorted(part["segments"]["reached"] for part in found)
    assert found[-1]["segments"]["reached"] == found[-1]["segments"]["all"]


# ------------------------------------------------------------------------------------------------------------------------ time


def timed(store: Path, times: list[int]) -> Path:
    """A log whose segments have about ten messages each, with these times."""
    messages = [Message("T", body=b"x" * 1000, store_timestamp=time) for time in times]
    return write_log(store, messages, 12 << 10)


@pytest.mark.usefixtures("whole")
def test_segments_outside_of_the_time_are_passed_over(tmp_path: Path) -> None:
    hour = 3_600_000
    store = timed(tmp_path / "store", [EPOCH + k * hour // 4 for k in range(200)])
    since, until = EPOCH + 20 * hour, EPOCH + 22 * hour
    page, found = Pages(f"a={store}").both("scan", since=since, until=until)
    part = found["part"]
    assert offsets([part]) == exported(store, tmp_path / "out", since=since, until=until)
    assert len(part["messages"]) == 8
    assert part["segments"]["all"] > 15
    assert 10 < part["segments"]["passed"] < part["segments"]["all"] - 2
    assert part["bytes"]["part"] == (part["segments"]["all"] - part["segments"]["passed"]) * (12 << 10)
    assert "passed over" in page
    # Where a clock was set back nothing is.
    odd = timed(tmp_path / "odd", [EPOCH + (k if k < 100 else k - 90) * hour // 4 for k in range(200)])
    part = Pages(odd).json("scan", since=since, until=until)["part"]
    assert part["segments"]["passed"] == 0
    assert offsets([part]) == exported(odd, tmp_path / "out", since=since, until=until)
    assert len(part["messages"]) == 16


# --------------------------------------------------------------------------------------------------------------------- bounded


@pytest.mark.usefixtures("whole")
def test_a_part_ends_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = timed(tmp_path / "store", [EPOCH] * 200)
    monkeypatch.setattr(searching, "PART_BYTES", 30 << 10)
    found = parts(Pages(store), text="nowhere")
    assert len(found) >= 6
    assert all(part["bytes"]["part"] <= 42 << 10 for part in found)
    page = Pages(store).html("scan", text="nowhere")
    assert "This is a part, not the whole" in page
    assert 'rel="next"' in page
    assert "This is the last part" in Pages(store).html("scan", text="nowhere", cursor=found[-1]["from"])


@pytest.mark.usefixtures("whole")
def test_what_a_broker_has_allocated_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros up to the end of the log are passed at once; zeros with something behind them are damage."""
    monkeypatch.setattr(searching, "RANGE", 4096)
    monkeypatch.setattr(searching, "PART_BYTES", 4096)
    store = write_log(tmp_path / "store", [Message("T", body=b"x" * 100, properties={"KEYS": "k"})] * 3, 1 << 20)
    (segment,) = (store / "commitlog").iterdir()
    segment.with_name(f"{1 << 20:020d}").write_bytes(bytes(1 << 20))
    found = parts(Pages(store), key="k")
    assert len(offsets(found)) == 3
    assert len(found) <= 2
    assert found[-1]["bytes"]["reached"] == 2 << 20
    assert not any(part["damage"]["places"] for part in found)
    monkeypatch.setattr(searching, "PART_BYTES", 1 << 22)
    with segment.open("r+b") as file:
        file.seek(1 << 19)
        file.write(b"something")
    (part,) = parts(Pages(store), key="k")
    rows = [row for batch in rr.messages(store=store, body="none", damage="rows") for row in batch.to_pylist()]
    assert [(place["offset"], place["bytes"], place["text"]) for place in part["damage"]["places"]] == [
        (row["commitLogOffset"], row["msgSize"], row["damage"]) for row in rows if row["damage"]
    ]
    assert part["damage"]["places"]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_broker_writes_where_a_part_has_seen_zeros(forgets: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes on from the end of the records, also over segments, and where the server was started anew meanwhile."""
    monkeypatch.setattr(searching, "RANGE", 4096)
    monkeypatch.setattr(searching, "PART_BYTES", 4096)
    monkeypatch.setattr(known_places, "_ZEROS", 4096)
    monkeypatch.setattr(searching, "PART_SECONDS", 0.0)
    size, store = 1 << 15, tmp_path / "store"
    messages = [Message("T", body=b"%03d" % number * 20) for number in range(600)]
    whole = write_log(tmp_path / "whole", messages, size)
    written = sorted((whole / "commitlog").iterdir())
    assert len(written) > 2
    (store / "commitlog").mkdir(parents=True)
    for number, path in enumerate(written[:3]):
        data = path.read_bytes()
        (store / "commitlog" / path.name).write_bytes(data if number == 0 else bytes(size))
    pages, found = Pages(f"a={store}"), list[dict[str, Any]]()
    cursor = None
    while cursor is None or cursor.count(".") < 2 or int(cursor.split(".")[1]) < 2 * size + size // 2:
        found.append(part_at(pages, topic="*", **({} if cursor is None else {"cursor": cursor})))
        cursor = found[-1]["next"]
        assert cursor is not None, "the search is over before the broker writes"
    assert cursor.split(".")[2] == str(size)
    before = offsets(found)
    for path in written[1:3]:
        with (store / "commitlog" / path.name).open("r+b") as file:
            file.write(path.read_bytes())
    if forgets:
        pages = Pages(f"a={store}")
    while cursor is not None:
        found.append(part_at(pages, topic="*", cursor=cursor))
        cursor = found[-1]["next"]
    assert before
    assert offsets(found) == exported(store, tmp_path / "out.jsonl")
    assert not any(part["damage"]["places"] for part in found)
    assert "no place in this search" in pages.html("scan", topic="*", cursor="0.5.6", status=400)


def test_expressions_and_bodies_that_would_take_very_long(tmp_path: Path) -> None:
    """RE2 needs no more time for any expression, and a body is unpacked up to a bound."""
    bodies = [b"a" * 200_000 + b"!", zlib.compress(b"x" * (70 << 20)), zlib.compress(b"a needle"), b"not packed"]
    messages = [Message("T", body=body, sysflag=k in (1, 2, 3)) for k, body in enumerate(bodies)]
    pages = Pages(f"a={write_log(tmp_path / 'store', messages, 1 << 20)}")
    assert offsets(parts(pages, regex="^(a+)+$")) == []
    assert len(offsets(parts(pages, regex="(a|a)*!$"))) == 1
    found = parts(pages, text="needle")
    assert len(offsets(found)) == 1
    assert [text for part in found for text in part["warnings"] if "does not unpack" in text]
    page = pages.html("scan", text="needle")
    assert "Not all could be searched" in page
    assert "verdict good" not in page
    for regex in ("(", "(?=a)", "(a{1000}){1000}"):
        assert "--regex" in pages.both("scan", 400, regex=regex)[1]["error"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cursor": "0.0"}, "go with what is searched for"),
        ({"go": "until-hit"}, "go with what is searched for"),
        ({"text": "x", "go": "on"}, "go: on is none: take until-hit, or leave it out"),
        ({"text": "x", "cursor": "1.0"}, "is no place in this search"),
        ({"text": "x", "cursor": "0"}, "is no place"),
        ({"text": "x", "cursor": "-1.5"}, "is no place"),
        ({"text": "x", "cursor": "0.9999999999999999999"}, "is no place"),
        ({"text": "x", "cursor": "0.0<script>"}, "is no place"),
        ({"text": "x", "cursor": "٠.٠"}, "is no place"),
        ({"queue": "1"}, "--queue needs --topic"),
        ({"topic": "T", "queue": "x"}, "--queue"),
        ({"text": "x", "since": "yesterday"}, "--since"),
        ({"text": "x", "since": "1700000000002", "until": "1700000000001"}, "is not before"),
        ({"text": "x", "store": "b"}, "was not named"),
    ],
)
def test_wrong_questions(fields: dict[str, str], told: str, golden_store: Stores) -> None:
    text, found = Pages(f"a={golden_store('basic-5.3').path}").both("scan", 404 if "store" in fields else 400, **fields)
    assert told in found["error"]
    assert "rmq-reindex" not in found["error"]
    assert "Traceback" not in text


def test_a_place_behind_the_log(golden_store: Stores) -> None:
    (part,) = [Pages(golden_store("basic-5.3").path).json("scan", topic="*", cursor="0.9000000000000000000")["part"]]
    assert (part["messages"], part["next"]) == ([], None)


# ------------------------------------------------------------------------------------------------------------------------ tags


@pytest.mark.usefixtures("whole")
@pytest.mark.parametrize("by_units", [False, True])
@pytest.mark.parametrize("name", ["basic-5.5", "trimmed-head"])
def test_a_tag_is_what_query_says(
    by_units: bool, name: str, golden_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    if by_units:
        monkeypatch.setattr(search_pages, "TAG_LOG_BYTES", -1)
    store = golden_store(name).path
    pages = Pages(f"a={store}")
    rows = [row for part in parts(pages, topic="Topic*") for row in part["messages"]]
    tags = Counter((row["topic"], row["tags"]) for row in rows if row["tags"])
    for topic, tag in [*list(tags)[:3], ("TopicA", "none")]:
        times = sorted(row["storeTimestamp"] for row in rows if row["topic"] == topic)
        span = {"begin": times[len(times) // 3], "end": times[len(times) // 2]}
        for fields in ({}, span):
            page, found = pages.both("search", topic=topic, tag=tag, **fields)
            (only,) = found["results"]
            expected = [each.to_dict() for each in rr.query(store=store, topic=topic, tag=tag, body_max=4096, **fields)]
            if by_units:
                # No queue leads to it.
                expected = [each for each in expected if "prepared" not in each["kinds"]]
            assert only["messages"] == expected[-facts.FOUND_MAX :]
            assert (only["looked"] is not None) == (by_units or bool(fields))
            assert only["looked"] is None or only["looked"]["whole"] or only["more"]
            assert only["command"] in unescape(page)
    assert "--tag needs --topic" in pages.json("search", 400, tag="x")["error"]


@pytest.mark.usefixtures("whole")
def test_of_very_many_units_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is never shown as the whole, and the log can be searched for the rest."""
    monkeypatch.setattr(search_pages, "TAG_LOG_BYTES", -1)
    monkeypatch.setattr(search_pages, "UNITS_MAX", 30)
    messages = [
        Message("T[1]", queue_id=k % 3, properties={"TAGS": "rare" if k % 10 == 5 else "usual"}, store_timestamp=EPOCH + k)
        for k in range(90)
    ]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    page, found = Pages(store).both("search", topic="T[1]", tag="rare")
    (only,) = found["results"]
    assert [row["storeTimestamp"] - EPOCH for row in only["messages"]] == [65, 75, 85]
    assert only["looked"] == {"what": "units", "count": 30, "all": 90, "whole": False}
    assert "30\nof 90 units\nwere looked at" in page
    monkeypatch.setattr(search_pages, "READ_MAX", 2)
    (only,) = Pages(store).json("search", topic="T[1]", tag="rare", end=EPOCH + 70)["results"]
    assert [row["storeTimestamp"] - EPOCH for row in only["messages"]] == []
    assert not only["looked"]["whole"]
    link = next(link for link in check(page).links if link.startswith("/scan?") and "rare" in link)
    answer = Pages(store).client.get(f"{link}&format=json").json()
    assert [row["storeTimestamp"] - EPOCH for row in answer["part"]["messages"]] == list(range(5, 90, 10))


@pytest.mark.parametrize("name", ["key", "tag"])
def test_old_messages_of_a_key_of_very_many(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not all read to find those of a time long ago, and that is said."""
    messages = [Message("T", properties={"KEYS": "k", "TAGS": "k"}, store_timestamp=EPOCH + k) for k in range(300)]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    pages = Pages(store)
    fields: dict[str, Any] = {"topic": "T", name: "k"}
    (only,) = pages.json("search", **fields, begin=EPOCH + 90, end=EPOCH + 99)["results"]
    assert [row["storeTimestamp"] - EPOCH for row in only["messages"]] == list(range(90, 100))
    assert only["looked"] == {"what": "messages", "count": 300, "all": None, "whole": True}
    monkeypatch.setattr(search_pages, "READ_MAX", 205)
    page, found = pages.both("search", **fields, begin=EPOCH + 90, end=EPOCH + 99)
    (only,) = found["results"]
    assert [row["storeTimestamp"] - EPOCH for row in only["messages"]] == list(range(95, 100))
    assert only["looked"] == {"what": "messages", "count": 205, "all": None, "whole": False}
    assert not only["more"]
    assert "older messages are not among these" in page


# ---------------------------------------------------------------------------------------------------------------------- facets


@pytest.mark.usefixtures("whole")
def test_facets_count_what_was_found(tmp_path: Path) -> None:
    messages = [
        Message("A*" if k % 3 else "B", queue_id=k % 2, properties={"KEYS": "k", **({"TAGS": "t"} if k % 4 else {})},
                store_timestamp=EPOCH + k * 1_800_000)
        for k in range(24)
    ]  # fmt: skip
    store = write_store(tmp_path / "store", messages, 1 << 16)
    pages = Pages(f"a={store}", f"b={store}")
    page, found = pages.both("scan", key="k")
    told = found["facets"]
    rows = found["part"]["messages"]
    assert {each["value"]: each["count"] for each in told["topic"]["values"]} == Counter(row["topic"] for row in rows)
    assert {each["value"]: each["count"] for each in told["tag"]["values"]} == Counter(row["tags"] for row in rows)
    assert {each["value"]: each["count"] for each in told["store"]["values"]} == {"a": 24, "b": 24}
    assert {(each["topic"], each["queue"]): each["count"] for each in told["queue"]["values"]} == Counter(
        (row["topic"], row["queueId"]) for row in rows
    )
    hours = Counter(row["storeTime"][:13] for row in rows)
    assert {each["value"]: each["count"] for each in told["hour"]["values"]} == dict(
        sorted(hours.items(), key=lambda each: (-each[1], each[0]))[: search_pages.FACET_VALUES]
    )
    assert told["hour"]["more"] == len(hours) - search_pages.FACET_VALUES
    # Each of them is a link to those alone.
    narrowed = 0
    for link in check(page).links:
        if link.startswith("/scan?") and "key=k" in link and "format" not in link:
            (part,) = [pages.client.get(f"{link}&format=json").json()["part"]]
            assert 0 < len(part["messages"]) < 48
            narrowed += 1
    assert narrowed > 10
    page, found = pages.both("search", store="a", topic="B", key="k")
    assert {each["value"]: each["count"] for each in found["facets"]["tag"]["values"]} == {"t": 6, None: 2}
    assert "store" not in found["facets"]
    for link in [link for link in check(page).links if "begin=" in link or "tag=" in link]:
        assert pages.client.get(f"{link}&format=json").json()["results"][0]["messages"]
    assert pages.json("search", store="a", physical=0)["facets"] == {}


@pytest.mark.usefixtures("whole")
def test_nothing_of_a_store_is_more_than_text(tmp_path: Path) -> None:
    script = "\"'><script>alert(1)</script>{{7*7}}"
    messages = [
        Message(topic, body=script.encode(), properties={"KEYS": f"{script} k", "TAGS": tag})
        for topic, tag in (("<b>", script), ("a\u202eb", "\x1b[31m"), (b"\xff\xfe", "&#0;"))
    ]
    store = write_log(tmp_path / "<i>", messages)
    pages = Pages(f"<u>\u202e={store}")
    left, seen = ["/scan?key=k", "/scan?text=%3Cscript%3E&regex=%ff&topic=*&tag=%00"], set[str]()
    while left:
        link = left.pop()
        answer = pages.client.get(link)
        assert answer.status_code in (200, 422), (link, answer.text)
        if "format=json" in link:
            assert answer.text.isascii()
        elif not link.startswith("/body"):
            new = {each for each in check(answer.text).links if each.startswith(("/scan?", "/message", "/trace"))} - seen
            seen |= new
            left += sorted(new)
    assert len([link for link in seen if link.startswith("/scan?")]) > 8


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("spoilt", [False, True])
def test_old_records_behind_the_end_of_a_log(spoilt: bool, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are told once, with the part in which they begin, and none of them is a hit, wherever parts end.

    Behind other damage they are not known as such, as in an export.
    """
    monkeypatch.setattr(searching, "CHUNK", 4096)
    store = tmp_path / "store"
    log = stale_log(store, seed)
    if spoilt:
        write_at(store, log.live[20].offset + 4, b"\0\0\0\0")
    found = parts(Pages(f"a={store}"), topic="*")
    assert offsets(found) == exported(store, tmp_path / "out.jsonl")
    told = [(place["offset"], place["text"].startswith("stale tail")) for part in found for place in part["damage"]["places"]]
    assert told == ([(log.live[20].offset, False), (log.end, False)] if spoilt else [(log.end, True)])


@pytest.mark.usefixtures("whole")
def test_the_times_around_damage_change_no_end_of_a_log(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they spare a look at the rest of the segment, the look would have found nothing: damage of every kind, anywhere."""
    rng = random.Random(seed)
    for number in range(cases(12, 1)):
        store = tmp_path / f"store-{number}"
        log = stale_log(store, seed + number)
        # Several in a row are one stretch; the last record before the log's end and the first old one are among them.
        hit = rng.sample([*log.live, *log.old], rng.randrange(1, 12))
        run = rng.randrange(len(log.live))
        for put in {put.offset: put for put in (*hit, *log.live[run : run + rng.randrange(4)])}.values():
            write_at(store, put.offset + rng.choice((8, 8, 8, 4)), b"\xda\xda\xda\xda")
        found = list[Any]()
        for always in (False, True):
            with monkeypatch.context() as patch:
                if always:
                    patch.setattr(stale_tail, "are_in_time", lambda *_: False)
                rows = [row for batch in rr.messages(store=store, damage="rows") for row in batch.to_pylist()]
                every = parts(Pages(f"a={store}"), topic="*")
                found.append((rows, [(part["messages"], part["damage"]) for part in every]))
        assert found[0] == found[1]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The damages of each look for what an older log left."""
    seen = list[int]()

    def counted(path: str, bounds: Any, holes: Any) -> Any:
        seen.append(len(holes))
        return find_stale_tail(path, bounds, holes)

    monkeypatch.setattr(log_rows, "find_stale_tail", counted)
    return seen


@pytest.mark.usefixtures("small")
def test_much_damage_of_a_last_segment(tmp_path: Path, looks: list[int]) -> None:
    """Whether it is what an older log left is decided by the first place: each look reads the rest of the segment."""
    store = write_log(tmp_path / "store", [Message("T", body=b"%04d" % k * 20) for k in range(200)], 1 << 17)
    path = min((store / "commitlog").iterdir())
    with path.open("r+b") as file:
        for at in range(700, 30_000, 1000):
            file.seek(at)
            file.write(b"\xda" * 300)
    found = parts(Pages(f"a={store}"), topic="*")
    assert looks == [1]
    assert sum(len(part["damage"]["places"]) for part in found) == 30
    assert offsets(found) == exported(store, tmp_path / "out.jsonl")


def test_a_look_for_an_older_log_is_not_repeated(tmp_path: Path, looks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reads the rest of the segment, and the records around most damage say by their times that it is not needed."""
    monkeypatch.setattr(searching, "PART_SECONDS", 0.0)
    messages = [Message("T", body=b"%04d" % k * 20, store_timestamp=EPOCH + k) for k in range(200)]
    store = write_log(tmp_path / "store", messages, 1 << 17)
    offsets_of = [row["commitLogOffset"] for batch in rr.messages(store=store, body="none") for row in batch.to_pylist()]
    for at in offsets_of[1:-1:2]:
        write_at(store, at + 8, b"\xda\xda\xda")
    found = parts(Pages(f"a={store}"), topic="*")
    assert sum(part["damage"]["count"] for part in found) == 99
    assert len(looks) <= 1
    assert offsets(found) == exported(store, tmp_path / "out.jsonl") == [*offsets_of[::2], offsets_of[-1]]


def test_very_many_damaged_records_of_a_last_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of them is bounded, a part ends amid them, and each is told once."""
    monkeypatch.setattr(searching, "PART_SECONDS", 0.0)
    monkeypatch.setattr(log_rows, "HELD_HOLES", 20)
    monkeypatch.setattr(range_scan, "_DAMAGED_MAX", 8)
    store = write_log(tmp_path / "store", [Message("T", body=b"%04d" % k * 20) for k in range(400)], 1 << 17)
    path = min((store / "commitlog").iterdir())
    offsets_of = [row["commitLogOffset"] for batch in rr.messages(store=store, body="none") for row in batch.to_pylist()]
    with path.open("r+b") as file:
        for at in offsets_of[50:350]:
            file.seek(at + 8)
            file.write(b"\xda\xda\xda")
    held = list[int]()

    class Held(known_places.KnownPlaces):
        def add(self, key: Any, before: Any, *, followed: bool) -> None:
            held.append(len(before.holes))
            super().add(key, before, followed=followed)

    monkeypatch.setattr(known_places, "KnownPlaces", Held)
    found = parts(Pages(f"a={store}"), topic="*")
    assert max(held) == 20
    counts = [part["damage"]["count"] for part in found]
    assert sum(counts) == 300
    assert max(counts) <= 9
    assert offsets(found) == exported(store, tmp_path / "out.jsonl") == offsets_of[:50] + offsets_of[350:]
