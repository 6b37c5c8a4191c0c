"""The pages of ``browse`` in a real browser, as its server hands them out: how they look, WCAG, the keyboard, and no script.

Every address of the application has an example here, or the first test fails: say in EXAMPLES how it is asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.browsing import search_pages, searching
from rocketmq_reindex.jobs.browsing.options import browse_settings, url
from rocketmq_reindex.jobs.browsing.pages import StorePages
from tests.golden.stores import GoldenStore
from tests.tools.devtools import Browser, Tab, browser as started
from tests.tools.local_engine import InlineEngines
from tests.unit.jobs.browsing.test_hostile_pages import BIDI, NAMES, SCRIPT, write_hostile

WIDTHS = (360, 500, 1000, 1400)
GOLDEN, BROKEN, HOSTILE, EMPTY = "golden", "broken", "<i>\u202e", "empty"
WHERE: dict[str, dict[str, object]] = {
    GOLDEN: {"topic": "TopicA", "queue": 1}, BROKEN: {"topic": "TopicA", "queue": 1}, HOSTILE: {"topic": "T", "queue": 0},
    EMPTY: {"topic": "T", "queue": 0},
}  # fmt: skip
FILES = {GOLDEN: "", BROKEN: "20260101000000000", HOSTILE: NAMES[0], EMPTY: "20260101000000000"}
"""the IndexFile of each; "" for the first that it has"""
EXAMPLES = {
    "/": "", "/store": "store", "/topics": "store", "/topic": "store topic", "/queue": "store topic queue",
    "/message": "store topic queue offset", "/search": "store topic queue offset", "/log": "store", "/disk": "store",
    "/rates": "store", "/consumers": "store", "/scan": "store topic", "/trace": "store physical", "/health": "store",
    "/items": "store file", "/findings": "file",
}  # fmt: skip
"""the fields by which each page is asked here; what they are stands in WHERE, and the offset is 2"""
NO_PAGE = {"/body", "/style.css", "/check", "/stop"}
PROBE = """(() => {
  const within = e => e.closest(".scroll, pre, .skip");
  const out = r => r.width > 0 && (r.right > innerWidth + 0.5 || r.left < -0.5);
  const cards = [...document.querySelectorAll("section")].map(e => e.getBoundingClientRect());
  return {
    width: innerWidth, scroll: document.documentElement.scrollWidth, dark: matchMedia("(prefers-color-scheme: dark)").matches,
    outside: [...document.querySelectorAll("body *")].filter(e => !within(e) && out(e.getBoundingClientRect())).map(
      e => `${e.tagName} ${e.className}`).slice(0, 5),
    apart: Math.min(99, ...cards.flatMap(a => cards.filter(b => b !== a && b.left < a.right && a.left < b.right).map(
      b => Math.max(b.top - a.bottom, a.top - b.bottom)))),
    heads: Math.max(0, ...[...document.querySelectorAll("thead th")].map(e => e.getBoundingClientRect().height)),
    scripts: document.scripts.length, ran: typeof ran !== "undefined",
    loaded: performance.getEntriesByType("resource").map(e => new URL(e.name).pathname),
    status: performance.getEntriesByType("navigation")[0].responseStatus,
  };
})()"""
CONTROLS = "a[href], input:not([type=hidden]), select, button, textarea, summary, [tabindex='0']"
FOCUS = """(() => {
  const e = document.activeElement, all = [...document.querySelectorAll("CONTROLS")].filter(x => x.checkVisibility());
  const style = getComputedStyle(e), box = e.getBoundingClientRect();
  return { at: all.indexOf(e), count: all.length, scrolls: e.scrollWidth > e.clientWidth, html: e.outerHTML.slice(0, 90),
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1,
    seen: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth };
})()""".replace("CONTROLS", CONTROLS)
NOTICED = ("Page.javascriptDialogOpening", "Runtime.exceptionThrown", "Log.entryAdded", "Audits.issueAdded")


@pytest.fixture(scope="module")
def stores(golden_store: Callable[[str], GoldenStore], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A whole store, one with a damaged log and without its index, one that somebody made up to do harm, and an empty one."""
    folder, golden = tmp_path_factory.mktemp("stores"), golden_store("basic-5.3").path
    shutil.copytree(golden, folder / "broken")
    with open(min((folder / "broken" / "commitlog").iterdir()), "r+b") as segment:
        segment.seek(rr.query(store=golden, topic="TopicA", queue=1, offset=2)[0].to_dict()["physicalOffset"] + 4)
        segment.write(b"\1\2\3\4")
    shutil.rmtree(folder / "broken" / "index")
    (folder / "broken" / "checkpoint").unlink()
    (folder / "empty" / "commitlog").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketmq_reindex.jobs.engines.local.LocalEngines", InlineEngines)
        hostile = write_hostile(folder)
    return {GOLDEN: golden, BROKEN: folder / "broken", HOSTILE: hostile, EMPTY: folder / "empty"}


@pytest.fixture(scope="module")
def findings(stores: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a verify says of the broken store, for ``--findings``."""
    file = tmp_path_factory.mktemp("findings") / "verify.json"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("rocketmq_reindex.jobs.engines.local.LocalEngines", InlineEngines)
        rr.verify(stores[BROKEN], engine="local", report=str(file))
    return f"{BROKEN}={file}"


@pytest.fixture(scope="module")
def served(stores: dict[str, Path], findings: str) -> Iterator[rr.BrowseResult]:
    FILES[GOLDEN] = min(path.name for path in (stores[GOLDEN] / "index").iterdir())
    with rr.browse([f"{name}={path}" for name, path in stores.items()], port=0, findings=[findings]) as pages:
        yield pages


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("browser") / "profile") as browser:
        yield browser


@pytest.fixture
def tab(chromium: Browser, served: rr.BrowseResult) -> Tab:
    """A page of a browser that has opened the address which the command prints."""
    tab = chromium.tab()
    tab.open(served.url)
    assert tab.run("location.search") == "", "the token is out of the address"
    return tab


def address(served: rr.BrowseResult, link: str) -> str:
    return f"http://127.0.0.1:{served.port}{link}"


def example(page: str, store: str) -> str:
    given = {"store": store, "offset": 2, "physical": 0, "file": FILES[store], **WHERE[store]}
    given |= {"file": 0} if page == "/findings" else {}
    return url(page[1:], **{name: given[name] for name in EXAMPLES[page].split()})


def check(tab: Tab, name: str) -> dict[str, Any]:
    """Narrow and wide, light and dark: no page is wider than its window, nothing runs, and axe-core finds nothing."""
    seen: dict[str, Any] = {}
    # Dark pages have other colours, and nothing else of their own.
    for width, dark in ((WIDTHS[0], True), *((width, False) for width in WIDTHS)):
        tab.look(width, dark)
        seen = tab.run(PROBE)
        assert (seen["width"], seen["dark"], seen["scripts"], seen["ran"]) == (width, dark, 0, False), name
        assert set(seen["loaded"]) <= {"/style.css"}, name
        assert (seen["scroll"] <= width, seen["outside"]) == (True, []), (name, width)
        assert seen["apart"] >= 8, (name, width, "cards that touch")
        assert seen["heads"] < 110, (name, width, "a name that is cut into letters")
        if dark or width == 1000:
            assert tab.problems() == [], (name, width, dark)
    # Chromium notes that an address has answered 404.
    assert [told for told in tab.browser.events(*NOTICED) if "responded with a status of" not in str(told)] == [], name
    return seen


def test_every_page_has_an_example(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    routes = StorePages(browse_settings({"stores": [str(tmp_path)]})).routes()
    paths = {route.path for route in routes if not route.path.endswith(".json")}
    assert paths - NO_PAGE == EXAMPLES.keys(), "say in EXAMPLES how it is asked"


@pytest.mark.parametrize("page", EXAMPLES)
def test_how_it_looks(page: str, served: rr.BrowseResult, tab: Tab) -> None:
    """Of whole, damaged, hostile and empty stores; the golden one has an answer."""
    for store in WHERE:
        tab.open(address(served, example(page, store)))
        seen = check(tab, f"{page} of {store}")
        assert seen["status"] == 200 if store == GOLDEN else seen["status"] in (200, 404, 422), (page, store, seen["status"])


HOSTILE_LINKS = [
    *[url("message", store=HOSTILE, topic="T", queue=0, offset=offset) for offset in (0, 1, 3, 4)],
    *[url("topic", store=HOSTILE, topic=name) for name in NAMES if isinstance(name, str)],
    url("search", store=HOSTILE, topic=SCRIPT, key=BIDI), url("search", store=HOSTILE, id=SCRIPT),
    url("queue", store=HOSTILE, topic="{{7*7}}", queue=0), url("store", store=SCRIPT), url(SCRIPT.replace("'", "%27")),
]  # fmt: skip


def test_hostile_pages(served: rr.BrowseResult, tab: Tab) -> None:
    """No script runs and no dialog opens, whatever is asked and shown; a body is a download that the browser does not show."""
    for link in HOSTILE_LINKS:
        tab.open(address(served, link))
        for width in (WIDTHS[0], WIDTHS[-1]):
            tab.look(width, dark=False)
            seen = tab.run(PROBE)
            assert (seen["scripts"], seen["ran"], seen["scroll"] <= width, seen["outside"]) == (0, False, True, []), link
        assert [told for told in tab.browser.events(*NOTICED) if "favicon" not in str(told) and "404" not in str(told)] == [], (
            link
        )
    tab.open(address(served, HOSTILE_LINKS[0]))
    before = tab.run("location.href")
    told = tab.call("Page.navigate", url=address(served, url("body", store=HOSTILE, physical=0)))
    assert told.get("errorText") == "net::ERR_ABORTED", "it is no page"
    assert tab.run("location.href") == before


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_keyboard_reaches_all(page: str, served: rr.BrowseResult, tab: Tab) -> None:
    """Tab goes to each link and control in their order, and shows where it is; the first one leads past the navigation."""
    tab.look(1000, dark=False)
    tab.open(address(served, example(page, GOLDEN)))
    reached, at = list[int](), {"count": 1, "at": -1}
    while at["at"] < at["count"] - 1:
        tab.press("Tab")
        at = tab.run(FOCUS)
        # Chromium itself lets a part that scrolls have the focus, where nothing in it can.
        if at["at"] == -1 and at["scrolls"]:
            continue
        assert at["ring"], ("the focus is not to be seen", at["html"])
        assert at["seen"], ("the focus is out of sight", at["html"])
        assert at["at"] == (reached[-1] if reached else -1) + 1, (at["html"], reached[-3:])
        reached.append(at["at"])
        if at["at"] == 0:
            assert "skip" in at["html"]
    assert len(reached) >= 4
    tab.open(address(served, example(page, GOLDEN)))
    tab.press("Tab")
    tab.press("Enter")
    assert tab.run("location.hash") == "#main"
    tab.press("Tab")
    assert tab.run("document.activeElement.closest('main') !== null"), "the navigation is passed"


def test_links_and_forms_by_keyboard(served: rr.BrowseResult, tab: Tab) -> None:
    tab.open(address(served, example("/search", GOLDEN)))
    tab.run("document.querySelector('nav a').focus()")
    tab.browser.forget()
    tab.press("Enter")
    tab.loaded()
    assert tab.run("location.pathname + location.search") == "/"
    tab.open(address(served, url("search", store=GOLDEN)))
    tab.run("document.querySelector('input[name=physical]').focus()")
    tab.write("0")
    tab.browser.forget()
    tab.press("Enter")
    tab.loaded()
    assert tab.run("new URLSearchParams(location.search).get('physical')") == "0"
    assert "1 found" in tab.run("document.body.innerText")


def test_enter_stops_a_search_that_goes_on(served: rr.BrowseResult, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has the time to walk through a page of one second: the focus is where it can be stopped."""
    monkeypatch.setattr(searching, "PART_BYTES", 4096)
    monkeypatch.setattr(searching, "RANGE", 4096)
    monkeypatch.setattr(search_pages, "EACH", 600)
    tab.open(address(served, url("scan", store=GOLDEN, key="none", go="until-hit")))
    # A browser moves the focus when it draws.
    focused = "document.activeElement.textContent"
    drawn = f"new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done({focused}))))"
    assert tab.run(drawn) == "Stop here"
    tab.browser.forget()
    tab.press("Enter")
    tab.loaded()
    assert "go=" not in tab.run("location.search")


def test_a_site_of_files(stores: dict[str, Path], chromium: Browser, tmp_path: Path) -> None:
    """The pages that ``--export-site`` writes have their style from beside them, run nothing, and can be read as well."""
    named = [f"{name}={stores[name]}" for name in (GOLDEN, HOSTILE)]
    rr.browse(named, export_site=tmp_path / "site", redact=True)
    tab = chromium.tab()
    for name in ("index", "store-0001", "topics-0002", "queue-0001", "message-0001", "message-0002"):
        tab.open((tmp_path / "site" / f"{name}.html").as_uri())
        for width, dark in ((360, True), (1000, False)):
            tab.look(width, dark)
            seen = tab.run(PROBE)
            assert (seen["scripts"], seen["ran"], seen["scroll"] <= width, seen["outside"]) == (0, False, True, []), name
            assert {place.rpartition("/")[2] for place in seen["loaded"]} <= {"style.css"}
            assert tab.run("getComputedStyle(document.querySelector('section')).borderRadius") != "0px", "no style"
            assert tab.browser.events(*NOTICED) == [], name
            # It would fetch a stylesheet of a file, which the policy of the page refuses.
            assert tab.problems() == [], name
            tab.browser.forget()
