"""The pages as files: for a ticket, without a server. All of them are written, or nothing."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Mapping
from html import escape as html
from html.parser import HTMLParser
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from rocketmq_reindex import files
from rocketmq_reindex.jobs.browsing import pages as browsing_pages, redaction
from rocketmq_reindex.jobs.browsing.options import Address, Asked, BrowseResult, BrowseSettings, PageFacts, url
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.storage_format.errors import ExitStatus, InputError, ReindexError
from rocketmq_reindex.storage_format.showing import counted, escape, listed, printable
from rocketmq_reindex.version import __version__

# ------------------------------------------------------------------------------------------------------------------------ rules
# Which pages are written. A page of the application without a line here is left out, and a test says so.


class SiteRule(NamedTuple):
    """How many pages of an address are written; ``without`` says why there are none."""

    most: int = 0
    """pages in the whole site"""
    each: int = 0
    """pages with the same values of the fields ``by``; 0 for any number"""
    by: tuple[str, ...] = ()
    without: str = ""


_RUNNING: Final = "needs the running pages"
RULES: Final = {
    "/": SiteRule(1),
    "/store": SiteRule(50),
    "/topics": SiteRule(100, 4, ("store",)),
    "/topic": SiteRule(100, 4, ("store", "topic")),
    "/queue": SiteRule(500, 1, ("store", "topic", "queue")),
    "/message": SiteRule(500, 20, ("store", "topic", "queue")),
    "/search": SiteRule(without=_RUNNING),
    "/scan": SiteRule(without=_RUNNING),
    "/trace": SiteRule(without=_RUNNING),
    "/body": SiteRule(without="a whole body is no part of it"),
    "/log": SiteRule(50, 20, ("store",)),
    "/disk": SiteRule(50, 1, ("store",)),
    "/rates": SiteRule(100, 20, ("store",)),
    "/consumers": SiteRule(100, 20, ("store",)),
    "/findings": SiteRule(100, 20, ("store",)),
    "/items": SiteRule(100, 2, ("store", "file")),
    "/health": SiteRule(without=_RUNNING),
    "/check": SiteRule(without=_RUNNING),
    "/stop": SiteRule(without=_RUNNING),
    "/style.css": SiteRule(without="is style.css"),
}
"""by the paths of the addresses; the bounds are in docs/reference/browse.md"""
BODY_MAX: Final = 4096
"""characters of a body, and of any other text, in a page of a site"""
LINES_MAX: Final = 200
INDEX: Final = "index.html"
POLICY: Final = "default-src 'none'; style-src 'self' file:; base-uri 'none'; form-action 'none'"
"""for pages that a folder, or any web server, hands out"""
Key = tuple[str, tuple[tuple[str, str], ...]]


def key_of(link: str) -> tuple[Key, bool]:
    """Return what two links to one page have in common, and whether this one asks for JSON."""
    path, _, query = link.partition("?")
    given = dict(parse_qsl(query, errors="surrogateescape"))
    as_json = given.pop("format", "") == "json"
    return (path, tuple(sorted(given.items()))), as_json


# ------------------------------------------------------------------------------------------------------------------------- html


class Rewriter(HTMLParser):
    """A page with other links: those to pages that are files, and text in the place of all others. It has no form."""

    def __init__(self, names: Mapping[Key, str], own: str, about: str) -> None:
        """``names`` are the files by what leads to them; ``own`` is the page's JSON, and ``about`` is put at its end."""
        super().__init__(convert_charrefs=False)
        self._names, self._own, self._about = names, own, about
        self._out, self._closing, self._hidden, self._told = list[str](), list[str](), 0, False
        self.links = list[str]()
        """what the page links to"""

    def made(self, page: str) -> str:
        """Return the page as it is written."""
        self.feed(page)
        self.close()
        return "".join(self._out)

    def _put(self, text: str) -> None:
        if not self._hidden:
            self._out.append(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._put("" if self._told else f'<p class="note">A search {_RUNNING}.</p>')
            self._hidden, self._told = self._hidden + 1, True
        elif tag == "link":
            self._put('<link rel="stylesheet" href="style.css">')
        elif tag == "a":
            self._begin_link(given)
        else:
            if tag == "title":
                self._put(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">')
            self._put(self.get_starttag_text() or "")

    def _begin_link(self, given: dict[str, str]) -> None:
        href = given.get("href", "")
        if not self._hidden:
            self.links.append(href)
        key, as_json = key_of(href)
        file = href if href.startswith("#") or href == self._own else self._names.get(key)
        if file is None:
            self._put("<span>")
            self._closing.append("</span>")
            return
        file = f"{file.removesuffix('.html')}.json" if as_json else file
        others = "".join(f' {name}="{html(value)}"' for name, value in given.items() if name != "href")
        self._put(f'<a{others} href="{html(file)}">')
        self._closing.append("</a>")

    def handle_startendtag(self, _tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self._put(self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._hidden -= 1
        elif tag == "a":
            self._put(self._closing.pop())
        else:
            if tag == "main":
                self._put(self._about)
            self._put(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        self._put(data)

    def handle_entityref(self, name: str) -> None:
        self._put(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self._put(f"&#{name};")

    def handle_decl(self, decl: str) -> None:
        self._put(f"<!{decl}>")


# ------------------------------------------------------------------------------------------------------------------------ pages


class SitePage(NamedTuple):
    """A page that is written, and its file without ``.html``."""

    shown: Address
    given: dict[str, str]
    page: PageFacts
    file: str


class Crawl:
    """Follows the links from the first page on, as far as the rules go."""

    def __init__(self, pages: browsing_pages.StorePages) -> None:
        self._pages = pages
        self.found = list[SitePage]()
        self.names = dict[Key, str]()
        """files by what leads to them"""
        self.left_out = Counter[str]()
        """addresses that are not written, by their paths"""
        self.failed = list[tuple[str, dict[str, str], str]]()
        """what cannot be made: path, fields, and why"""
        self._made, self._groups = Counter[str](), Counter[tuple[str, ...]]()
        self._messages = dict[tuple[Key, str], str]()

    def run(self) -> None:
        """Make all pages. One that the store has no answer for is noted."""
        left, seen = deque(["/"]), {key_of("/")[0]}
        while left:
            key, _ = key_of(left.popleft())
            page = self._page(key)
            if page is None:
                continue
            for link in self._links(page):
                target = key_of(link)[0]
                if link.startswith("/") and target not in seen:
                    seen.add(target)
                    left.append(link)

    def _page(self, key: Key) -> SitePage | None:
        """Return the page of an address, once; None where it is left out, or cannot be made."""
        path, given = key[0], dict(key[1])
        rule, shown = RULES.get(path, SiteRule()), self._pages.shown.get(path)
        group = (path, *(given.get(name, "") for name in rule.by))
        if key in self.names:
            return None
        if shown is None or self._made[path] >= rule.most or (rule.each and self._groups[group] >= rule.each):
            self.left_out[path] += 1
            return None
        try:
            page = shown.make(Asked(url("", **given)[2:].encode("latin-1"), shown.fields))
        except (ReindexError, OSError, ValueError) as error:
            self.failed.append((path, given, str(error) if isinstance(error, ReindexError) else escape(str(error))))
            return None
        name = f"{path[1:].replace('/', '-')}-{self._made[path] + 1:04d}" if path != "/" else INDEX.removesuffix(".html")
        self.names[key] = self._same_message(page, f"{name}.html") if path == "/message" else f"{name}.html"
        if self.names[key] != f"{name}.html":
            return None
        self._made[path] += 1
        self._groups[group] += 1
        self.found.append(SitePage(shown, given, page._replace(facts=_cut(page.facts), more=_cut(page.more)), name))
        return self.found[-1]

    def _same_message(self, page: PageFacts, file: str) -> str:
        """Return the file of a message: by its queue and by its place in the log it is one page, but for a light queue's."""
        row = page.facts.get("message")
        if not row:
            return file
        place = _by_place(page.facts["store"], row["physicalOffset"])
        there = self._messages.setdefault((place, str(page.facts.get("inQueue"))), file)
        self.names.setdefault(place, there)
        return there

    def _links(self, made: SitePage) -> list[str]:
        reading = Rewriter({}, "", "")
        reading.made(self._pages.text(made.shown.template, self.values(made)))
        return reading.links

    def values(self, made: SitePage) -> dict[str, Any]:
        """Return what the template of a page is filled with."""
        return self._pages.values(made.page, f"{made.file}.json", made.given.get("store", ""))


def _by_place(store: str, physical: object) -> Key:
    return "/message", (("physical", str(physical)), ("store", store))


def _cut(value: Any) -> Any:
    """Return facts with long texts, and long lists of lines, cut: a site has no whole bodies."""
    if isinstance(value, Mapping):
        return {name: _cut_lines(inner) if name.endswith("_lines") else _cut(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_cut, value)) if type(value) in (list, tuple) else value
    if type(value) is str and len(value) > BODY_MAX:
        return f"{value[:BODY_MAX]}... ({len(value):,} characters)"
    return value


def _cut_lines(lines: Any) -> Any:
    left, kept = BODY_MAX, []
    for line in lines[:LINES_MAX]:
        if left <= 0:
            break
        kept.append(line[:left])
        left -= len(line)
    return [*kept, *(["..."] if len(kept) < len(lines) or left < 0 else [])]


# ------------------------------------------------------------------------------------------------------------------------- site


def export_site(settings: BrowseSettings, result: BrowseResult) -> list[str]:
    """Write the pages of stores into a new folder. Return what was done, as lines for people.

    Raises InputError and OSError; nothing is written then. Pages that the stores have no answer for are left out, and the
    result says which.
    """
    site = settings.export_site or ""
    if files.no_rename(site):
        raise InputError(f"--export-site {escape(site)}: names cannot be changed there: name a place on a disk")
    inputs = [place for store in settings.stores for place in (store.path, *store.commitlogs)]
    target = output.check_places(inputs, site, None)
    for store in settings.stores:
        with failures_as_errors("STORE"), Search(store.path, store.roots, Notes.silent()):
            pass
    made = browsing_pages.StorePages(settings, live=False)
    made.routes()
    crawl = Crawl(made)
    crawl.run()
    with output.locked(target), output.staging(target, overwrite=False) as staging:
        with files.naming(target):
            _write(staging.tree, settings, made, crawl)
        output.publish(staging, target, overwrite=False)
    output.settle(target)
    result.site, result.pages, result.redacted = site, len(crawl.found), settings.redact
    result.stores = [store.name for store in settings.stores]
    result.warnings += [f"{_address(path, given)}: {why}" for path, given, why in crawl.failed]
    result.exit = ExitStatus.LOST if crawl.failed else ExitStatus.DONE
    return result.lines()


def _write(tree: str, settings: BrowseSettings, pages: browsing_pages.StorePages, crawl: Crawl) -> None:
    """Write all files. Raises InputError where one still has a value that is to be replaced."""
    names, redactor = crawl.names, None
    if settings.redact:
        own_words = (*browsing_pages.TEMPLATES.values(), browsing_pages.style(), _REPLACED, __doc__)
        redactor = redaction.Redactor(settings.stores, "\n".join(own_words))
        redactor.learn({"path": [files.base(each.path) for each in settings.findings]})
        for made in crawl.found:
            redactor.learn(made.page.facts)
            redactor.learn(made.page.more)
        names = {(path, tuple(sorted(redactor.given(dict(given)).items()))): file for (path, given), file in names.items()}
    told = _about(settings, crawl, redactor)
    written = {"style.css": browsing_pages.style(), "README.txt": "".join(f"{printable(line)}\n" for line in told)}
    items = "".join(f"<li>{html(printable(line))}</li>" for line in told)
    about = f'<section><h2>What these files are</h2><ul class="note">{items}</ul></section>'
    for made in crawl.found:
        values, facts = crawl.values(made), made.page.facts
        if redactor is not None:
            values, facts = redactor.changed(values | {"json": None}) | {"json": values["json"]}, redactor.changed(facts)
        page = Rewriter(names, values["json"], about if made.file == "index" else _NOTE)
        _new(tree, f"{made.file}.html", page.made(pages.text(made.shown.template, values)))
        _new(tree, f"{made.file}.json", json.dumps(facts) + "\n")
    for name, text in written.items():
        _new(tree, name, text)
    if redactor is not None:
        _check(tree, redactor)


def _new(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "x", encoding="utf-8", errors="backslashreplace", newline="") as file:
        file.write(text)


def _check(tree: str, redactor: redaction.Redactor) -> None:
    """Read all that was written once more. Raises InputError where a known value is left."""
    for name in sorted(os.listdir(tree)):
        with open(os.path.join(tree, name), "rb") as file:
            if field := redactor.remains(file.read()):
                raise InputError(
                    f"--redact: a value of {escape(field)} is still in {name}: nothing is written. "
                    "Please report it, with the names of the fields on that page"
                )


_NOTE: Final = (
    '<p class="note">A page of files: links to what is not written are plain text. '
    '<a href="index.html">What is left out</a></p>'
)
_REPLACED: Final = (
    "Replaced by pseudonyms (r-...), the same value by the same one in these files: bodies, keys, unique keys, message ids, "
    "values of properties, hosts and addresses, paths. Left out: bytes of bodies in hex, checksums of bodies. Not replaced: "
    "topics, groups, tags, names of properties, of stores and of files in a store, times, sizes and offsets."
)


def _about(settings: BrowseSettings, crawl: Crawl, redactor: redaction.Redactor | None) -> list[str]:
    """Return what the site is, and what it lacks."""
    of = Counter(made.shown.path for made in crawl.found)
    names = listed([store.name for store in settings.stores])
    lines = [
        f"What rmq-reindex {__version__} browse shows of {names}, as files: no server is needed.",
        f"Pages: {', '.join(f'{count:,} of {path}' for path, count in sorted(of.items()))}. Beside each lie its facts as JSON.",
        f"Of a text at most {BODY_MAX:,} characters are written.",
    ]
    for path, count in sorted(crawl.left_out.items()):
        rule = RULES.get(path, SiteRule(without=_RUNNING))
        per = f", {rule.each:,} for each {', '.join(rule.by)}" if rule.each else ""
        why = rule.without or f"at most {rule.most:,} are written{per}"
        lines.append(f"Left out: {counted(count, 'address', 'addresses')} of {path}: {why}.")
    for path, given, why in crawl.failed:
        told = (redactor.given(given), redactor.text(why)) if redactor else (given, why)
        lines.append(f"Not made: {_address(path, told[0])}: {told[1]}")
    return [*lines, *([_REPLACED] if redactor else [])]


def _address(path: str, given: Mapping[str, str]) -> str:
    return escape(url(path[1:], **given))
