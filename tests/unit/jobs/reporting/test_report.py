"""The page of ``rmq-reindex report``: what it says is what was built, and it needs nothing but itself."""

from __future__ import annotations

import html
import json
import re
import shutil
import struct
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.reporting import page as report_times
from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.reporting.model import Queue, of_build
from tests.tools import spoil
from tests.tools.encode import EPOCH
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message, random_log

pytestmark = pytest.mark.usefixtures("inline_local")

HOSTILE = "<script>$x^2$&\"'"
TAGGED: list[dict[str, str]] = [{"TAGS": "tag"}, {}, {}, {}]
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
EMPTY_ELEMENTS = {"meta", "br", "img", "input", "link", "hr"}


class Balanced(HTMLParser):
    """Every element that is opened is closed, in order; ids are unique."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in EMPTY_ELEMENTS:
            self.open.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "srcset", "action")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in EMPTY_ELEMENTS:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> Balanced:
    page = Balanced()
    page.feed(text)
    assert page.open == []
    assert len(page.ids) == len(set(page.ids))
    assert all(link.startswith("#") for link in page.links), "the page loads something"
    assert not re.search(r"@import|url\((?!#)|<script|<link|javascript:", text)
    return page


def cells(text: str) -> list[str]:
    return re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", text)


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A salvaged build with a hostile topic, a gap, damage, and a light and a heavy topic."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        for number in range(120):
            topic = HOSTILE if number % 10 == 0 else f"T{number % 3}"
            time = EPOCH + 1000 * number
            offset = 60 if number == 60 else None
            writer.append(
                Message(
                    topic,
                    number % 2,
                    store_timestamp=time,
                    properties={"KEYS": f"k{number}"} | TAGGED[number % 4],
                    queue_offset=offset,
                )
            )
    spoil.flip_body(store, 77)
    summary = local_build(store, tmp_path / "out", on_damage="salvage", **SIZES)
    assert summary.exit == 3, summary.error
    return tmp_path / "out"


def test_the_page_of_a_build(built: Path) -> None:
    manifest = json.loads((built / "reindex.json").read_text())
    text = make_page(str(built), str(built.parent / "store"))
    page = check_page(text)
    counts = manifest["counts"]
    for number in (
        counts["records"],
        counts["units"],
        counts["items"] - counts["tag_items"],
        counts["tag_items"],
        counts["index"],
    ):
        assert f"<dd>{number:,}</dd>" in text
    assert '<dd class="bad">1</dd>' in text
    (damage,) = manifest["damage"]
    found = cells(text)
    at = found.index(f"{damage['offset']:,}")
    assert found[at + 1 : at + 3] == [f"{damage['length']:,}", damage["reason"]]
    assert "&lt;script&gt;$x^2$&amp;" in text
    assert text.count("<svg") == len([i for i in page.ids if i.endswith("-figure_1")]) == 2
    assert "store times of 119 messages;" in text
    for entry in manifest["files"]:
        if entry["path"].startswith("index/"):
            assert entry["path"].removeprefix("index/") in text
    assert make_page(str(built), str(built.parent / "store")) == text, "the same input, the same page"


def test_without_the_log_the_index_tells_the_time(built: Path) -> None:
    text = make_page(str(built))
    check_page(text)
    assert "evenly spread index items: give --store for topics" in text
    assert "<span>index items</span>" in text


def test_seconds_of_a_build(built: Path, tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"seconds": {"session": 6.25, "build": 3.5}}))
    text = make_page(str(built), None, str(tmp_path / "summary.json"))
    assert "Time by stage" in text
    assert "6.2 s" in text
    assert "3.5 s" in text


def verified(**more: Any) -> dict[str, Any]:
    """What ``verify --report`` writes."""
    finding = {
        "kind": "queue-unit-missing", "part": "consumequeue", "text": "record without a unit", "count": 3,
        "mend": "rmq-reindex ...", "examples": [{"where": "consumequeue/T/0/0", "at": 5, "text": "queue offset 5 <b>"}],
    }  # fmt: skip
    return {
        "version": "0.1.0", "command": "verify", "store": "/no/such/store",
        "seconds": {"session": 5.0, "scan": 2.5, "verify": 4.0},
        "records": 100, "units": 100, "units_there": 97, "items": 150, "items_there": 150,
        "tag_items": 41, "tag_items_there": 37,
        "settings": {"hash_slots": 50, "index_items": 60, "cq_file_size": 400},
        "findings": [finding], "notes": ["index: sizes taken from the files"], "mend": "rmq-reindex build store --out DIR",
        "damage": [{"segment": "0" * 20, "offset": 500, "length": 40, "reason": "bad magic code"}], "error": None,
        "sizes": {"commitlog": 16384, "index": 1440}, "index_list": [
            {"name": "00000000000000000", "size": 1440, "used": 50, "sealed": True, "slots_used": 30, "longest_chain": 4,
             "chains": [10, 10, 10], "header": {"begin_time": EPOCH, "end_time": EPOCH + 5, "begin_place": 0, "end_place": 9,
                                                "slot_count": 30, "index_count": 60}},
        ],
        "queue_list": [{"topic": "T", "queue": 0, "units": 100, "there": 97, "first": 0, "end": 100, "files": 1,
                        "folder": True, "order": "in order", "differences": 3, "kinds": {"queue-unit-missing": 3},
                        "first_bad": 5}, {"topic": "T", "queue": 1, "units": 0, "there": 0, "first": -1, "end": -1}],
    } | more  # fmt: skip


def test_the_page_of_a_verify(tmp_path: Path) -> None:
    (tmp_path / "verify.json").write_text(json.dumps(verified()))
    text = make_page(str(tmp_path / "verify.json"))
    check_page(text)
    assert '<section class="verdict bad"><h2>1 kind of difference</h2>' in text
    assert text.index("verdict bad") < text.index("<h2>Notes</h2>") < text.index("<h2>Differences</h2>")
    for name, number in (("key items", 150), ("tag items", 37), ("tag items missing", 4)):
        assert re.search(f">{name}<.{{1,20}}<dd[^>]*>{number}<", text), name
    assert {"queue-unit-missing", "3", "record without a unit"} <= set(cells(text))
    assert "queue offset 5 &lt;b&gt;" in text
    assert "<dt>units</dt><dd>97</dd>" in text
    assert "<dt>units missing</dt><dd>3</dd>" in text
    found = cells(text)
    assert found[found.index("missing offsets") + 1 :][:6] == ["T", "0", "0", "100", "97", "3"]
    assert "all of it is mended by<pre><code>rmq-reindex build store --out DIR</code>" in text
    assert {"scan", "session"} <= set(re.findall(r"<span>(\w+)</span>", text))
    abort = verified()["findings"][0] | {"kind": "abort-file", "mend": "stop the broker; after a build remove it"}
    (tmp_path / "verify.json").write_text(json.dumps(verified(findings=[*verified()["findings"], abort])))
    assert "some of it is mended by<pre><code>rmq-reindex build store --out DIR</code>" in make_page(
        str(tmp_path / "verify.json")
    )
    (tmp_path / "verify.json").write_text(json.dumps(verified(findings=[], mend=None, damage=[])))
    assert '<section class="verdict good"><h2>no differences</h2></section>' in make_page(str(tmp_path / "verify.json"))


def test_what_a_page_lacks_is_told(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a store that was moved or removed since, the verify's file alone is left."""
    store, moved, found, page = tmp_path / "store", tmp_path / "moved", tmp_path / "verify.json", tmp_path / "page.html"
    for part in ("consumequeue", "index"):
        shutil.move(built / part, store / part)
    assert main(["verify", str(store), "--report", str(found), "--engine", "local"]) == 4

    def told(*words: str) -> str:
        capsys.readouterr()
        assert main(["report", str(found), "--out", str(page), *words]) == 0
        said = capsys.readouterr().err
        assert all(html.escape(line.removeprefix("note: ")) in page.read_text() for line in said.splitlines())
        return said.replace(f"{tmp_path}/", "")

    assert told() == ""
    whole = page.read_bytes()
    store.rename(moved)
    chains = "the slots' chains of 3 IndexFiles"
    assert told() == (
        f"note: store: is not there, so the page lacks messages over time, the map of the log and {chains}: --store names "
        "where the store is now\n"
    )
    assert told("--store", str(moved)) == ""
    assert page.read_bytes() == whole
    moved.rename(store)
    (store / "index").rename(moved)
    assert told() == f"note: store/index: is not there, so the page lacks {chains}\n"
    moved.rename(store / "index")
    one = min((store / "index").iterdir())
    one.write_bytes(b"")
    assert told().startswith(f"note: store/index/{one.name}: ")
    (store / "commitlog").rename(moved)
    no_log, no_chains = told().splitlines()
    assert no_log == (
        "note: store/commitlog: is not there, so the page lacks the map of the log: --store names the folder around commitlog/"
    )
    assert no_chains.startswith(f"note: store/index/{one.name}: ")
    assert no_chains.endswith(", so the page lacks the slots' chains of 1 IndexFile")
    moved.rename(store / "commitlog")
    for part in ("consumequeue", "index"):
        shutil.rmtree(store / part)
        (store / part).mkdir()
    assert told().splitlines()[0] == (
        "note: store/consumequeue: none of its units that were looked at leads to a record in store/commitlog, so the page "
        "lacks messages over time"
    )


def test_of_a_build_that_was_verified_the_log_is_elsewhere(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was moved, and what lies behind a URI is there, too."""
    store, found, page = tmp_path / "store", tmp_path / "verify.json", tmp_path / "page.html"
    place = f"file://{built}"
    assert main(["verify", place, "--commitlog", f"{store}/commitlog", "--engine", "local", "--report", str(found)]) == 4

    def figures(note: str, *words: str) -> int:
        capsys.readouterr()
        assert main(["report", str(found), "--out", str(page), *words]) == 0
        assert capsys.readouterr().err == note
        return page.read_text().count("<svg")

    for folder in (place, str(built)):
        found.write_text(json.dumps(json.loads(found.read_text()) | {"store": folder}))
        names = "--store names the folder around commitlog/\n"
        assert figures(f"note: {folder}/commitlog: is not there, so the page lacks the map of the log: {names}") == 1
        assert "index items: give --store for topics" in page.read_text()
        assert figures("", "--store", str(store)) == 2
        assert "store times of " in page.read_text()


@pytest.mark.usefixtures("built")
def test_a_log_behind_a_uri_is_not_drawn(tmp_path: Path) -> None:
    place, notes = f"file://{tmp_path}/store", list[str]()
    (tmp_path / "verify.json").write_text(json.dumps(verified(store=place)))
    make_page(str(tmp_path / "verify.json"), notes=notes)
    assert notes[0] == (
        f"{place}/commitlog: is a URI, and a log is read from a disk alone, so the page lacks messages over time and the map "
        "of the log: --store names the folder around commitlog/"
    )


def test_an_empty_build(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert local_build(tmp_path / "store", tmp_path / "out").exit == 0
    check_page(make_page(str(tmp_path / "out"), str(tmp_path / "store")))


def test_sampling_counts_every_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample stands for as many messages as it passes over: topics keep their sizes, times their shape."""
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", 11, records=400, segment_size=1 << 16, biggest_body=50)
    local_build(store, tmp_path / "out", **SIZES)
    model = of_build(json.loads((tmp_path / "out" / "reindex.json").read_text()), "out")
    exact = report_times.message_times(model, str(tmp_path / "out"), str(store / "commitlog"))
    times = {put.message.store_timestamp for put in puts}
    assert all(set(found.tolist()) <= times for found, _ in exact.values())
    assert {topic: int(weights.sum()) for topic, (_, weights) in exact.items()} == {
        topic: sum(q.units for q in queues) for topic, queues in model.topics.items()
    }
    monkeypatch.setattr(report_times, "SAMPLES", 100)
    monkeypatch.setattr(report_times, "SAMPLES_OF_TOPIC", 10)
    sampled = report_times.message_times(model, str(tmp_path / "out"), str(store / "commitlog"))
    assert sum(len(found) for found, _ in sampled.values()) < 200
    for topic, queues in model.topics.items():
        if topic in sampled:
            _, weights = sampled[topic]
            units, step = sum(q.units for q in queues), int(weights[0])
            assert abs(int(weights.sum()) - units) <= step * len(queues)
    assert np.all(sampled[next(iter(model.topics))][1] > 1)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "is not there: name what a build wrote"),
        ("no json", "is no JSON object"),
        ("[1]", "is no JSON object"),
        ('{"a": 1}', "neither a build's reindex.json nor what verify --report writes"),
        ('{"command": "verify", "store": 1}', "neither a build's reindex.json nor what verify --report writes"),
    ],
)
def test_what_is_no_report(content: str | None, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if content is not None:
        (tmp_path / "reindex.json").write_text(content)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert told in error
    assert not (tmp_path / "page.html").exists()


def test_the_command(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    page.write_text("<!doctype html>an older page")
    assert main(["report", str(built), "--out", str(page)]) == 0
    assert capsys.readouterr().out == f"wrote    {page}, {page.stat().st_size:,} bytes\n"
    assert [path.name for path in tmp_path.glob("page.html*")] == ["page.html"]
    assert main(["report", str(built), "--out", str(tmp_path / "no" / "page.html")]) == 1
    assert main(["report", str(built), "--store", str(built), "--out", str(page)]) == 1
    assert main(["report"]) == 2


@pytest.mark.parametrize("inside", ["checkpoint", "page.html", "commitlog/00000000000000000000", "consumequeue/T/0/page.html"])
def test_the_page_stays_out_of_a_store(inside: str, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A page among the segments keeps a broker from starting, and a file of the name would be replaced."""
    store = tmp_path / "store"
    place = store / inside
    place.parent.mkdir(parents=True, exist_ok=True)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert main(["report", str(built), "--out", str(place)]) == 1
    assert capsys.readouterr().err == (
        f"error: --out {place}: lies inside {store}, a broker's store: name a file apart from it\n"
    )
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_folder_beside_a_commitlog_is_no_part_of_a_store(built: Path, tmp_path: Path) -> None:
    """The log may have a disk of its own (storePathCommitLog), and other things lie there, too."""
    for folder in ("commitlog", "reports"):
        (tmp_path / "disk" / folder).mkdir(parents=True)
    assert main(["report", str(built), "--out", str(tmp_path / "disk" / "reports" / "page.html")]) == 0


def test_slots_without_a_message_are_no_places(tmp_path: Path) -> None:
    """A zeroed slot and pre-blank are passed over, and of equal units in a row the first one counts."""
    folder = tmp_path / "consumequeue" / "T" / "0"
    folder.mkdir(parents=True)
    units = [(0, 2**31 - 1), (100, 9), (0, 0), (300, 9), (300, 9), (400, 9)]
    (folder / f"{0:020d}").write_bytes(b"".join(struct.pack(">qiq", at, size, 0) for at, size in units))
    queue = Queue("T", 0, 0, len(units), len(units))
    assert report_times._phy_offsets(str(tmp_path), queue, 20 * len(units), 1) == [100, 300, 400]
