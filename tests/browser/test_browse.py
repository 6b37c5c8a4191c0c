"""How the pages of ``browse`` look in a real browser: copies of them, with the stylesheet that the pages load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.golden.stores import GoldenStore
from tests.tools.browser import contrast, look
from tests.tools.browsing import Pages

PAGES = {
    "stores": "/", "store": "/store?store=a", "topics": "/topics?store=a", "queue": "/queue?store=a&topic=TopicA&queue=1",
    "message": "/message?store=a&physical=0", "search": "/search?topic=TopicA&key=k",
}  # fmt: skip


@pytest.fixture(scope="module")
def copies(golden_store: Callable[[str], GoldenStore], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each page as a file, its style within it."""
    folder, pages = tmp_path_factory.mktemp("pages"), Pages(f"a={golden_store('basic-5.3').path}")
    style = f"<style>{pages.client.get('/style.css').text}</style>"
    for name, link in PAGES.items():
        text = pages.client.get(link).text
        assert text.count('<link rel="stylesheet" href="/style.css">') == 1
        (folder / f"{name}.html").write_text(text.replace('<link rel="stylesheet" href="/style.css">', style), encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", PAGES)
def test_it_fits_and_can_be_read(name: str, copies: Path, tmp_path: Path) -> None:
    """Wide and narrow, light and dark: no page is wider than its window, and all text has contrast."""
    for width, dark in ((500, False), (1400, True)):
        seen = look(copies / f"{name}.html", tmp_path, width, dark)
        assert (seen["width"], seen["dark"], seen["loaded"], seen["scripts"]) == (width, dark, [], 1), "the probe's own"
        assert (seen["scroll"] <= width, seen["outside"]) == (True, 0), name
        assert seen["apart"] is None or seen["apart"] >= 8, "cards that touch"
        assert seen["heads"] < 110, "a name that is cut into letters"
        for paper in (seen["paper"], seen["card"]):
            assert contrast(seen["ink"], paper) >= 7
            assert contrast(seen["muted"], paper) >= 4.5
        if name == "store":
            assert min(seen["bars"]) > 0.35, "names take the room of the bars"
