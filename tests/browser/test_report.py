"""How a report looks in a real browser."""

from __future__ import annotations

from pathlib import Path

from rocketmq_reindex.jobs.reporting.make import make_page
from tests.tools.browser import contrast, look
from tests.tools.encode import EPOCH, Message
from tests.unit.jobs.reporting.test_report import HOSTILE
from tests.unit.jobs.reporting.test_report import built as built
from tests.unit.jobs.reporting.test_report_looks import CJK, LONG
from tests.unit.jobs.reporting.test_report_looks import built as build


def test_in_a_browser(built: Path, tmp_path: Path) -> None:
    """Wide and narrow, light and dark: all of it fits, can be read, and comes from the one file."""
    page = tmp_path / "page.html"
    page.write_text(make_page(str(built), str(built.parent / "store")), encoding="utf-8")
    seen = {(width, dark): look(page, tmp_path, width, dark) for width in (1280, 390) for dark in (False, True)}
    for (width, dark), told in seen.items():
        assert (told["width"], told["dark"]) == (width, dark)
        assert told["scroll"] <= width, "the page is wider than its window"
        assert told["outside"] == 0
        assert len(told["svgs"]) == 2
        assert all(w > 200 and h > 30 for w, h in told["svgs"])
        assert told["apart"] >= 8, "cards that touch"
        assert min(told["bars"]) > 0.35, "names take the room of the bars"
        assert told["loaded"] == []
        assert told["scripts"] == 1, "the probe's own"
        assert told["smallest"] >= 8, "labels too small to read"
        for paper in (told["paper"], told["card"]):
            assert contrast(told["ink"], paper) >= 7
            assert contrast(told["muted"], paper) >= 4.5
        for label, fill in told["labels"]:
            assert contrast(fill, told["card"]) >= 4.5, label
    assert seen[1280, False]["columns"] > seen[390, False]["columns"] == 1
    assert contrast(seen[390, True]["paper"], "rgb(0,0,0)") < 2 < contrast(seen[390, False]["paper"], "rgb(0,0,0)")
    assert any(HOSTILE[:8] in label for label, _ in seen[390, True]["labels"]), "names are shown as they are"


def test_long_names_in_a_browser(tmp_path: Path) -> None:
    """They wrap, to three lines at most, and the bars keep their room; names of any script stand as they are."""
    names = [*LONG, CJK]
    messages = [Message(names[k % 5], k % 2, store_timestamp=EPOCH + 1000 * k, properties={"KEYS": f"k{k}"}) for k in range(60)]
    page = tmp_path / "page.html"
    page.write_text(make_page(*build(tmp_path, messages)), encoding="utf-8")
    for width in (1280, 390):
        seen = look(page, tmp_path, width, dark=False)
        assert (seen["outside"], seen["scroll"] <= width) == (0, True)
        assert seen["apart"] >= 8
        assert min(seen["bars"]) > 0.35
        assert seen["names"] <= 60
        shown = [label for label, _ in seen["labels"]]
        assert all(shown.count(name) == 2 for name in names), "in the legend and beside its bar, whole"
