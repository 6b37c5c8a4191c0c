"""How the pages of docs/ look in a real browser: set-up builds them (``scripts/docs``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tools.browser import ROOT, look_at_tables

HTML = ROOT / ".docs" / "html"
WIDTHS = (500, 1000, 1400)
LANDING = HTML / "index.html"
Seen = dict[tuple[Path, int], dict[str, Any]]


def pages() -> list[Path]:
    """The landing page, and every page that Sphinx made of a page of docs/ which has a table."""
    made = [HTML / source.relative_to(ROOT / "docs").with_suffix(".html") for source in sorted(ROOT.glob("docs/**/*.md"))]
    return [page for page in made if page == LANDING or "<table" in page.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return look_at_tables(pages(), tmp_path_factory.mktemp("browser"), WIDTHS)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_table_is_cut(width: int, seen: Seen) -> None:
    assert len(seen) > len(WIDTHS)
    for (page, wide), told in seen.items():
        if wide == width:
            assert told["width"] == width
            assert told["scroll"] <= width, f"{page.name} is wider than its window"
            assert told["cut"] == [], page.name


@pytest.mark.parametrize("width", WIDTHS)
def test_the_landing_page_shows_what_it_is(width: int, seen: Seen) -> None:
    """Install, one command and a picture stand above the fold, and the guides beside them where there is room."""
    told = seen[LANDING, width]
    assert told["code"][0], "the commands are below the fold"
    assert told["pictures"][0], "the picture is below the fold"
    if width >= 1000:
        assert {"Tutorial", "How-to guides", "Reference", "Explanation"} <= set(told["links"])
