"""Pages of ``browse`` without a server, and what each of them has to be."""

from __future__ import annotations

import re
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.browsing.guard import POSTED
from rocketmq_reindex.jobs.browsing.options import OpenedStores, browse_settings
from rocketmq_reindex.jobs.browsing.pages import application

with warnings.catch_warnings():
    # Starlette means to go from httpx to a fork of it.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient as TestClient

_VOID = {"meta", "link", "input", "br"}


class Html(HTMLParser):
    """What a page is made of. Elements that are opened are closed, in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.headings: list[int] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("input", "select") and given.get("type") != "hidden":
            assert "label" in self.open, "a field without a label"
        self.seen.append((tag, given))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str]]:
        return [given for name, given in self.seen if name == tag]

    @property
    def links(self) -> list[str]:
        return [given["href"] for given in self.all("a")]


def check(text: str) -> Html:
    """A page runs nothing and loads its own style alone; it can be read aloud, and walked through by its headings."""
    page = Html(text)
    tags = {tag for tag, _ in page.seen}
    names = {name for _, given in page.seen for name in given}
    assert tags.isdisjoint({"script", "style", "iframe", "img", "svg", "object", "base", "meta http-equiv"})
    assert not [
        name for name in names if name.startswith("on") or name in ("style", "src", "srcdoc", "formaction", "http-equiv")
    ]
    assert [each["href"] for each in page.all("link")] == ["/style.css"]
    assert all(re.match(r"/(?!/)|#main$", link) for link in page.links), "a link leaves the pages"
    assert {each["action"] for each in page.all("form")} <= {"/queue", "/search", "/scan", "/check", "/stop"}
    assert all(each.get("method", "get") == ("post" if each["action"] in POSTED else "get") for each in page.all("form"))
    assert all("scope" in each for each in page.all("th"))
    assert [tag for tag, _ in page.seen].count("h1") == 1
    assert page.all("html")[0]["lang"] == "en"
    assert re.search(r"<title>[^<]+</title>", text)
    assert len(page.all("main")) == 1
    assert text.replace("\n", "").isprintable(), "a control character, or a mark of direction"
    return page


class Pages:
    """The pages of some stores: ``html`` and ``json`` give one, which has to have that status."""

    def __init__(self, *stores: str | Path, **options: Any) -> None:
        given = {name: [str(value) for value in values] for name, values in options.items()}
        self.application = application(browse_settings({"stores": [str(store) for store in stores]} | given))
        self.client = TestClient(self.application)
        self.stores: OpenedStores = self.application.state.stores

    def html(self, page: str, status: int = 200, **fields: object) -> str:
        answer = self.client.get(f"/{page}", params={name.rstrip("_"): str(value) for name, value in fields.items()})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), answer.text
        check(answer.text)
        return str(answer.text)

    def json(self, page: str, status: int = 200, **fields: object) -> Any:
        given = {name.rstrip("_"): str(value) for name, value in fields.items()}
        answer = self.client.get(f"/{page}", params=given | {"format": "json"})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json"), answer.text
        assert answer.text.isascii()
        return answer.json()

    def both(self, page: str, status: int = 200, **fields: object) -> tuple[str, Any]:
        return self.html(page, status, **fields), self.json(page, status, **fields)
