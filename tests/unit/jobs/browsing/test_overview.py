"""The overview pages of ``browse``: what they say is what the files, ``info`` and ``consumers`` say, or a sample near it."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import facts, log_sample, overview, rates, remembered, templates
from rocketmq_reindex.jobs.store import contents
from rocketmq_reindex.jobs.store.contents import RecordWalk, StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.record.message import Message as Record
from rocketmq_reindex.udfs.times import show_time
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message

Stores = Callable[[str], GoldenStore]
GOLDEN = ("basic-5.3", "trimmed-head", "transactions-delay", "dledger-5.3")


def records_of(store: Path) -> list[Record]:
    """All records of a whole log, one by one."""
    root = next(store.glob("dledger-*/data"), store / "commitlog")
    log = StoreLog([str(root)], Notes.silent())
    found = list(RecordWalk(log, log.start, log.end, 1 << 30))
    log.close()
    return found


# -------------------------------------------------------------------------------------------------------------------------- log


@pytest.mark.parametrize("name", GOLDEN)
def test_segments(name: str, golden_store: Stores) -> None:
    """Each with its first and its last record; few records are counted, of many the number is about right."""
    store = golden_store(name).path
    page, told = Pages(f"a={store}").both("log", store="a")
    every = records_of(store)
    assert told["count"] == len(told["segments"]) == len(told["line"]) == rr.info(store).log["segments"]
    assert told["bytes"] == rr.info(store).log["bytes"]
    assert (told["missing"], told["next"], told["previous"], told["knownDamage"]) == (0, None, None, 0)
    for row in told["segments"]:
        here = [r for r in every if row["firstOffset"] <= r.phy_offset < row["firstOffset"] + row["bytes"]]
        if not here:
            assert (row["records"], row["used"], row["estimated"], row["damage"]) == (0, 0, False, [])
            continue
        assert (row["firstRecord"], row["firstTime"]) == (here[0].phy_offset, show_time(here[0].store_time))
        assert (row["lastRecord"], row["lastTime"]) == (here[-1].phy_offset, show_time(here[-1].store_time))
        assert row["used"] == here[-1].phy_offset + here[-1].size - row["firstOffset"]
        assert row["damage"] == []
        assert row["estimated"] == (len(here) > log_sample.COUNTED)
        if row["estimated"]:
            assert 0.6 * len(here) < row["records"] < 1.6 * len(here), name
            assert f"about {row['records']:,}" in page.replace("about \n", "about ")
        else:
            assert row["records"] == len(here)
    # One more explains it.
    assert page.count('<i class="share-') == 1 + len(told["segments"])


def test_damage_gaps_and_pages(golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden_store("basic-5.3").path / "commitlog", store / "commitlog")
    names = sorted(path.name for path in (store / "commitlog").iterdir())
    (store / "commitlog" / names[1]).unlink()
    with open(store / "commitlog" / names[2], "r+b") as segment:
        segment.write(b"\0\0\0\1")
    page, told = Pages(store).both("log", store="store")
    size = told["segments"][0]["bytes"]
    assert [row["gapBefore"] for row in told["segments"]] == [0, size, 0, 0]
    assert told["missing"] == size
    assert f"{size:,} bytes before offset {2 * size} are in no segment" in page
    assert page.count('<i class="gap"></i>') == 2  # one of them explains it
    wrong = told["segments"][1]
    assert wrong["damage"] == [{"offset": 2 * size, "text": f"offset {2 * size}: impossible record size"}]
    assert (wrong["firstRecord"], told["line"][1]["damaged"]) == (None, True)
    # What follows the damage is found from the end.
    whole = Pages(f"a={golden_store('basic-5.3').path}").json("log", store="a")["segments"][2]
    assert (wrong["lastRecord"], wrong["used"]) == (whole["lastRecord"], whole["used"])
    assert page.count("not looked at") >= 3
    monkeypatch.setattr(log_sample, "SEGMENTS", 2)
    pages = Pages(store)
    first = pages.both("log", store="store")[1]
    second = pages.both("log", store="store", from_=first["next"])[1]
    assert [row["firstOffset"] for row in first["segments"] + second["segments"]] == [0, 2 * size, 3 * size, 4 * size]
    assert (first["previous"], second["previous"], second["next"]) == (None, 0, None)
    assert [each["fill"] is None for each in second["line"]] == [True, True, False, False]
    inside = pages.json("log", store="store", from_=3 * size + 5)
    assert inside["segments"][0]["firstOffset"] == 3 * size


def test_damage_that_somebody_has_found(golden_store: Stores) -> None:
    store = golden_store("basic-5.3").path
    size = 1 << 20
    pages, known = Pages(f"a={store}"), list[tuple[int, int, str]]()
    pages.client.app.state.stores.known.append(lambda _: known)  # type: ignore[attr-defined]
    page, found = pages.both("log", store="a")
    assert (found["knownDamage"], "not looked at" in page, "none known" in page) == (0, True, False)
    # A check ends while nothing of the store changes: what is remembered does not hide it.
    known += [(size + 5, size + 15, "bad magic code"), (2 * size - 1, 2 * size + 1, "over an end")]
    known += [(3 * size + k, 3 * size + k + 1, "one") for k in range(8)]
    page, found = pages.both("log", store="a")
    told = [row["damage"] for row in found["segments"]]
    over = {"offset": 2 * size - 1, "text": f"offset {2 * size - 1}, 2 bytes: over an end"}
    assert told[:3] == [[], [{"offset": size + 5, "text": f"offset {size + 5}, 10 bytes: bad magic code"}, over], [over]]
    more = {"offset": None, "text": "and 3 more"}
    assert (len(told[3]), told[3][-1], told[4]) == (log_sample.DAMAGE_TOLD + 1, more, [])
    assert [each["damaged"] for each in found["line"]] == [False, True, True, True, False]
    assert (found["knownDamage"], "none known" in page, page.count("bad magic code")) == (10, True, 1)
    assert f'physical={size + 5}">offset {size + 5}, 10 bytes: bad magic code</a>' in page


@pytest.mark.usefixtures("inline_local")
def test_a_body_full_of_magic_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no record is not looked at one by one."""
    looked, message_at = list[int](), contents.message_at

    def counted(pages: Any, start: int, at: int, lead: int = 0) -> Any:
        looked.append(at)
        return message_at(pages, start, at, lead)

    magic = (0xDAA320A7).to_bytes(4, "big")
    messages = [Message("T", body=magic * size) for size in (40_000, *[9] * 70, 300_000)]
    store = write_store(tmp_path / "store", messages, 1 << 21)
    monkeypatch.setattr(contents, "message_at", counted)
    (row,) = Pages(store).json("log", store="store")["segments"]
    assert (row["lastRecord"], row["damage"]) == (records_of(store)[-1].phy_offset, [])
    looked.clear()
    assert Pages(store).json("disk", store="store")["topics"][0]["topic"] == "T"
    assert len(looked) < 1000


def test_a_segment_of_zeros(tmp_path: Path) -> None:
    """A broker makes the next segment ahead. Before one with records zeros are damage."""
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    for k in range(3):
        (store / "commitlog" / f"{k * 8192:020d}").write_bytes(bytes(8192))
    told = Pages(store).both("log", store="store")[1]
    assert [(row["records"], row["fill"], row["damage"]) for row in told["segments"]] == [(0, 0.0, [])] * 3
    (store / "commitlog" / f"{8192:020d}").write_bytes(b"\0" * 4 + b"\1" * 8188)
    told = Pages(store).both("log", store="store")[1]
    assert [bool(row["damage"]) for row in told["segments"]] == [True, True, False]


# ------------------------------------------------------------------------------------------------------------------------- disk


@pytest.mark.parametrize("name", GOLDEN)
def test_the_disk_is_what_lies_there(name: str, golden_store: Stores) -> None:
    store = golden_store(name).path
    page, told = Pages(f"a={store}").both("disk", store="a")
    every = [path for path in store.rglob("*") if path.is_file()]
    assert told["files"] == len(every) == sum(part["files"] for part in told["parts"])
    assert told["bytes"] == sum(path.stat().st_size for path in every) == sum(part["bytes"] for part in told["parts"])
    assert told["allocated"] == sum(min(path.stat().st_size, path.stat().st_blocks * 512) for path in every)
    parts = {part["part"]: part["bytes"] for part in told["parts"]}
    assert parts["consumequeue"] == sum(p.stat().st_size for p in (store / "consumequeue").rglob("*") if p.is_file())
    assert parts["commitlog"] == sum(p.stat().st_size for p in every if {"commitlog", "dledger-n0"} & set(p.parts))
    for row in told["topics"]:
        folder = store / "consumequeue" / row["topic"]
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else None
        assert row["queueBytes"] == size
        assert row["topic"] in page
    # Of a short log each record is counted; of a longer one the estimate is about right.
    real = Counter[str]()
    for record in records_of(store):
        real[record.topic] += record.size
    guessed = {row["topic"]: row["logBytes"] for row in told["topics"]}
    if told["sampleIsWhole"]:
        assert guessed == dict(real)
    else:
        assert abs(sum(guessed.values()) - real.total()) < 0.1 * real.total()
        assert all(0.6 * real[topic] < size < 1.6 * real[topic] for topic, size in guessed.items()), (guessed, real)


def test_a_file_with_holes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "commitlog").mkdir(parents=True)
    with open(store / "commitlog" / f"{0:020d}", "wb") as file:
        file.truncate(64 << 20)
    page, told = Pages(store).both("disk", store="store")
    assert (told["bytes"], told["parts"][0]["bytes"]) == (64 << 20, 64 << 20)
    assert told["allocated"] < 1 << 20
    assert "64.0 MiB, 0 bytes on disk" in page


@pytest.mark.usefixtures("inline_local")
def test_links_are_not_followed_out_of_a_store(tmp_path: Path) -> None:
    """A log may lie behind a link. A link of the queues' folder to somewhere else is left out, and the page says so."""
    store = write_store(tmp_path / "store", [Message("T")], 1 << 16)
    (tmp_path / "log").mkdir()
    (store / "commitlog").rename(tmp_path / "log" / "there")
    (store / "commitlog").symlink_to(tmp_path / "log" / "there")
    assert Pages(store).json("disk", store="store")["parts"][0]["bytes"] == 1 << 16
    assert Pages(store).json("disk", store="store")["whole"]
    (store / "consumequeue" / "x").symlink_to("/usr")
    page, told = Pages(store).both("disk", store="store")
    assert not told["whole"]
    assert "a link to a folder" in page
    assert told["files"] < 20


# ------------------------------------------------------------------------------------------------------------------------ rates


@pytest.mark.parametrize("name", ["basic-5.3", "trimmed-head", "rocksdb-5.5"])
def test_rates_are_those_of_the_records(name: str, golden_store: Stores) -> None:
    """Each message once; and at each time as many as were stored before it, but for one a queue."""
    store = golden_store(name).path
    page, told = Pages(f"a={store}").both("rates", store="a")
    # A prepared or rolled-back record has no unit.
    every = [record for record in records_of(store) if record.sys_flag & 0xC not in (0x4, 0xC)]
    assert told["messages"] == len(every) == sum(told["total"])
    assert len(told["total"]) == rates.BINS
    assert f"{told['messages']:,} messages" in page
    begin, width = min(r.store_time for r in every), told["binSeconds"] * 1000
    assert told["begin"] == show_time(begin)
    for topic in told["topics"]:
        times = [record.store_time for record in every if record.topic == topic["topic"]]
        queues = len({record.queue_id for record in every if record.topic == topic["topic"]})
        assert topic["messages"] == len(times) == sum(topic["bins"])
        for k, before in enumerate(itertools.accumulate(topic["bins"])):
            real = sum(time < begin + (k + 1) * width for time in times)
            assert abs(real - before) <= queues + 1, (topic["topic"], k)


@pytest.mark.usefixtures("inline_local")
def test_the_last_hours_and_one_topic(tmp_path: Path) -> None:
    hour = rates.HOUR
    messages = [Message("T" if k % 3 else "U", store_timestamp=EPOCH + k * hour // 10) for k in range(300)]
    pages = Pages(write_store(tmp_path / "store", messages, 1 << 16))
    told = pages.both("rates", store="store", hours=10)[1]
    assert 99 <= told["messages"] <= 102
    assert told["begin"] == show_time(EPOCH + 299 * hour // 10 + 1 - 10 * hour)
    one = pages.both("rates", store="store", topic="U")[1]
    assert (one["messages"], [row["topic"] for row in one["topics"]]) == (100, ["U"])
    pages.both("rates", 404, store="store", topic="no such topic")
    for hours in ("0", "-1", "x", str(overview.HOURS_MAX + 1)):
        pages.both("rates", 400, store="store", hours=hours)


def test_without_queues_the_log_is_sampled(golden_store: Stores, tmp_path: Path) -> None:
    """A store that has lost its queues is what such a page is for. Of a short log each record counts."""
    golden = golden_store("dledger-5.3").path
    shutil.copytree(golden / "dledger-n0", tmp_path / "store" / "dledger-n0")
    told = Pages(tmp_path / "store").both("rates", store="store")[1]
    real = Counter(record.topic for record in records_of(golden))
    assert (told["part"], told["sampled"], told["messages"]) == ("log", real.total(), real.total())
    assert {row["topic"]: row["messages"] for row in told["topics"]} == dict(real)


def test_rates_from_rocksdb_are_those_from_files(golden_store: Stores, tmp_path: Path) -> None:
    golden = golden_store("rocksdb-5.5").path
    folders = [path for path in (golden / "consumequeue").iterdir() if path.is_dir()]
    for name, left_out in (("files", "[!o]*"), ("database", "orders-*")):
        shutil.copytree(golden, tmp_path / name, ignore=shutil.ignore_patterns("x"))
        for path in (tmp_path / name / "consumequeue").glob(left_out):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    pages = Pages(f"a={tmp_path / 'files'}", f"b={tmp_path / 'database'}")
    assert len(folders) == 2
    a, b = (pages.both("rates", store=store)[1] for store in "ab")
    for told in (a, b):
        del told["store"], told["lookedAt"], told["command"]
    assert a == b
    assert a["part"] == "queues"
    parts = {part["part"] for part in pages.json("disk", store="b")["parts"]}
    assert "RocksDB" in parts
    assert "RocksDB" not in {part["part"] for part in pages.json("disk", store="a")["parts"]}


def test_messages_are_spread_over_a_time() -> None:
    bins = rates.binned([rates.RateStretch(0, 480, 48.0)], 0, 480)
    assert bins == [1.0] * rates.BINS
    # A part lies before, a part behind; a moment is in one bin; what lies elsewhere is left out.
    assert sum(rates.binned([rates.RateStretch(-480, 960, 30.0)], 0, 480)) == pytest.approx(10.0)
    moment = rates.binned([rates.RateStretch(479, 479, 2.0), rates.RateStretch(480, 480, 5.0)], 0, 480)
    assert (moment[-1], sum(moment)) == (2.0, 2.0)
    assert rates.whole_numbers([0.4, 0.4, 0.4, 1.0]) == [0, 1, 0, 1]


# -------------------------------------------------------------------------------------------------------------------- consumers


def with_offsets(golden: Path, store: Path, offsets: dict[str, dict[str, int]]) -> Path:
    shutil.copytree(golden, store)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    return store


def test_consumers_are_what_the_command_says(golden_store: Stores, tmp_path: Path) -> None:
    golden = golden_store("basic-5.3").path
    offsets = {"TopicA@readers": {"0": 3, "1": 10**6}, "TopicB@readers": {"0": 0}, "Gone@old": {"0": 7}}
    a = with_offsets(golden, tmp_path / "a", offsets)
    pages = Pages(f"a={a}", f"b={with_offsets(golden, tmp_path / 'b', {'TopicA@others': {'2': 1}})}", f"c={golden}")
    page, told = pages.both("consumers")
    expected = [{"store": name, **row.to_dict()} for name in "ab" for row in rr.consumers(tmp_path / name)]
    assert told["groups"] == expected
    assert [each["error"] is None for each in told["stores"]] == [True, True, False]
    assert told["stores"][0]["command"] == f"rmq-reindex consumers {a}"
    assert told["stores"][0]["left"] == sum(row.left or 0 for row in rr.consumers(a))
    assert "/queue?store=a&topic=TopicA&queue=0&from=3" in unescape(page)
    assert '/queue?store=a&topic=TopicA&queue=1"' in unescape(page), "of a group that is behind the end"
    assert "from=1000000" not in page
    assert all(text in unescape(page) for text in ("behind the end", "no such queue"))
    one = pages.both("consumers", store="a", group="readers", topic="TopicA")[1]
    assert one["groups"] == [{"store": "a", **row.to_dict()} for row in rr.consumers(a, group="readers", topic="TopicA")]
    assert one["stores"][0]["command"] == f"rmq-reindex consumers {a} --group readers --topic TopicA"


def test_very_many_queues_of_groups(golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page has so many; of more a group is to be chosen first."""
    offsets = {f"TopicA@group-{k}": {"0": 1} for k in range(4)}
    store = with_offsets(golden_store("basic-5.3").path, tmp_path / "a", offsets)
    monkeypatch.setattr(overview, "ROWS", 5)
    first = Pages(store).both("consumers")[1]
    rest = [Pages(store).both("consumers", from_=at)[1] for at in range(5, first["count"], 5)]
    rows = [row for page in (first, *rest) for row in page["groups"]]
    assert [(row["group"], row["queueId"]) for row in rows] == [(row.group, row.queue_id) for row in rr.consumers(store)]
    assert (rest[-1]["next"], rest[0]["previous"]) == (None, 0)
    monkeypatch.setattr(overview, "PLACES_MAX", 3)
    page, told = Pages(store).both("consumers")
    assert (told["groups"], told["stores"][0]["tooMany"][0]) == ([], {"group": "group-0", "topic": None, "queues": 1})
    assert "/consumers?store=a&group=group-3" in unescape(page)
    assert Pages(store).both("consumers", store="a", group="group-3")[1]["groups"]


def test_very_many_groups_and_queues_of_one(golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them can be come to: groups by pages, and the queues of a group by its topics."""
    many: dict[str, dict[str, int]] = {f"Topic{k}@large": {"0": 1, "1": 1} for k in range(4)}
    many |= {"Wide@large": {f"{k}": 1 for k in range(9)}} | {f"TopicA@small-{k}": {"0": 1} for k in range(4)}
    store = with_offsets(golden_store("basic-5.3").path, tmp_path / "a", many)
    monkeypatch.setattr(overview, "PLACES_MAX", 3)
    monkeypatch.setattr(overview, "NAMES", 2)
    pages, names = Pages(store), list[str]()
    at: int | None = 0
    while at is not None:
        page, told = pages.both("consumers", store="a", from_=at)
        (one,) = told["stores"]
        names += [row["group"] for row in one["tooMany"]]
        at = one["next"]
        assert at is None or f"/consumers?store=a&from={at}" in unescape(page)
    assert one["tooManyCount"] == len(names)
    assert {"large", "small-0", "small-1", "small-2", "small-3"} <= set(names)
    page, told = pages.both("consumers", store="a", group="large")
    assert told["stores"][0]["tooMany"][0] == {"group": "large", "topic": "Topic0", "queues": 2}
    assert "/consumers?store=a&group=large&topic=Topic1" in unescape(page)
    assert len(pages.both("consumers", store="a", group="large", topic="Topic1")[1]["groups"]) == 2
    page, told = pages.both("consumers", store="a", group="large", topic="Wide")
    assert (told["groups"], told["stores"][0]["tooManyCount"]) == ([], 1)
    assert "run the command" in page
    assert "Wide</a>" not in page


# ------------------------------------------------------------------------------------------------------------------- all stores


def test_the_first_page_does_not_wait(golden_store: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that takes its time is said to be not looked at yet; a later page has what it says."""
    store, other = golden_store("basic-5.3").path, golden_store("trimmed-head").path
    pages, goes_on, info = Pages(f"a={store}", f"b={other}", "c=/no/such/store"), threading.Event(), facts.info

    def slow(asked: Any) -> dict[str, Any]:
        if asked.name == "a":
            goes_on.wait(60)
        return info(asked)

    monkeypatch.setattr(facts, "info", slow)
    page, told = pages.both("")
    assert (told["stores"][0]["info"], told["stores"][0]["error"]) == (None, None)
    assert "not looked at yet" in page
    goes_on.set()
    until = time.monotonic() + 60
    while (told := pages.json(""))["stores"][0]["info"] is None:
        assert time.monotonic() < until
    assert told["stores"][0]["info"]["log"] == rr.info(store).log
    while (told := pages.json(""))["stores"][1]["info"] is None:
        assert time.monotonic() < until
    while (told := pages.json(""))["stores"][2]["error"] is None:
        assert time.monotonic() < until
    assert "/no/such/store" in told["stores"][2]["error"]


# ---------------------------------------------------------------------------------------------------------------- broken stores


@pytest.mark.parametrize("page", ["log", "disk", "rates"])
def test_an_empty_store(page: str, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    pages = Pages(tmp_path / "store")
    assert pages.both(page, store="store")[1]["lookedAt"]
    pages.both(page, 404, store="x")
    assert pages.both("consumers")[1]["stores"][0]["error"]


def test_very_many_files(golden_store: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part is never shown as the whole."""
    monkeypatch.setattr(remembered, "FILES_MAX", 10)
    page, told = Pages(f"a={golden_store('basic-5.3').path}").both("disk", store="a")
    assert (told["whole"], told["files"] <= 10) == (False, True)
    assert "some are left out" in page


def test_what_system_topics_mean_stands_in_their_queues(golden_store: Stores) -> None:
    """As the page of the message says it."""
    pages, told = Pages(f"a={golden_store('transactions-delay').path}"), Counter[str]()
    for topic in pages.json("topics", store="a")["topics"]:
        for row in pages.json("queue", store="a", topic=topic["topic"], queue=0)["units"][:3] if topic["queues"] else ():
            if row["what"] != "message":
                continue
            message = pages.json("message", store="a", physical=row["physicalOffset"])["message"]
            told[message["meaning"]["kind"]] += 1
            assert row["text"].endswith(message["meaning"]["text"] if topic["kind"] != "message" else ""), row
    assert {"half", "op", "scheduled", "retry", "message"} <= told.keys()


def test_plots_say_what_they_show() -> None:
    drawn = templates.columns([0, 1, 4], 'a "b" <c>\u202e')
    assert drawn.count("<i ") == 3
    assert 'class="some share-50"' in drawn
    assert "&quot;b&quot; &lt;c&gt;\\u202e" in drawn
    assert templates.share_class(1, 10**9) == "share-1"
    assert [templates.seconds_text(seconds) for seconds in (0.0208, 90, 150, 7200, 200_000)] == [
        "0.0208 seconds", "90 seconds", "2.5 minutes", "2.0 hours", "2.3 days",
    ]  # fmt: skip
