"""Files of findings in ``browse``: what they say of a store, with links to the places that they speak of."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import opened
from rocketmq_reindex.jobs.browsing.opened import known_damage, links
from rocketmq_reindex.jobs.tracing.timeline import TracedStore
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Html, Pages, check
from tests.tools.derived_store import write_store
from tests.tools.encode import Message

Stores = Callable[[str], GoldenStore]
A = (TracedStore("a", "/a"),)
ONE = {"kind": "x", "part": "", "text": "", "mend": "", "count": 1, "examples": []}
EMPTY: dict[str, Any] = {
    "version": "0", "command": "verify", "settings": {}, "records": 0, "damage": [], "notes": [], "findings": [], "error": None,
    "seconds": {}, "sizes": {}, "queue_list": [], "index_list": [], "mend": None, "units_there": 0, "items_there": 0,
    "units": 0, "items": 0,
}  # fmt: skip
SCRIPT = "\"'><script>alert(1)</script>{{7*7}}\u202e\x1b[31m"

pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def summary(damaged: Path, tmp_path: Path) -> dict[str, Any]:
    """What a verify of it says, which verify.json has."""
    rr.verify(damaged, engine="local", report=str(tmp_path / "verify.json"))
    return dict(json.loads((tmp_path / "verify.json").read_text()))


def write(tmp_path: Path, summary: dict[str, Any]) -> Path:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(summary))
    return path


def test_a_verify(damaged: Path, summary: dict[str, Any], tmp_path: Path) -> None:
    pages = Pages(f"a={damaged}", findings=[tmp_path / "verify.json"])
    assert pages.both("findings")[1] == {
        "files": [
            {"file": 0, "path": str(tmp_path / "verify.json"), "kind": "verify", "store": "a", "good": False,
             "verdict": f"{len(summary['findings'])} kinds of differences",
             "command": f"rmq-reindex report {tmp_path}/verify.json"}
        ]
    }  # fmt: skip
    page, told = pages.both("findings", file=0)
    assert (told["kind"], told["store"], told["command"]) == ("verify", "a", f"rmq-reindex report {tmp_path}/verify.json")
    found = told["found"]
    for each in found["findings"]:
        assert each.pop("advice") in (None, each["mend"])
        for example in each["examples"]:
            assert example["links"], example
            for link in example.pop("links"):
                assert pages.client.get(link["href"]).status_code == 200
                assert link["href"] in unescape(page)
    assert found["findings"] == summary["findings"]
    assert [step["command"] for step in found["steps"]] == [summary["mend"], *(way["command"] for way in summary["other_ways"])]
    assert found["notes"] == summary["notes"]
    (damage,) = summary["damage"]
    stretch = (damage["offset"], damage["offset"] + damage["length"], damage["reason"])
    assert known_damage(pages.stores, pages.stores.by_name["a"]) == [stretch]
    for each in summary["findings"]:
        assert each["text"] in unescape(page)
    assert 'href="/findings"' in pages.html("store", store="a")
    assert 'href="/findings"' not in Pages(f"a={damaged}").html("store", store="a")
    pages.both("findings", 404, file=1)
    assert "None" in Pages(f"a={damaged}").html("findings")


def test_what_builds_and_repairs_write(damaged: Path, tmp_path: Path) -> None:
    built, repaired = str(tmp_path / "built"), str(tmp_path / "repaired")
    rr.build(damaged, out=built, engine="local", on_damage="salvage")
    rr.repair(damaged, out=repaired, engine="local")
    quarantine = tmp_path / "repaired" / "quarantine"
    pages = Pages(damaged, findings=[built, f"{built}/reindex.json", repaired, quarantine])
    rows = pages.both("findings")[1]["files"]
    assert [(row["kind"], row["good"]) for row in rows] == [
        ("build", False),
        ("build", False),
        ("repair", True),
        ("quarantine", True),
    ]
    for row in rows:
        page, told = pages.both("findings", file=row["file"])
        damage = told["found"]["damage"]
        assert [(each["offset"], each["length"]) for each in damage] == [(1782, 1863)]
        assert [link["href"] for link in damage[0]["links"]] == ["/message?store=damaged&physical=1782"]
        assert "1,863" in page
    assert told["found"]["verdict"] == "a repair replaced 1 stretch of the log"
    listing = json.loads((quarantine / f"{1782:020d}.json").read_text())
    assert told["found"]["facts"] == [{"name": "records still to be read in them", "value": str(len(listing["records"]))}]
    assert damage[0]["reason"] == "1 damaged place, 1 record still to be read: the old bytes are kept"
    reasons = {why for _, _, why in known_damage(pages.stores, pages.stores.by_name["damaged"])}
    assert len(reasons) == 2
    assert pages.json("findings", file=2)["command"] == f"rmq-reindex repair --explain {repaired}"


def test_whose_findings_they_are(damaged: Path, summary: dict[str, Any], tmp_path: Path, golden_store: Stores) -> None:
    """They name their store, or the user names it: nothing is guessed."""
    sound, path = golden_store("basic-5.3").path, write(tmp_path, summary)
    pages = Pages(f"a={sound}", f"b={damaged}", findings=[path, f"a={path}"])
    assert [row["store"] for row in pages.json("findings")["files"]] == ["b", "a"]
    with pytest.raises(rr.InputError, match="which is no store here: say which one it is by NAME="):
        Pages(f"a={sound}", findings=[path])
    with pytest.raises(rr.InputError, match=r"x=.*: is not there, and x is the name of no store here \(a, b\)$"):
        Pages(f"a={sound}", f"b={damaged}", findings=[f"x={path}"])
    rr.build(damaged, out=str(tmp_path / "built"), engine="local", on_damage="salvage")
    with pytest.raises(rr.InputError, match="does not name its store: say which one"):
        Pages(f"a={sound}", f"b={damaged}", findings=[tmp_path / "built"])
    both = tmp_path / "both.json"
    rr.verify(damaged, against=str(sound), engine="local", report=str(both))
    found = Pages(f"a={sound}", f"b={damaged}", findings=[both]).json("findings", file=0)
    (only,) = found["found"]["findings"]
    assert [(link["store"], link["href"][-13:]) for link in only["examples"][0]["links"]] == [
        ("b", "physical=1782"), ("a", "physical=1782")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"findings": [1]}, "its findings are not what verify writes"),
        ({"findings": [{"kind": "x"}]}, "its findings are not what verify writes"),
        ({"findings": [ONE | {"count": "many"}]}, "not what verify"),
        ({"findings": [ONE | {"examples": [{"where": 1}]}]}, "not what verify"),
        ({"findings": {"a": 1}}, "not what verify"),
        ({"damage": [{"offset": "x"}]}, "is neither a build's reindex.json nor what verify --report writes"),
        ({"damage": [{"offset": float("inf"), "length": 1, "reason": ""}]}, "is neither a build's reindex.json"),
        ({"findings": [ONE | {"count": float("inf")}]}, "not what verify"),
        ({"damage": 1}, "is neither a build's reindex.json"),
        ({"command": "build"}, "is neither a build's reindex.json"),
        ({"records": "9" * 5000}, "is neither a build's reindex.json"),
        ({"store": ["x"]}, "which is no store here"),
    ],
)  # fmt: skip
def test_what_has_no_findings(change: dict[str, Any], told: str, damaged: Path, tmp_path: Path) -> None:
    summary = EMPTY | {"store": str(damaged)}
    assert Pages(damaged, findings=[write(tmp_path, summary)]).json("findings", file=0)["found"]["good"]
    with pytest.raises(rr.InputError, match=told):
        Pages(damaged, findings=[write(tmp_path, summary | change)])


def test_files_and_folders_that_are_none(damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "quarantine"
    kept.mkdir()
    (kept / f"{5:020d}.json").write_text('{"offset": 5}')
    with pytest.raises(rr.InputError, match=r"is no listing of a quarantine .*it has no 'length'"):
        Pages(damaged, findings=[kept])
    (kept / f"{5:020d}.json").write_text('{"offset": 1e999, "length": 1}')
    with pytest.raises(rr.InputError, match="is no listing of a quarantine"):
        Pages(damaged, findings=[kept])
    (kept / f"{5:020d}.json").write_text("[" * 100_000)
    with pytest.raises(rr.InputError, match="is no listing of a quarantine"):
        Pages(damaged, findings=[kept])
    with pytest.raises(rr.InputError, match=r"reindex\.json: is not there"):
        Pages(damaged, findings=[damaged])
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(rr.InputError, match="pipe: is neither a file nor a folder"):
        Pages(damaged, findings=[tmp_path / "pipe"])
    path = write(tmp_path, {"command": "verify", "x": "x" * 5000})
    monkeypatch.setattr(opened, "FINDINGS_MAX", 1000)
    with pytest.raises(rr.InputError, match="has 5,"):
        Pages(damaged, findings=[path])


def test_a_file_that_somebody_made_up(damaged: Path, summary: dict[str, Any], tmp_path: Path) -> None:
    """Its names are text, and its numbers lead nowhere else."""
    example = {"where": SCRIPT, "at": 10**30, "text": SCRIPT}
    places = [
        "javascript:alert(1)", "//evil.example/x", "consumequeue/../../etc/0", "consumequeue/T/-1", "index/../../x",
        "commitlog", "consumequeue/a\\x/0", "consumequeue/\\ud800/0/x", "index", "",
    ]  # fmt: skip
    finding = {
        "kind": SCRIPT, "part": SCRIPT, "text": SCRIPT, "mend": SCRIPT, "count": 10**40,
        "examples": [example, *({"where": place, "at": -5, "text": "phyOffset 99999999999999999999"} for place in places)],
    }  # fmt: skip
    summary |= {
        "findings": [finding] * 500, "notes": [SCRIPT] * 3, "mend": SCRIPT, "not_mended": [SCRIPT], "error": SCRIPT,
        "damage": [{"segment": SCRIPT, "offset": -(10**30), "length": 10**30, "reason": SCRIPT}] * 500,
    }  # fmt: skip
    pages = Pages(f"a={damaged}", findings=[f"a={write(tmp_path, summary)}"])
    page, told = pages.both("findings", file=0)
    assert len(told["found"]["findings"]) == 200
    assert "<script>" not in page
    assert "{{7*7}}" in page
    shown = check(page)
    assert {link.partition("?")[0] for link in shown.links} <= {
        "#main", "/", "/store", "/topics", "/log", "/disk", "/rates", "/consumers", "/search", "/scan", "/health", "/findings"
    }  # fmt: skip
    assert page.count("-1000000000000000000000000000000") == opened.DAMAGE_SHOWN
    # A page has its own stretches alone, as JSON, too: a site has a file of each.
    told = [pages.json("findings", file=0, **({"from": first} if first else {}))["found"] for first in (0, 400)]
    assert [(len(each["damage"]), each["damagedPlaces"]) for each in told] == [(opened.DAMAGE_SHOWN, 500), (100, 500)]
    last = pages.both("findings", file=0, from_=400)[0]
    assert last.count("-1000000000000000000000000000000") == 100
    pages.both("findings", file=0, from_=10**9)
    pages.both("findings")


@pytest.mark.parametrize(
    ("kind", "where", "at", "text", "expected"),
    [
        ("log-damage", "commitlog/00000000000000000000", 7, "", ["/message?store=a&physical=7"]),
        ("against-log-differs", "commitlog", 9, "offset 7: record of T/0", ["/message?store=a&physical=7"]),
        ("queue-unit-tags", "consumequeue/T/3/00000000000000000000", 5, "", ["/queue?store=a&topic=T&queue=3&from=5"]),
        ("queue-unit-extra", "rocksdb/T/3", 5, "x phy_offset 8, y",
         ["/queue?store=a&topic=T&queue=3&from=5", "/message?store=a&physical=8"]),
        ("queue-file-size", "consumequeue/T/3/x", 4000, "", ["/queue?store=a&topic=T&queue=3"]),
        ("queue-unit-tags", "consumequeue/%LMQ%a&b=c/3", 0, "", ["/queue?store=a&topic=%25LMQ%25a%26b%3Dc&queue=3&from=0"]),
        ("queue-unit-tags", "consumequeue/a\\u202e\\xe9/3", 0, "", ["/queue?store=a&topic=a%E2%80%AE%C3%A9&queue=3&from=0"]),
        ("queue-unit-tags", "consumequeue/a\\udcff/3", 0, "", []),
        ("queue-unit-tags", "consumequeue/../3", 0, "", []),
        ("queue-unit-tags", "consumequeue/T/x", 0, "", []),
        ("index-item-missing", "index", 12, "", ["/message?store=a&physical=12"]),
        ("index-item-hash", "index/20261121015957822", 3, "item 3 for phyOffset 8",
         ["/items?store=a&file=20261121015957822&from=3", "/message?store=a&physical=8"]),
        ("against-index-item", "index/20261121015957822 and 20261121015957823", 3, "",
         ["/items?store=a&file=20261121015957822&from=3"]),
        ("index-file-name", "index/x", 0, "", []),
        ("checkpoint-stale", "checkpoint", 8, "", ["/store?store=a"]),
        ("abort-file", "abort", 0, "", ["/store?store=a"]),
        ("epoch-file", "epochFileCheckpoint", 0, "", []),
    ],
)  # fmt: skip
def test_places(kind: str, where: str, at: int, text: str, expected: list[str]) -> None:
    assert [link["href"] for link in links(A, kind, where, at, text)] == expected


def test_the_items_of_an_index_file(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("basic-5.3").path
    file = max((store / "index").iterdir())
    rows = [dict(row) for row in rr.inspect(str(file), records=True).records]
    pages = Pages(f"a={store}")
    page, found = pages.both("items", store="a", file=file.name)
    assert found["items"] == rows[:50]
    assert (found["count"], found["previous"], found["next"]) == (len(rows), None, 51)
    assert found["command"] == f"rmq-reindex inspect {file} --records --json"
    assert f'href="/message?store=a&amp;physical={rows[0]["physicalOffset"]}"' in page
    last = pages.both("items", store="a", file=file.name, from_=len(rows) - 9)[1]
    assert (last["items"][:10], last["next"]) == (rows[-10:], None)
    for wrong in ("../checkpoint", "x", "9" * 30, "20990101000000000"):
        assert "no such IndexFile" in pages.both("items", 404, store="a", file=wrong)[1]["error"]
    store = write_store(tmp_path / "store", [Message("T")], 1 << 16)
    shutil.rmtree(store / "index")
    (store / "index").mkdir()
    (store / "index" / "20261121015957822").write_bytes(b"\xff" * 999)
    assert "not known" in Pages(store).both("items", 422, store="store", file="20261121015957822")[1]["error"]


def test_items_of_messages_that_no_page_shows(tmp_path: Path) -> None:
    """With pseudonyms their keys are none the less no text of an item, nor is their hash, nor the name of the file."""
    messages = [Message("T", properties={"KEYS": f"order-{k:03d}", "UNIQ_KEY": f"unique-{k:03d}"}) for k in range(40)]
    store = write_store(tmp_path / "store", messages, 1 << 16)
    (file,) = (store / "index").iterdir()
    example = {"where": f"index/{file.name}", "at": 60, "text": "item 60: hash -4711001 for phyOffset 0"}
    path = tmp_path / "customer-acme.json"
    damage = [{"offset": 0, "length": 9, "reason": "bad magic code"}]
    found = {"store": str(store), "findings": [ONE | {"examples": [example]}], "damage": damage}
    path.write_text(json.dumps(EMPTY | found))
    for name in ("plain", "site"):
        rr.browse(store, findings=[str(path)], export_site=tmp_path / name, redact=name == "site")
    items = tmp_path / "site" / "items-0001.json"
    rows = json.loads(items.read_bytes())["items"]
    assert {row["of"] for row in rows if row["of"]} == {"key", "unique key"}
    assert len({row["text"] for row in rows if row["of"]}) == sum(bool(row["of"]) for row in rows) > 20
    for page in (tmp_path / "site").iterdir():
        text = page.read_text()
        assert not [told for told in ("order-0", "unique-0", "4711001", "customer-acme") if told in text], page.name
        if page.suffix == ".html":
            assert Html(text).links == Html((tmp_path / "plain" / page.name).read_text()).links, page.name
    shown = (tmp_path / "site" / "items-0001.html").read_text()
    assert all(row["text"] in shown for row in rows if row["of"])
    told = json.loads((tmp_path / "site" / "findings-0002.json").read_bytes())["found"]
    assert (told["verdict"], told["damage"][0]["reason"]) == ("1 kind of difference", "bad magic code")
    assert told["findings"][0]["examples"][0]["where"] == example["where"]
