"""The pages of ``browse``: what they say is what ``info`` and ``query`` say, of whole, empty and damaged stores."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import facts, searching
from rocketmq_reindex.jobs.browsing.options import parse_browse
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages, check
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

Stores = Callable[[str], GoldenStore]
TIMES = ("seconds", "exit", "error")


def without_times(found: rr.Result) -> dict[str, Any]:
    return {name: value for name, value in found.to_dict().items() if name not in TIMES}


def query(**keywords: Any) -> list[dict[str, Any]]:
    return [row.to_dict() for row in rr.query(**keywords)]


def state_of(store: Path) -> dict[Path, tuple[int, bytes]]:
    """Each file and folder of a store: when it was changed, and its bytes."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"") for path in (store, *store.rglob("*"))
    }  # fmt: skip


@pytest.mark.parametrize("name", ["trimmed-head", "transactions-delay", "extended-5.5", "dledger-5.3", "rocksdb-5.3"])
def test_every_link_of_a_store_leads_to_a_page(name: str, golden_store: Stores) -> None:
    """From the first page on, at most so many of each kind: each is sound HTML, and JSON as well. The store is only read."""
    store = golden_store(name).path
    before = state_of(store)
    pages = Pages(store)
    left, seen, of_kind = ["/"], set[str](), dict[str, int]()
    while left:
        link = left.pop()
        kind = link.partition("?")[0]
        of_kind[kind] = of_kind.get(kind, 0) + 1
        answer = pages.client.get(link)
        assert answer.status_code == 200, (link, answer.text)
        if kind == "/body":
            assert answer.headers["content-type"] == "application/octet-stream"
            continue
        if "format=json" in link:
            assert answer.headers["content-type"] == "application/json"
            continue
        for found in check(answer.text).links:
            if found != "#main" and found not in seen and of_kind.get(found.partition("?")[0], 0) < 3:
                seen.add(found)
                left.append(found)
    assert {"/store", "/topics", "/topic", "/queue", "/message", "/body", "/search"} <= of_kind.keys()
    assert state_of(store) == before


@pytest.mark.parametrize("name", ["basic-5.3", "trimmed-head", "transactions-delay"])
def test_the_overview_is_what_info_says(name: str, golden_store: Stores) -> None:
    store = golden_store(name).path
    page, told = Pages(f"a={store}").both("store", store="a")
    found = rr.info(store)
    assert told["info"] == without_times(found)
    assert told["command"] == f"rmq-reindex info {store}"
    assert unescape(page).count(found.next["why"]) == 1
    assert len(told["segments"]) == found.log["segments"]
    assert len(told["indexFiles"]) == found.index_files
    assert [row["field"] for row in told["checkpoint"]][:2] == ["physicMsgTimestamp", "logicsMsgTimestamp"]
    for topic in found.topics:
        assert topic["topic"] in page


def test_a_queue_is_what_query_says(golden_store: Stores) -> None:
    """Page after page, to the end and back: each message once, in order, as ``query`` has it."""
    store = golden_store("basic-5.3").path
    pages = Pages(f"a={store}")
    first, told, at = None, [], 0
    while True:
        found = pages.json("queue", store="a", topic="TopicA", queue=1, from_=at)
        first = first or found
        told += found["units"]
        assert len(found["units"]) <= facts.ROWS
        if found["next"] is None:
            break
        at = found["next"]
    expected = query(store=store, topic="TopicA", queue=1, offset=0, max=10_000)
    assert [row["offset"] for row in told] == [row["queueOffset"] for row in expected]
    for name in ("physicalOffset", "size", "storeTime", "keys", "tags", "uniqueKey"):
        assert [row[name] for row in told] == [row[name] for row in expected], name
    assert len(told) > 2 * facts.ROWS
    back = pages.json("queue", store="a", topic="TopicA", queue=1, from_=found["previous"])
    assert back["units"][-1]["offset"] < found["units"][0]["offset"]
    assert first["previous"] is None


def test_a_time_is_looked_for_as_query_does(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    pages, middle = Pages(store), query(store=store, topic="TopicA", queue=1, offset=60)[0]
    found = pages.json("queue", store="basic-5.3", topic="TopicA", queue=1, time=middle["storeTimestamp"])
    expected = query(store=store, topic="TopicA", queue=1, time=middle["storeTimestamp"])
    assert found["units"][0]["physicalOffset"] == expected[0]["physicalOffset"]


@pytest.mark.parametrize("name", ["basic-5.3", "transactions-delay", "v2-ipv6-batch"])
def test_a_message_is_what_query_says(name: str, golden_store: Stores) -> None:
    store = golden_store(name).path
    pages, at = Pages(f"a={store}"), rr.info(store).log["first_offset"]
    for _ in range(12):
        page, found = pages.both("message", store="a", physical=at)
        assert found["message"] == query(store=store, physical=at, body_max=facts.BODY_SHOWN)[0]
        assert unescape(page).count(found["message"]["meaning"]["text"]) >= 1
        body = pages.client.get("/body", params={"store": "a", "physical": at})
        assert body.content[: facts.HEX_SHOWN].hex() == found["hex"]
        assert body.headers["content-type"] == "application/octet-stream"
        assert body.headers["content-disposition"] == f'attachment; filename="body-{at}.bin"'
        behind = found["inLog"]["next"]
        assert pages.json("message", store="a", physical=behind)["inLog"]["previous"] == at
        at = behind


def test_neighbours_in_the_queue(golden_store: Stores) -> None:
    pages = Pages(golden_store("basic-5.3").path)
    given: dict[str, Any] = {"store": "basic-5.3", "topic": "TopicA", "queue": 1}
    found = pages.json("message", **given, offset=3)
    assert found["message"]["servedAt"] == 3
    where = {"topic": "TopicA", "queue": 1, "queueOffset": 3, "leadsHere": True, "previous": 2, "next": 4}
    assert found["inQueue"] == where
    assert pages.json("message", store="basic-5.3", physical=found["message"]["physicalOffset"])["inQueue"] == where


def test_a_search_is_what_query_says(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    pages = Pages(f"a={store}", f"b={golden_store('trimmed-head').path}")
    one = next(row for row in query(store=store, topic="TopicA", queue=1, offset=0, max=50) if row["keys"] and row["uniqueKey"])
    asked: list[dict[str, Any]] = [
        {"topic": "TopicA", "key": one["keys"][0]}, {"topic": "TopicA", "key": one["uniqueKey"]}, {"id": one["msgId"]},
        {"id": one["uniqueKey"]}, {"topic": "TopicA", "queue": 1, "offset": one["queueOffset"]},
        {"topic": "TopicA", "queue": 1, "time": one["storeTimestamp"]}, {"physical": one["physicalOffset"]},
        {"topic": "TopicA", "key": "no such key"},
    ]  # fmt: skip
    for fields in asked:
        page, found = pages.both("search", store="a", **fields)
        (only,) = found["results"]
        assert only["messages"] == query(store=store, **fields, body_max=4096)
        words = shlex.split(only["command"])
        assert words[:3] == ["rmq-reindex", "query", str(store)]
        assert all(str(value) in words for value in fields.values())
        assert only["command"] in unescape(page)
    both = pages.json("search", id=one["msgId"])["results"]
    assert [(found["store"], len(found["messages"])) for found in both] == [("a", 1), ("b", 0)]


@pytest.mark.usefixtures("inline_local")
def test_of_very_many_messages_the_newest(tmp_path: Path) -> None:
    """A part is never shown as the whole."""
    count = facts.FOUND_MAX + 5
    messages = [Message("T", body=b"%d" % k, properties={"KEYS": "one"}, store_timestamp=EPOCH + k) for k in range(count)]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    page, found = Pages(store).both("search", topic="T", key="one")
    (only,) = found["results"]
    assert (only["more"], len(only["messages"]), only["messages"][-1]["body"]) == (True, facts.FOUND_MAX, str(count - 1))
    assert "the newest 100, and there are more" in page
    assert only["command"].endswith("--max 100")


@pytest.mark.usefixtures("inline_local")
def test_of_very_many_messages_of_an_id_the_newest(tmp_path: Path) -> None:
    """Its command has no ``--max``: ``query --id`` gives all."""
    count = facts.FOUND_MAX + 5
    messages = [Message("-x", body=b"%d" % k, properties={"UNIQ_KEY": "one"}) for k in range(count)]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    (only,) = Pages(store).json("search", id="one")["results"]
    assert (only["more"], len(only["messages"]), only["messages"][-1]["body"]) == (True, facts.FOUND_MAX, str(count - 1))
    assert only["command"].endswith("--id one")
    assert " --topic=-x " in Pages(store).json("queue", store="store", topic="-x", queue=0)["command"]
    assert Pages(store).client.get("/body?store=store&physical=0&format=json").status_code == 400


@pytest.mark.usefixtures("inline_local")
def test_fills_gaps_and_tombstones_are_marked(tmp_path: Path) -> None:
    lost = Message("T", properties={"TAGS": "__LOST__"}, queue_offset=5)
    messages = [Message("T", queue_offset=0), Message("T", queue_offset=3), lost, *[Message("U")] * 120]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    (queue,) = (store / "consumequeue" / "U" / "0").iterdir()
    with open(queue, "r+b") as file:
        file.seek(20)
        file.write(bytes(20))
    pages = Pages(store)
    page, found = pages.both("queue", store="store", topic="T", queue=0)
    assert [row["what"] for row in found["units"]] == ["message", "fill", "fill", "message", "fill", "tombstone"]
    assert page.count('<span class="what">fill</span>') == 3
    page, found = pages.both("queue", store="store", topic="U", queue=0)
    gap = {"what": "gap", "offset": 1, "last": 1, "text": "has no unit (zeros stand there)"}
    assert [found["units"][0]["what"], found["units"][1], found["units"][2]["what"]] == ["message", gap, "message"]


def test_units_of_batches(golden_store: Stores, tmp_path: Path) -> None:
    """A batch takes several offsets: its row says which, and the page of each of them is that message."""
    golden, store = golden_store("batch-5.3").path, tmp_path / "store"
    shutil.copytree(golden / "commitlog", store / "commitlog")
    shutil.copytree(golden / "rebuilt" / "batchconsumequeue", store / "batchconsumequeue")
    pages = Pages(store)
    topic = next(row["topic"] for row in pages.json("topics", store="store")["topics"])
    found = pages.both("queue", store="store", topic=topic, queue=0)[1]
    row = next(row for row in found["units"] if row["last"] > row["offset"])
    for offset in (row["offset"], row["last"]):
        told = pages.json("message", store="store", topic=topic, queue=0, offset=offset)
        assert told["message"]["physicalOffset"] == row["physicalOffset"]
        assert told["inQueue"]["leadsHere"]
        again = pages.json("queue", store="store", topic=topic, queue=0, from_=offset)
        assert again["units"][0] == row


def test_a_log_that_is_damaged(golden_store: Stores, tmp_path: Path) -> None:
    """A unit that leads to no record is marked; its message page says what stands there, and what is whole is shown."""
    store = tmp_path / "store"
    shutil.copytree(golden_store("basic-5.3").path, store)
    broken = query(store=store, topic="TopicA", queue=1, offset=2)[0]
    with open(min((store / "commitlog").iterdir()), "r+b") as segment:
        segment.seek(broken["physicalOffset"] + 4)
        segment.write(b"\1\2\3\4")
    shutil.rmtree(store / "index")
    (store / "checkpoint").unlink()
    pages = Pages(store)
    page, found = pages.both("store", store="store")
    assert found["info"] == without_times(rr.info(store))
    assert "There is none that can be read." in page
    page, found = pages.both("queue", store="store", topic="TopicA", queue=1)
    assert [row["what"] for row in found["units"][:4]] == ["message", "message", "no record", "message"]
    page, found = pages.both("message", 404, store="store", physical=broken["physicalOffset"])
    assert found["message"] is None
    assert "magic" in found["warnings"][0]
    page, found = pages.both("search", topic="TopicA", key="x")
    assert "add --scan" in found["results"][0]["error"]


def test_an_empty_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    pages = Pages(store)
    pages.both("")
    assert pages.both("store", store="store")[1]["info"] == without_times(rr.info(store))
    assert pages.both("topics", store="store")[1]["topics"] == []
    pages.both("topic", 404, store="store", topic="T")
    pages.both("queue", 404, store="store", topic="T", queue=0)
    pages.both("message", 404, store="store", physical=0)


@pytest.mark.parametrize(
    ("page", "fields", "status", "told"),
    [
        ("store", {}, 400, "store: is missing"),
        ("store", {"store": "x"}, 404, "was not named"),
        ("store", {"store": "/etc"}, 404, "was not named"),
        ("store", {"store": "a", "path": "/etc"}, 400, "path: is no field of this page"),
        ("queue", {"store": "a", "topic": "TopicA", "queue": "-1"}, 400, "queue: -1 is no number"),
        ("queue", {"store": "a", "topic": "TopicA", "queue": "9" * 19}, 400, "is no number"),
        ("queue", {"store": "a", "topic": "TopicA", "queue": "1", "from": "1", "time": "0"}, 400, ""),
        ("queue", {"store": "a", "topic": "../commitlog", "queue": "0"}, 400, "not a name that a folder can have"),
        ("queue", {"store": "a", "topic": "TopicA", "queue": "99"}, 404, "no such queue"),
        ("queue", {"store": "a", "topic": "..", "queue": "0"}, 400, "not a name that a folder can have"),
        ("message", {"store": "a"}, 400, "name a message by physical"),
        ("message", {"store": "a", "physical": "5"}, 404, None),
        ("message", {"store": "a", "physical": "x"}, 400, ""),
        ("search", {"topic": "T"}, 400, "ask by one of"),
        ("search", {"key": "k"}, 400, "--key needs --topic"),
        ("search", {"topic": "T", "key": "k", "begin": "yesterday"}, 400, "--begin"),
    ],
)  # fmt: skip
def test_wrong_questions(page: str, fields: dict[str, str], status: int, told: str | None, golden_store: Stores) -> None:
    text, found = Pages(f"a={golden_store('basic-5.3').path}").both(page, status, **fields)
    if told is not None:
        assert found["status"] == status
        assert told in found["error"]
        assert "Traceback" not in text


def test_names_and_fields_twice(golden_store: Stores) -> None:
    pages = Pages(f"a={golden_store('basic-5.3').path}")
    assert pages.client.get("/store?store=a&store=a").status_code == 400
    assert pages.client.get("/store?" + "&".join(f"f{k}=1" for k in range(50))).status_code == 400
    for nowhere in ("/x", "/../etc/passwd", "/body/x", "/store/a"):
        assert pages.client.get(nowhere).status_code == 404


def links_of(page: str) -> list[str]:
    return check(page).links


def test_pages_lead_to_one_another(golden_store: Stores) -> None:
    """A page says which one it is, and what it speaks of is a link away."""
    store = golden_store("basic-5.3").path
    pages, index = Pages(f"a={store}"), min(path.name for path in (store / "index").iterdir())
    for name in ("", "store", "topics", "log", "disk", "rates", "consumers", "search", "scan", "health"):
        page = pages.html(name, store="a") if name else pages.html("")
        here = [each["href"] for each in check(page).all("a") if "aria-current" in each and "hours" not in each["href"]]
        assert here[0] == (f"/{name}?store=a" if name else "/")
        assert len(here) == (2 if name == "rates" else 1), "and the time of the rates"
    page = pages.both("store", store="a")[0]
    assert {"/health?store=a", f"/items?store=a&file={index}"} <= set(links_of(page))
    assert "newest" not in page, "where all are shown"
    page = pages.both("message", store="a", physical=0)[0]
    assert f"/items?store=a&file={index}&from=1" in links_of(page)
    assert {"/rates?store=a&topic=TopicA", "/consumers?store=a&topic=TopicA"} <= set(
        links_of(pages.both("topic", store="a", topic="TopicA")[0])
    )
    assert "/topic?store=a&topic=TopicA" in links_of(pages.both("disk", store="a")[0])
    # An error leaves the way back.
    for fields, status in (({"queue": "99"}, 404), ({"queue": "x"}, 400)):
        page = pages.both("queue", status, store="a", topic="TopicA", **fields)[0]
        assert "/topics?store=a" in links_of(page)
        assert page.count("<h") == page.count("<h1") + page.count("<html") + page.count("<head"), "it is said once"
    assert links_of(pages.both("store", 404, store="b")[0]).count("/") == 1


def test_one_queue_and_one_topic(tmp_path: Path) -> None:
    store = tmp_path / "store"
    write_store(store, [Message("T", 0, queue_offset=0)], 1 << 15)
    pages = Pages(f"a={store}")
    assert "<h2>1 queue</h2>" in pages.both("topic", store="a", topic="T")[0]
    assert "<h2>1 topic</h2>" in pages.both("topics", store="a")[0]


def test_a_part_has_one_piece_however_long_that_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part goes on, and none goes on for longer than it may. What is loaded once is not counted."""
    searching.load(lambda: False)
    store, clock, take = tmp_path / "store", [0.0], searching.LogSearch._take
    with LogWriter(store / "commitlog", 1 << 15) as writer:
        for offset in range(60):
            writer.append(Message("T", 0, queue_offset=offset))

    def slow(*given: Any) -> int | None:
        clock[0] += 0 if clock[0] else 60
        return take(*given)

    monkeypatch.setattr(searching, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(searching, "PART_SECONDS", 1.0)
    monkeypatch.setattr(searching.LogSearch, "_take", slow)
    part = Pages(f"a={store}").json("scan", topic="T")["part"]
    assert (clock, part["next"] is not None, len(part["messages"])) == ([60], True, 60)


def test_json_by_the_path(golden_store: Stores) -> None:
    """The same as by the field ``format``, errors, too."""
    pages = Pages(f"a={golden_store('basic-5.3').path}")
    for path in (
        "topics?store=a",
        "queue?store=a&topic=TopicA&queue=1",
        "message?store=a&physical=0",
        "search?store=a",
        "scan",
    ):
        page, _, query = path.partition("?")
        one, other = pages.client.get(f"/{page}.json?{query}"), pages.client.get(f"/{path}{'&' if query else '?'}format=json")
        assert (one.status_code, one.headers["content-type"]) == (200, "application/json"), path
        assert one.json() == other.json(), path
    assert [each["store"] for each in pages.client.get("/index.json").json()["stores"]] == ["a"]
    wrong = pages.client.get("/queue.json?store=a&topic=TopicA&queue=x")
    assert (wrong.status_code, wrong.json()["status"]) == (400, 400)
    assert pages.client.get("/queue.json?store=b&topic=T&queue=0").json()["status"] == 404
    assert [pages.client.get(path).status_code for path in ("/body.json", "/.json", "/style.css.json")] == [404] * 3


def test_all_stores_name_their_commands(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    page, told = Pages(f"a={store}", f"b={store}").both("")
    assert [each["command"] for each in told["stores"]] == [f"rmq-reindex info {store}"] * 2
    assert page.count(f"rmq-reindex info {store}") == 2


def test_stores_are_named_as_trace_takes_them_too() -> None:
    """In any order, among other options."""
    plain = parse_browse(["a=/x", "b=/y", "--port", "0"])
    for words in (
        ["--store", "a=/x", "--store=b=/y", "--port", "0"], ["a=/x", "--port", "0", "--store", "b=/y"],
        ["--port", "0", "--store", "a=/x", "--store", "b=/y"],
    ):  # fmt: skip
        assert parse_browse(words) == plain
