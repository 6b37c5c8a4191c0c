"""The page of a message: what leads to it, where it points to, what lies around it, and its trace."""

from __future__ import annotations

import itertools
import shlex
import shutil
import struct
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import message
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_LAYOUT, ITEM_SIZE, SLOT_SIZE
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages, check
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, MIN_BLANK, Message, body_start, encode
from tests.tools.log_writer import LogWriter

Stores = Callable[[str], GoldenStore]
pytestmark = pytest.mark.usefixtures("inline_local")
KEYED = [
    Message("T", body=b"%03d" % k * 10, properties={"KEYS": f"k{k} all", "UNIQ_KEY": f"U{k}", "TAGS": "t"},
            store_timestamp=EPOCH + 1000 * k)
    for k in range(180)
]  # fmt: skip


def slots_of(path: Path) -> tuple[int, int]:
    """Slots and items of a file that ``write_store`` has made."""
    assert path.stat().st_size == HEADER_SIZE + 100 * SLOT_SIZE + 400 * ITEM_SIZE
    return 100, 400


# ----------------------------------------------------------------------------------------------------------------------- index


def test_the_items_that_lead_here(tmp_path: Path) -> None:
    """Each is read again from the bytes of its file: its place, its hash and its slot."""
    store = write_store(tmp_path / "store", KEYED, 1 << 14)
    pages = Pages(f"a={store}")
    names = sorted(path.name for path in (store / "index").iterdir())
    assert len(names) == 2
    rows = pages.json("queue", store="a", topic="T", queue=0)["units"]
    rows = [rows[3], pages.json("queue", store="a", topic="T", queue=0, from_=179)["units"][0]]
    for row, name in zip(rows, names, strict=True):
        page, found = pages.both("message", store="a", physical=row["physicalOffset"])
        index = found["index"]
        assert (index["present"], index["files"], index["whole"]) == (True, 2, True)
        keys = [("unique key", row["uniqueKey"]), *(("key", key) for key in row["keys"])]
        assert [(item["name"], item["key"]) for item in index["items"]][:3] == keys
        for item in index["items"]:
            assert item["file"] == name
            data = (store / "index" / name).read_bytes()
            slots, _ = slots_of(store / "index" / name)
            hashed, at, _, _ = ITEM_LAYOUT.unpack_from(data, HEADER_SIZE + SLOT_SIZE * slots + ITEM_SIZE * item["item"])
            assert (at, hashed % slots) == (row["physicalOffset"], item["slot"])
        assert name in page
        for link in [link for link in check(page).links if link.startswith("/search?") and "topic=" in link]:
            assert pages.client.get(link).status_code == 200


def test_a_key_of_very_many_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many items are looked at, and the page says that there may be more."""
    monkeypatch.setattr(message, "READS_MAX", 40)
    store = write_store(tmp_path / "store", KEYED, 1 << 14)
    page, found = Pages(f"a={store}").both("message", store="a", topic="T", queue=0, offset=0)
    assert [item["name"] for item in found["index"]["items"]] == ["unique key", "key"]
    assert not found["index"]["whole"]
    assert "There may be more" in page


def test_an_index_that_is_lost_or_of_another_log(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", KEYED, 1 << 14)
    for path in (store / "index").iterdir():
        data = bytearray(path.read_bytes())
        # The places of its header.
        struct.pack_into(">qq", data, 16, 1 << 40, 1 << 41)
        path.write_bytes(data)
    found = Pages(f"a={store}").json("message", store="a", topic="T", queue=0, offset=7)
    assert [item["key"] for item in found["index"]["items"] if item["name"] != "tag"] == ["U7", "k7", "all"]
    shutil.rmtree(store / "index")
    page, found = Pages(f"a={store}").both("message", store="a", topic="T", queue=0, offset=7)
    assert found["index"] == {"present": False, "files": 0, "items": [], "whole": True}
    assert "The store has no IndexFiles." in page


@pytest.mark.parametrize("name", ["basic-5.5", "transactions-delay"])
def test_items_of_a_store_of_a_broker(name: str, golden_store: Stores) -> None:
    """Where a query finds a message by a key, an item leads to it."""
    store = golden_store(name).path
    pages = Pages(f"a={store}")
    rows = [row.to_dict() for row in rr.query(store=store, topic="TopicA", queue=1, offset=0, max=30)]
    for row in [row for row in rows if row["keys"] and "rollback" not in row["kinds"]][:5]:
        found = pages.json("message", store="a", physical=row["physicalOffset"])
        keys = {item["key"] for item in found["index"]["items"] if item["name"] == "key"}
        for key in row["keys"]:
            hits = [hit.to_dict()["physicalOffset"] for hit in rr.query(store=store, topic="TopicA", key=key)]
            assert (key in keys) == (row["physicalOffset"] in hits)
        assert keys


# ----------------------------------------------------------------------------------------------------------------- neighbours


def test_neighbours_over_the_ends_of_segments_and_damage(tmp_path: Path) -> None:
    """From the first record to the last and back: each is found, and what lies between is said."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for each in KEYED:
            writer.append(each)
    pages = Pages(f"a={store}")
    rows = [row for batch in rr.messages(store=store, body="none") for row in batch.to_pylist()]
    places = [row["commitLogOffset"] for row in rows]
    lost = places[120:124]
    path = next(path for path in sorted((store / "commitlog").iterdir())[::-1] if int(path.name) <= lost[0])
    with path.open("r+b") as file:
        for place in lost:
            file.seek(place - int(path.name) + 4)
            file.write(b"\1\2\3\4")
    places = [place for place in places if place not in lost]
    assert len(list((store / "commitlog").iterdir())) > 3
    ends = {at for at, (one, two) in enumerate(itertools.pairwise(places)) if one >> 13 != two >> 13}
    assert len(ends) == 3
    for at in sorted({*ends, *(end + 1 for end in ends), *range(117, 124), 1, 50}):
        found = pages.json("message", store="a", physical=places[at])["inLog"]
        assert (found["previous"], found["next"]) == (places[at - 1], places[at + 1])
        assert (found["bytesBefore"] > 0, found["bytesBehind"] > 0) == (at == 120, at == 119)
    behind = pages.both("message", store="a", physical=places[120])
    assert behind[1]["inLog"]["bytesBefore"] > 4 * MIN_BLANK
    assert "between are no record" in behind[0]
    first, last = (pages.json("message", store="a", physical=places[k])["inLog"] for k in (0, -1))
    assert (first["previous"], first["bytesBefore"], last["next"], last["bytesBehind"]) == (None, None, None, None)


def test_the_image_of_a_record_is_no_neighbour(tmp_path: Path) -> None:
    """Damage stands between: the record before it has a body that ends with an image, which names its own place."""
    store, filling = tmp_path / "store", b"z" * 70_000
    image = encode(KEYED[0], body_start(Message()) + len(filling))
    with LogWriter(store / "commitlog", 1 << 17) as writer:
        for each in (Message("T", body=filling + image), Message("T"), Message("T", properties={"KEYS": "behind"})):
            writer.append(each)
    pages = Pages(f"a={store}")
    at = [row["commitLogOffset"] for batch in rr.messages(store=store, body="none") for row in batch.to_pylist()]
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(at[1] + 4)
        file.write(b"\1\2\3\4")
    found = pages.json("message", store="a", physical=at[2])["inLog"]
    assert found == {"previous": 0, "bytesBefore": at[2] - at[1], "next": None, "bytesBehind": None}
    assert pages.json("message", store="a", physical=0)["inLog"]["next"] == at[2]


def test_neighbours_in_a_queue_with_gaps(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", KEYED[:60], 1 << 15)
    (queue,) = (store / "consumequeue" / "T" / "0").iterdir()
    with queue.open("r+b") as file:
        file.seek(20 * 10)
        file.write(bytes(20 * 7))
    pages = Pages(f"a={store}")
    given: dict[str, Any] = {"store": "a", "topic": "T", "queue": 0}
    assert pages.json("message", **given, offset=9)["inQueue"]["next"] == 17
    assert pages.json("message", **given, offset=17)["inQueue"]["previous"] == 9
    assert pages.json("message", **given, offset=0)["inQueue"]["previous"] is None


# --------------------------------------------------------------------------------------------------------------------- places


def test_where_records_of_the_broker_point_to(golden_store: Stores) -> None:
    """A link stands there only where the store has what it leads to."""
    store = golden_store("transactions-delay").path
    pages = Pages(f"a={store}")
    texts, linked = set[str](), 0
    for row in [row for batch in rr.messages(store=store, body="none") for row in batch.to_pylist()][::5]:
        if row["kind"] == "message" and row["originOffset"] is None:
            continue
        page, found = pages.both("message", store="a", physical=row["commitLogOffset"])
        told = found["message"]["meaning"]
        for place in found["pointsTo"]:
            texts.add(place["text"])
            assert place["topic"] in (told.get("realTopic"), "RMQ_SYS_TRANS_HALF_TOPIC", None)
        for link in [link for link in check(page).links if found["pointsTo"] and link.startswith(("/queue", "/message"))]:
            assert pages.client.get(link).status_code == 200, link
            linked += 1
        if linked > 60:
            break
    assert texts
    assert linked


def test_light_queues(tmp_path: Path) -> None:
    messages = [Message("T", lmq=("%LMQ%a", "%LMQ%b") if k % 2 else ()) for k in range(6)]
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 15) as writer:
        for each in messages:
            writer.append(each)
    at = rr.query(store=store, topic="T", queue=0, offset=3, scan=True)[0].to_dict()["physicalOffset"]
    page, found = Pages(f"a={store}").both("message", store="a", physical=at)
    rows = [{"topic": name, "queue": 0, "queueOffset": 1, "leadsHere": None} for name in ("%LMQ%a", "%LMQ%b")]
    assert found["lightQueues"] == rows
    assert "Light queue %LMQ%a" in page


# ---------------------------------------------------------------------------------------------------------------------- trace


@pytest.mark.parametrize("name", ["transactions-delay", "basic-5.3"])
def test_a_trace_is_what_trace_says(name: str, golden_store: Stores) -> None:
    store, other = golden_store(name).path, golden_store("trimmed-head").path
    pages = Pages(f"a={store}", f"b={other}")
    rows = [row for batch in rr.messages(store=store, body="none") for row in batch.to_pylist() if row["uniqKey"]]
    for row in rows[:: len(rows) // 4]:
        shown = pages.html("message", store="a", physical=row["commitLogOffset"])
        link = next(link for link in check(shown).links if link.startswith("/trace"))
        found = pages.client.get(f"{link}&format=json").json()
        expected = rr.trace(store=[f"a={store}", f"b={other}"], unique_key=row["uniqKey"])
        assert found["error"] is None
        assert {name: found[name] for name in ("messages", "warnings")} == expected.to_dict()
        page = pages.client.get(link).text
        for link in check(page).links:
            assert pages.client.get(link).status_code == 200
        words = shlex.split(found["command"])
        assert words[:3] == ["rmq-reindex", "trace", "--store"]
        assert f"--unique-key={row['uniqKey']}" in words
        assert unescape(page).count(found["command"]) == 1
    alone = pages.json("trace", store="a", physical=rows[0]["commitLogOffset"])
    expected = rr.trace(store=[f"a={store}"], physical=rows[0]["commitLogOffset"])
    assert alone["messages"] == expected.to_dict()["messages"]


def test_a_trace_without_an_index(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 15) as writer:
        writer.append(KEYED[0])
    page, found = Pages(f"a={store}").both("trace", unique_key="U0")
    assert "add --scan" in found["error"]
    assert found["messages"] == []
    assert "Not traced" in page
    assert found["command"].endswith(" --unique-key=U0 --scan")
    assert main(shlex.split(found["command"])[1:]) == 0
    assert 'href="/scan?key=U0"' in page
    # One store that cannot be traced does not keep the others back.
    whole = write_store(tmp_path / "whole", KEYED, 1 << 15)
    pages = Pages(f"a={store}", f"b={whole}")
    page, found = pages.both("trace", unique_key="U0")
    assert found["error"] is None
    assert {event["store"] for message in found["messages"] for event in message["events"]} == {"b"}
    assert [warning for warning in found["warnings"] if f"{store}/consumequeue: holds no queue" in warning]
    assert f"{store}/consumequeue: holds no queue" in unescape(page)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 400), ({"unique_key": "k", "physical": "1", "store": "a"}, 400), ({"physical": "1"}, 400),
        ({"unique_key": "k", "store": "b"}, 404), ({"physical": "x", "store": "a"}, 400),
    ],
)  # fmt: skip
def test_wrong_questions(fields: dict[str, str], status: int, golden_store: Stores) -> None:
    text, _ = Pages(f"a={golden_store('basic-5.3').path}").both("trace", status, **fields)
    assert "Traceback" not in text
