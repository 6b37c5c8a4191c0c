"""The pages of ``browse`` as files: whole or not there, linked among themselves alone, and with pseudonyms where asked."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import pages as browsing_pages, redaction, site
from rocketmq_reindex.jobs.browsing.options import browse_settings
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Html, Pages
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message
from tests.unit.jobs.browsing.test_hostile_pages import store as hostile_store

Stores = Callable[[str], GoldenStore]
hostile = hostile_store
NAME = re.compile(r"(?:index|[a-z-]+-\d{4})\.(?:html|json)|style\.css|README\.txt")
PSEUDONYM = re.compile(r"r-[0-9a-f]{10}")
BODY = {"card": "4000-1234-secret", "half": "\ud800-of-a-secret", "lines": ["first \u00e9 line <b>", "second\nline"], "n": 17}
UNIQUE = "AC11000200002A9F00000000DEADBEEF"
KEYS = ("order-4711-x", "k\u00fcrzel&co", "a1")


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A small store in a folder with a name of its own, whose every value is known here."""
    place = tmp_path / "customer-acme" / "broker-7"
    place.mkdir(parents=True)
    messages = [
        Message("Orders", body=json.dumps(BODY).encode(), store_timestamp=EPOCH, properties={
            "KEYS": " ".join(KEYS), "TAGS": "paid", "UNIQ_KEY": UNIQUE, "password": "hunter2hunter2",
        }),
        Message("Orders", body=b"plain secret text\nof two lines", store_timestamp=EPOCH + 1, properties={"KEYS": KEYS[0]}),
        Message("%RETRY%billing", body=b"\x00\x01binary", store_timestamp=EPOCH + 2, properties={"KEYS": KEYS[0]}),
    ]  # fmt: skip
    return write_store(place, messages, 1 << 16)


def files_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}


def check(folder: Path) -> dict[str, Html]:
    """Each file has a name of ours; each link leads to a file of the folder; nothing is loaded from elsewhere, or runs."""
    names = set(os.listdir(folder))
    assert all(NAME.fullmatch(name) for name in names)
    pages = {}
    for name in names:
        if not name.endswith(".html"):
            continue
        text = (folder / name).read_text(encoding="utf-8")
        page = pages[name] = Html(text)
        assert {tag for tag, _ in page.seen}.isdisjoint({"script", "style", "iframe", "img", "object", "base", "form", "input"})
        assert not [key for _, given in page.seen for key in given if key.startswith("on") or key in ("style", "src", "action")]
        assert {link for link in page.links if link not in names} <= {"#main"}
        assert [given["href"] for given in page.all("link")] == ["style.css"]
        assert [given["content"] for given in page.all("meta") if "http-equiv" in given] == [site.POLICY]
        assert f"{name.removesuffix('.html')}.json" in page.links
        json.loads((folder / f"{name.removesuffix('.html')}.json").read_bytes())
    reached, left = {"index.html"}, ["index.html"]
    while left:
        new = {link for link in pages[left.pop()].links if link.endswith(".html")} - reached
        reached |= new
        left += new
    assert reached == pages.keys(), "a page to which nothing leads"
    return pages


def test_every_route_has_a_rule(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    pages = browsing_pages.StorePages(browse_settings({"stores": [str(tmp_path / "store")]}))
    paths = {route.path for route in pages.routes() if not route.path.endswith(".json")}
    assert paths <= site.RULES.keys(), "name them in site.RULES"
    assert all(rule.most or rule.without for rule in site.RULES.values())


def test_the_bounds_are_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "reference" / "browse.md").read_text(encoding="utf-8")
    rows = [
        row for row in text.partition("## Pages as files")[2].partition("## JSON")[0].splitlines() if row.startswith("| `/")
    ]
    for path, rule in site.RULES.items():
        if path not in ("/", "/style.css"):
            (row,) = [row for row in rows if f"`{path}`" in row.split("|")[1]]
            assert re.search(rf"\b{rule.most}\b" if rule.most else r"\| none", row), path
    assert f"at most {site.BODY_MAX:,} characters" in text


def test_two_golden_stores(golden_store: Stores, tmp_path: Path) -> None:
    """Pages have the facts that the running pages have, and the links that lead to what is written."""
    stores = [f"a={golden_store('transactions-delay').path}", f"b={golden_store('extended-5.5').path}"]
    found = rr.browse(stores, export_site=tmp_path / "site")
    assert (found.exit_status, found.stores, found.warnings, found.url) == (0, ["a", "b"], [], "")
    pages, running = check(tmp_path / "site"), Pages(*stores)
    assert found.pages == len(pages)
    # The running page does not wait for what info says, and tells when it looked.
    index_facts = json.loads((tmp_path / "site" / "index.json").read_bytes())
    assert [each["info"] for each in index_facts["stores"]] == [running.json("store", store=name)["info"] for name in "ab"]
    assert [each["lookedAt"] for each in index_facts["stores"]] == [None, None]
    topics = json.loads((tmp_path / "site" / "topics-0001.json").read_bytes())
    assert topics == running.json("topics", store="a")
    told = [json.loads(path.read_bytes()) for path in sorted((tmp_path / "site").glob("queue-*.json"))]
    assert told[0] == running.json("queue", store="a", topic=told[0]["topic"], queue=told[0]["queue"])
    assert {(each["store"], each["topic"], each["queue"]) for each in told} >= {
        ("a", row["topic"], 0) for row in topics["topics"] if row["queues"]
    }
    messages = [json.loads(path.read_bytes()) for path in (tmp_path / "site").glob("message-*.json")]
    places = [(each["store"], each["message"]["physicalOffset"]) for each in messages]
    assert len(set(places)) == len(places) > 100, "a message is there twice"
    for each in messages[::50]:
        given = {"store": each["store"], "physical": each["message"]["physicalOffset"]}
        expected = running.json("message", **given)["message"]
        assert {name: each["message"][name] for name in ("msgId", "keys", "properties")} == {
            name: expected[name] for name in ("msgId", "keys", "properties")
        }
    index = unescape((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    for line in (tmp_path / "site" / "README.txt").read_text(encoding="utf-8").splitlines():
        assert line in index
    assert re.search(r"Left out: [\d,]+ addresses of /body: a whole body is no part of it\.", index)
    again = rr.browse(stores, export_site=tmp_path / "again")
    first, second = files_of(tmp_path / "site"), files_of(tmp_path / "again")
    # What files take on a disk is not in them: a file system in memory takes more once a hole of a file was mapped.
    for disk in ("disk-0001", "disk-0002"):
        once, twice = (json.loads(each.pop(f"{disk}.json")) for each in (first, second))
        assert [part["bytes"] for part in once["parts"]] == [part["bytes"] for part in twice["parts"]]
        assert len(first.pop(f"{disk}.html")) > 0 < len(second.pop(f"{disk}.html"))
    assert first == second, "the same stores give the same bytes"
    assert again.pages == found.pages


@pytest.mark.usefixtures("inline_local")
def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each queue and topic so many, and of a body its beginning; the first page says what is left out."""
    monkeypatch.setitem(site.RULES, "/topic", site.SiteRule(2, 1, ("store", "topic")))
    monkeypatch.setitem(site.RULES, "/message", site.SiteRule(7, 3, ("store", "topic", "queue")))
    messages = [Message(f"T{k % 3}", body=b"x" * 9000 if k < 9 else b"{}", store_timestamp=EPOCH + k) for k in range(60)]
    rr.browse(write_store(tmp_path / "store", messages, 1 << 20), export_site=tmp_path / "site")
    pages = check(tmp_path / "site")
    assert len([name for name in pages if name.startswith("topic-")]) == 2
    told = [json.loads(path.read_bytes())["message"] for path in (tmp_path / "site").glob("message-*.json")]
    assert len(told) == 7
    assert max(sum(each["topic"] == f"T{k}" for each in told) for k in range(3)) <= 6, "3 by the queue, and 3 by the log"
    bodies = [each["body"] for each in told if each["bodyLength"] == 9000]
    assert bodies
    assert set(bodies) == {"x" * site.BODY_MAX + "... (9,000 characters)"}
    assert all(b"x" * (site.BODY_MAX + 1) not in data for data in files_of(tmp_path / "site").values())
    text = (tmp_path / "site" / "README.txt").read_text(encoding="utf-8")
    assert "Left out: 1 address of /topic: at most 2 are written, 1 for each store, topic." in text


@pytest.mark.usefixtures("inline_local")
def test_a_hostile_store(hostile: Path, tmp_path: Path) -> None:
    """Its names are text in pages, and no names of files; what cannot be made is told, and the rest is there."""
    for redact in (False, True):
        folder = tmp_path / f"site-{redact}"
        found = rr.browse(f"<i>\u202e={hostile}", export_site=folder, redact=redact)
        assert found.exit_status == (3 if found.warnings else 0)
        check(folder)
        text = (folder / "README.txt").read_text(encoding="utf-8")
        assert text.count("Not made: ") == len(found.warnings)
        assert text.replace("\n", "").isprintable()


@pytest.mark.usefixtures("inline_local")
def test_a_page_that_the_store_has_no_answer_for(tmp_path: Path) -> None:
    """A store that breaks while it is shown: status 3, and index and warnings name the page."""
    store = write_store(tmp_path / "store", [Message("T"), Message("U")], 1 << 16)
    (queue,) = (store / "consumequeue" / "T" / "0").iterdir()
    queue.unlink()
    queue.mkdir()
    found = rr.browse(store, export_site=tmp_path / "site")
    assert found.exit_status == 3
    assert found.error is None
    pages = check(tmp_path / "site")
    index = unescape((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    for warning in found.warnings:
        assert f"Not made: {warning}" in index
    assert any("topic=T" in warning for warning in found.warnings)
    assert "index.html" in pages


def test_an_empty_store(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "site").mkdir()
    found = rr.browse(tmp_path / "store", export_site=tmp_path / "site", redact=True)
    assert (found.exit_status, found.redacted) == (0, True)
    assert {"index.html", "store-0001.html", "topics-0001.html"} <= check(tmp_path / "site").keys()


def secrets_of(private: Path) -> Iterator[str]:
    yield from KEYS[:2]
    yield from (UNIQUE, "hunter2hunter2", "4000-1234-secret", "plain secret text", "of two lines")
    yield from (str(private), str(private.parent), "customer-acme")
    for row in rr.query(store=private, topic="Orders", queue=0, offset=0, max=9):
        yield from (row["msgId"], row["storeHost"].partition(":")[0], row["bornHost"].partition(":")[0])


def forms_of(value: str) -> set[bytes]:
    escaped = value.encode("unicode_escape").decode()
    return {
        form.encode()
        for form in (
            value,
            json.dumps(value)[1:-1],
            escaped,
            value.replace("&", "&amp;"),
            value.encode().hex(),
            value.encode().hex(" "),
        )
    }


@pytest.mark.usefixtures("inline_local")
def test_redaction_leaves_nothing(private: Path, tmp_path: Path) -> None:
    """No value is in any byte, in any form; the same value has one pseudonym, and the next site has others."""
    plain, redacted, again = (tmp_path / name for name in ("plain", "redacted", "again"))
    rr.browse(private, export_site=plain)
    for folder in (redacted, again):
        assert rr.browse(private, export_site=folder, redact=True).redacted
    before, after = b"".join(files_of(plain).values()), files_of(redacted)
    for value in set(secrets_of(private)):
        assert any(form in before for form in forms_of(value)), f"{value} is not even in the plain pages"
        for name, data in after.items():
            assert not [form for form in forms_of(value) if form in data], (name, value)
    assert after.keys() == files_of(plain).keys()
    assert {n: p.links for n, p in check(plain).items()} == {n: p.links for n, p in check(redacted).items()}
    told = [
        json.loads(data)["message"] for name, data in after.items() if name.startswith("message-") and name.endswith(".json")
    ]
    orders = [each for each in told if each["topic"] == "Orders"]
    one, other = sorted(orders, key=lambda each: each["physicalOffset"])
    assert one["keys"][0] == other["keys"][0] == told[-1]["keys"][0]
    assert len(set(one["keys"])) == len(KEYS), "also one that is too short to be looked for"
    assert all(PSEUDONYM.fullmatch(value) for value in [*one["keys"], one["msgId"], one["uniqueKey"], one["body"]])
    assert one["properties"].keys() == {"KEYS", "TAGS", "UNIQ_KEY", "password"}
    assert all(map(PSEUDONYM.fullmatch, one["properties"].values()))
    assert (one["tags"], one["bodyCrc"], one["storeTimestamp"]) == ("paid", None, EPOCH)
    assert re.fullmatch(r"r-[0-9a-f]{10}:\d+", one["storeHost"])
    seen = {found for data in after.values() for found in PSEUDONYM.findall(data.decode())}
    assert seen.isdisjoint(found for data in files_of(again).values() for found in PSEUDONYM.findall(data.decode()))


@pytest.mark.parametrize("name", ["transactions-delay", "v2-ipv6-batch"])
def test_redacted_golden_stores(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """Long values of real messages are in no byte, unless they are a topic, a group or a tag, which stay."""
    store = golden_store(name).path
    rr.browse(store, export_site=tmp_path / "site", redact=True)
    check(tmp_path / "site")
    everything = b"".join(files_of(tmp_path / "site").values())
    topics = {topic["topic"] for topic in rr.info(store).topics}
    rows = [row for topic in topics for row in rr.query(store=store, topic=topic, queue=0, offset=0, max=20)]
    assert len(rows) > 60
    for row in rows:
        for value in (row["msgId"], row["uniqueKey"], *row["keys"]):
            assert not value or len(value) < 8 or value.encode() not in everything, value
    assert str(store).encode() not in everything
    assert not re.search(rb"(?<![\d.])\d{1,3}(\.\d{1,3}){3}(?![\d.])", everything), "an address"


@pytest.mark.usefixtures("inline_local")
def test_keys_of_items_are_replaced(tmp_path: Path) -> None:
    """Also those of messages that have no page, and those too short to be looked for."""
    messages = [
        Message("T", queue_offset=k, properties={"KEYS": f"secret-{k} q{k}", "TAGS": "paid", "UNIQ_KEY": f"UNIQUE{k:04}"})
        for k in range(40)
    ]  # fmt: skip
    store = write_store(tmp_path / "store", messages, 1 << 15)
    shutil.rmtree(store / "consumequeue")
    rr.browse(store, export_site=tmp_path / "site", redact=True)
    (rows,) = (json.loads(path.read_bytes())["items"] for path in (tmp_path / "site").glob("items-0001.json"))
    assert {row["of"] for row in rows} >= {"key", "unique key"}
    assert all(PSEUDONYM.fullmatch(row["text"]) for row in rows if row["of"] != "tag")
    everything = b"".join(files_of(tmp_path / "site").values())
    assert b"secret-" not in everything
    assert b"UNIQUE" not in everything


@pytest.mark.usefixtures("inline_local")
def test_a_body_with_names_that_the_pages_have(tmp_path: Path) -> None:
    """``"items": 2`` of a body is no value that is left: the pages say it of an IndexFile. A long number is one."""
    body = json.dumps({"items": 2, "count": 1, "first": None, "card": 4111222233334444}).encode()
    store = write_store(tmp_path / "store", [Message("T", 0, queue_offset=0, body=body)], 1 << 15)
    rr.browse(store, export_site=tmp_path / "site", redact=True)
    everything = b"".join(files_of(tmp_path / "site").values())
    assert b'"count": 1' in everything
    assert b"4111222233334444" not in everything


def test_fields_that_redaction_knows(golden_store: Stores) -> None:
    """Another field is replaced, too, until redaction.SECRET, KEPT or SENTENCES says what it is."""
    for name in ("transactions-delay", "dledger-5.3"):
        settings = browse_settings({"stores": [str(golden_store(name).path)]})
        pages = browsing_pages.StorePages(settings)
        pages.routes()
        crawl = site.Crawl(pages)
        crawl.run()
        redactor = redaction.Redactor(settings.stores, "")
        for made in crawl.found:
            redactor.learn(made.page.facts)
        for made in crawl.found:
            redactor.changed(crawl.values(made))
            redactor.changed(made.page.facts)
        assert redactor.unknown == set()


@pytest.mark.usefixtures("inline_local")
def test_what_is_left_is_noticed(private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are looked through once more: where a value is left nothing is written."""
    monkeypatch.setattr(redaction, "SECRET", redaction.SECRET - {"uniqueKey"})
    monkeypatch.setattr(redaction, "KEPT", redaction.KEPT)
    monkeypatch.setattr(redaction.Redactor, "text", lambda _, text: text)
    with pytest.raises(InputError, match=r"--redact|redact=True: a value of \w+ is still in"):
        rr.browse(private, export_site=tmp_path / "site", redact=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["customer-acme"]


@pytest.mark.parametrize("value", ["order-17-abc", "x" * 500, "k\u00e4se-laden", "a&b<c>'d\"", "10.20.30.40", "abcd"])
@pytest.mark.parametrize("before", range(9))
def test_a_value_is_found_wherever_it_stands(value: str, before: int) -> None:
    redactor = redaction.Redactor((), "words of this program")
    redactor.learn({"keys": [value, "words"]})
    html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#39;").replace('"', "&#34;")
    for form in (value, json.dumps(value)[1:-1], html.replace("&#39;", "&#x27;").replace("&#34;", "&quot;")):
        assert redactor.remains(b" " * before + form.encode() + b" ." * before) == "keys"
    assert redactor.remains(b"words " * before) == ""
    assert redactor.text(f"it says {value}.") == f"it says {redactor.pseudonym(value)}."


def test_sentences_and_unknown_fields() -> None:
    """Addresses, paths and what a command asks for go wherever they stand; a field of another page goes as a whole."""
    redactor = redaction.Redactor((), "")
    redactor.learn({"keys": ["order-17"], "topic": "Orders", "bornHost": "10.0.0.7:40112"})
    made = redactor.pseudonym
    for text, expected in {
        "made by a client on 10.0.0.7:51234": f"made by a client on {made('10.0.0.7')}:51234",
        "on [2001:db8::1]:9876, at 22:13:20.5": f"on {made('2001:db8::1')}:9876, at 22:13:20.5",
        "/var/lib/x/y: is not there: s3://bucket/a": f"{made('/var/lib/x/y')}: is not there: {made('s3://bucket/a')}",
        "query --topic Orders --key order-18": f"query --topic Orders --key {made('order-18')}",
        "query --key=order-17 --id 'a b'": f"query --key={made('order-17')} --id {made(chr(39) + 'a b' + chr(39))}",
        "Orders/0/1 of 5.3.3: consumequeue/Orders/0": "Orders/0/1 of 5.3.3: consumequeue/Orders/0",
    }.items():
        assert redactor.text(text) == expected
    facts = {
        "newField": "anything",
        "otherField": "10.1.2.3",
        "count": "1,234",
        "body": {"pay": 7},
        "bodyCrc": 5,
        "topic": "Orders",
    }
    assert redactor.changed(facts) == {
        "newField": made("anything"), "otherField": made("10.1.2.3"), "count": "1,234", "body": {"pay": made("7")},
        "bodyCrc": None, "topic": "Orders",
    }  # fmt: skip
    assert redactor.unknown == {"newField", "otherField"}


def test_failures_leave_nothing(golden_store: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = golden_store("dledger-5.3").path
    written = 0
    new = site._new

    def full(folder: str, name: str, text: str) -> None:
        nonlocal written
        written += 1
        if written == 20:
            raise OSError(28, "No space left on device")
        new(folder, name, text)

    with monkeypatch.context() as patched:
        patched.setattr(site, "_new", full)
        with pytest.raises(rr.ReindexError, match="No space left"):
            rr.browse(store, export_site=tmp_path / "site")
    assert list(tmp_path.iterdir()) == []
    rr.browse(store, export_site=tmp_path / "site")
    before = files_of(tmp_path / "site")
    with pytest.raises(InputError, match="is not empty: name another folder"):
        rr.browse(store, export_site=tmp_path / "site")
    assert files_of(tmp_path / "site") == before
    with pytest.raises(InputError, match="lies inside"):
        rr.browse(store, export_site=store / "site")
    with pytest.raises(InputError, match="is not there"):
        rr.browse(tmp_path / "nowhere", export_site=tmp_path / "other")
    with pytest.raises(UsageError, match="goes with"):
        rr.browse(store, redact=True)
    with pytest.raises(UsageError, match="take one of"):
        rr.browse(store, port=0, export_site=tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]
