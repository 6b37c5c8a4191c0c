"""The pictures of ``browse`` in docs/ show the pages as they are now, and the pages are there to be shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser.pictures import DIGEST, FOLDER, PICTURES, digest_in, saved, stores, taken, there
from tests.docs.pages import ROOT

EACH, ALL = 100_000, 400_000
"""bytes"""
AGAIN = "make it anew: .venv/bin/python -m tests.browser.pictures"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return stores(tmp_path_factory.mktemp("pictured"))


def test_they_are_of_the_present_pages(found: dict[str, Path]) -> None:
    digests = there(found)
    paths = {path.stem: path for path in FOLDER.glob("browse-*.png")}
    assert paths.keys() == digests.keys(), AGAIN
    for name, digest in digests.items():
        assert digest_in(paths[name]) == digest, f"{name}: the page is another one now: {AGAIN}"
    sizes = [path.stat().st_size for path in paths.values()]
    assert max(sizes) < EACH
    assert sum(sizes) < ALL


@pytest.mark.usefixtures("inline_local")
def test_they_can_be_made(found: dict[str, Path], tmp_path: Path) -> None:
    """As large as they are said to be, and with something on them; fonts are not the same everywhere."""
    names = [name for name in there(found) if name in ("browse-store", "browse-lost-queue")]
    for name, image in taken(names, found, tmp_path):
        assert image.size == (PICTURES[name].width, PICTURES[name].height)
        saved(image, "digest", tmp_path / f"{name}.png")
        assert 5_000 < (tmp_path / f"{name}.png").stat().st_size < EACH
        assert digest_in(tmp_path / f"{name}.png") == "digest"
        assert len(image.getcolors(1 << 20) or []) > 10
    assert DIGEST.encode() in (tmp_path / f"{names[0]}.png").read_bytes()


def test_each_is_shown_somewhere() -> None:
    """With words in its place, for those who do not see it."""
    shown = set[str]()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for words, name in re.findall(r"!\[([^\]]*)\]\([^)]*images/(browse-[a-z-]+)\.png\)", page.read_text(encoding="utf-8")):
            assert len(words) > 20, (page.name, name)
            shown.add(name)
    assert shown == {path.stem for path in FOLDER.glob("browse-*.png")}
