"""How the pages of docs/ look in a real browser: set-up builds them (``scripts/docs``)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.browser import ROOT, look_at_tables

HTML = ROOT / ".docs" / "html"
WIDTHS = (500, 1000, 1400)


def pages() -> list[Path]:
    """Every page that Sphinx made of a page of docs/."""
    return sorted(ROOT.glob("docs/**/*.md"))


@pytest.mark.parametrize("width", WIDTHS)
def test_no_table_is_cut(width: int, tmp_path: Path) -> None:
    assert pages()
    for source in pages():
        page = HTML / source.relative_to(ROOT / "docs").with_suffix(".html")
        if "<table" not in page.read_text(encoding="utf-8"):
            continue
        told = look_at_tables(page, tmp_path, width)
        assert told["width"] == width
        assert told["scroll"] <= width, f"{page.name} is wider than its window"
        assert told["cut"] == [], page.name


@pytest.mark.parametrize("width", WIDTHS)
def test_the_landing_page_shows_what_it_is(width: int, tmp_path: Path) -> None:
    """Install, one command and a picture stand above the fold, and the guides beside them where there is room."""
    told = look_at_tables(HTML / "index.html", tmp_path, width)
    assert told["code"][0], "the commands are below the fold"
    assert told["pictures"][0], "the picture is below the fold"
    if width >= 1000:
        assert {"Tutorial", "How-to guides", "Reference", "Explanation"} <= set(told["links"])
