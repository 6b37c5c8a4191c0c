"""A store that somebody made up to do harm: nothing of it is more than text in the pages of ``browse``."""

from __future__ import annotations

import json
import zlib
from html import unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import facts
from rocketmq_reindex.jobs.store import contents
from tests.tools.browsing import Pages, check
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message

SCRIPT = "\"'><script>alert(1)</script>{{7777*7}}{%x%}"
BIDI = "a\u202eb\u2066c\x1b[31m\x07\u200b"
JSON = json.dumps({SCRIPT: BIDI}).encode()
MESSAGES = [
    Message("T", body=SCRIPT.encode(), properties={"KEYS": f"{SCRIPT} k", "TAGS": SCRIPT, SCRIPT: SCRIPT, "UNIQ_KEY": SCRIPT}),
    Message("T", body=BIDI.encode(), properties={"KEYS": f"{BIDI} k", "TAGS": BIDI, BIDI: BIDI}),
    Message("T", body=JSON, properties={"KEYS": "k"}),
    Message("T", body=b"\xff\xfe\x00" * 50, properties=b"KEYS\x01k\x02\xc0\xaf\x01\xed\xa0\x80\x02"),
    Message(
        "T", body=b"<html><script>alert(1)</script>", properties={"KEYS": "k", "javascript:alert(1)": "javascript:alert(1)"}
    ),
]
HALVES = ("\ud800", "a\udfff\udc80")
"""names that JSON can have, and no folder"""
NAMES = ("<script>alert(1)<", "a\u202eb", "x\x1b[31m", b"\xff\xfe", "{{7777*7}}", "\"onmouseover='x'", "a&b=c#d?e%2f")


pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_hostile(tmp_path)


def write_hostile(place: Path) -> Path:
    """The messages, and queues, IndexFiles and a store whose names are no better."""
    made = write_store(place / "made", MESSAGES, 1 << 16)
    store = place / "<b>\u202e"
    made.rename(store)
    for name in NAMES:
        folder = bytes(store / "consumequeue") + b"/" + (name if isinstance(name, bytes) else name.encode())
        Path(folder.decode("utf-8", "surrogateescape"), "0").mkdir(parents=True)
    source = next((store / "consumequeue" / "T" / "0").iterdir())
    for name in ("{{7777*7}}", "a&b=c#d?e%2f"):
        (store / "consumequeue" / name / "0" / source.name).write_bytes(source.read_bytes())
    (store / "index" / "<script>alert(1)<").write_bytes(b"x" * 100)
    (store / "commitlog" / "<script>\u202e").write_bytes(b"x")
    named = [name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name for name in NAMES]
    offsets = {f"{name}@{name}": {"0": 1, "7": 1 << 62} for name in (*named, "T")} | {f"T@{name}": {"0": 0} for name in named}
    offsets |= {f"{half}@{half}": {"0": 1} for half in HALVES}
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store


def test_every_page_shows_it_as_text(store: Path) -> None:
    pages = Pages(f"<i>\u202e={store}")
    left, seen, shown = ["/"], {"/"}, ""
    while left:
        link = left.pop()
        answer = pages.client.get(link)
        assert answer.status_code in (200, 422), (link, answer.text)
        if link.startswith("/body"):
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
            assert answer.headers["content-disposition"].startswith("attachment")
            continue
        if "format=json" in link:
            assert answer.text.isascii()
            answer.json()
            continue
        page = check(answer.text)
        shown += unescape(answer.text)
        new = [found for found in page.links if found.startswith("/") and found not in seen]
        seen |= set(new)
        left += new
    assert "54439" not in shown
    for told in ("<script>alert(1)</script>", r"\u202e", r"\x1b[31m", r"\x07", r"\udcff"):
        assert told in shown, told
    topics = pages.json("topics", store="<i>\u202e")["topics"]
    assert len(topics) == len(NAMES) + 1
    # What no folder of a topic can be called is named, and leads nowhere.
    linked = [link for link in seen if link.startswith("/topic?") and "format=json" not in link]
    assert len(linked) == sum(row["queues"] > 0 for row in topics) > 3
    assert len([link for link in seen if link.startswith("/message?")]) > 2 * len(MESSAGES)
    assert len([link for link in seen if link.startswith(("/consumers?", "/rates?"))]) > len(NAMES)


def test_a_search_for_it(store: Path) -> None:
    pages = Pages(f"s={store}")
    for key in ("<script>", "--topic", "-x", "\u202e"):
        assert pages.both("search", topic="T", key=key)[1]["results"][0]["messages"] == []
    raw = pages.client.get("/search?topic=%ff&key=%00%ff%1b")
    assert raw.status_code == 200
    check(raw.text)
    assert pages.client.get("/search?topic=T&queue=0&offset=0&id=%3Cscript%3E").status_code == 400


def test_a_body_that_unpacks_to_very_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page shows its beginning; a download is whole, or refused."""
    monkeypatch.setattr(facts, "BODY_MAX", 1 << 20)
    bomb = zlib.compress(b"x" * (8 << 20))
    store = write_store(tmp_path / "store", [Message("T", body=bomb, sysflag=1)], 1 << 20)
    pages = Pages(store)
    page, found = pages.both("message", store="store", physical=0)
    assert (found["whole"], found["bytesShown"], found["message"]["bodyTruncated"]) == (False, facts.BODY_SHOWN, True)
    assert len(page) < 4 * facts.BODY_SHOWN
    answer = pages.client.get("/body?store=store&physical=0")
    assert answer.status_code == 422
    assert "more than 1,048,576 bytes" in answer.text


def test_a_file_name_that_makes_a_gap_without_end(tmp_path: Path) -> None:
    """It is passed at once, by pages and commands."""
    store = write_store(tmp_path / "store", [Message("T")], 1 << 16)
    (queue,) = (store / "consumequeue" / "T" / "0").iterdir()
    far = 20 * 10**14
    queue.with_name(f"{far:020d}").write_bytes(queue.read_bytes())
    found = Pages(store).json("queue", store="store", topic="T", queue=0)
    assert [row["what"] for row in found["units"]] == ["message", "gap", "gap", "message"]
    assert (found["units"][2]["last"], found["next"]) == (far // 20 - 1, None)
    assert Pages(store).json("queue", store="store", topic="T", queue=0, time=EPOCH)["units"] == found["units"]
    assert Pages(store).json("search", store="store", topic="T", queue=0, time=EPOCH)["results"][0]["messages"]
    assert Pages(store).json("store", store="store")["info"]["queues"] == 1
    assert Pages(store).both("rates", store="store")[1]["messages"] == 2
    assert rr.info(store).queues == 1
    assert len(rr.query(store=store, topic="T", queue=0, time=EPOCH)) == 1


def test_a_body_full_of_magic_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record before a place is found, and what is no record of it is not looked at one by one."""
    looked, message_at = list[int](), contents.message_at

    def counted(pages: Any, start: int, at: int, lead: int = 0) -> Any:
        looked.append(at)
        return message_at(pages, start, at, lead)

    magic = (0xDAA320A7).to_bytes(4, "big")
    bodies = [magic * 40_000, magic * 300_000, magic + b"x"]
    store = write_store(tmp_path / "store", [Message("T", body=body) for body in bodies], 1 << 21)
    pages = Pages(f"s={store}")
    places = [row["physicalOffset"] for row in pages.json("queue", store="s", topic="T", queue=0)["units"]]
    monkeypatch.setattr(contents, "message_at", counted)
    for before, place in pairwise(places):
        assert pages.json("message", store="s", physical=place)["inLog"]["previous"] == before
    assert len(looked) < 100
