"""How a report looks in a real browser."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.reporting.parts import traces
from tests.tools.browser import contrast, look
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.unit.jobs.reporting.test_report import HOSTILE, SIZES, built as built
from tests.unit.jobs.reporting.test_report_looks import CJK, LONG, built as build


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


def test_a_trace_in_a_browser(tmp_path: Path) -> None:
    """The page of a trace has the looks of a report: it fits, can be read, and loads nothing."""
    events = [
        {"time": None, "store": name, "what": "stored", "text": name, "evidence": name, "certainty": "unknown"} for name in LONG
    ]
    found = {"messages": [{"message": LONG[0], "topic": CJK, "keys": [HOSTILE], "events": events}], "warnings": list(LONG)}
    page = tmp_path / "page.html"
    page.write_text(traces(found, "1.0"), encoding="utf-8")
    for width, dark in ((1280, False), (390, True)):
        seen = look(page, tmp_path, width, dark)
        assert (seen["scroll"] <= width, seen["dark"], seen["loaded"]) == (True, dark, [])
        assert seen["scripts"] == 1, "the probe's own"
        for paper in (seen["paper"], seen["card"]):
            assert contrast(seen["ink"], paper) >= 7
            assert contrast(seen["muted"], paper) >= 4.5


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Of 20 topics alike: a build, a build of a damaged log, and a verify of each."""
    folder, made = tmp_path_factory.mktemp("pages"), dict[str, str]()
    with LogWriter(folder / "store" / "commitlog", 1 << 16) as writer:
        for k in range(600):
            keys = {"KEYS": f"k{k}", "TAGS": "a"}
            writer.append(Message(f"orders-{k % 20}", store_timestamp=EPOCH + 60_000 * k, body=bytes(200), properties=keys))
    shutil.copytree(folder / "store", folder / "bad")
    with open(sorted((folder / "bad" / "commitlog").iterdir())[1], "r+b") as segment:
        segment.seek(20_000)
        segment.write(bytes(300))
    for name, kind, policy in (("store", "build", "fail"), ("bad", "damaged", "salvage")):
        out = folder / f"{name}-out"
        assert local_build(folder / name, out, on_damage=policy, **SIZES).exit in (0, 3)
        made[kind] = make_page(str(out), str(folder / name))
    for part in ("consumequeue", "index"):
        shutil.copytree(folder / "store-out" / part, folder / "store" / part)
        shutil.copytree(folder / "store-out" / part, folder / "bad" / part)
    shutil.copy(folder / "store-out" / "checkpoint", folder / "store" / "checkpoint")
    for name, kind in (("store", "clean"), ("bad", "differing")):
        report = folder / f"{kind}.json"
        report.write_text(local_verify(folder / name).to_json())
        made[kind] = make_page(str(report))
    return made


@pytest.mark.parametrize("width", [500, 1000, 1400])
@pytest.mark.parametrize("kind", ["build", "damaged", "clean", "differing"])
def test_what_matters_comes_first(kind: str, width: int, pages: dict[str, str], tmp_path: Path) -> None:
    """The verdict with the next step, then warnings; tiles stand together; no topic is one among "more"."""
    page = tmp_path / "page.html"
    page.write_text(pages[kind], encoding="utf-8")
    seen = look(page, tmp_path, width, dark=False)
    assert (seen["outside"], seen["scroll"] <= width, seen["apart"] >= 8) == (0, True, True)
    first = {"build": "built from the whole log", "damaged": "built without what stood in 1 damaged place of the log",
             "clean": "no differences", "differing": "4 kinds of differences"}[kind]  # fmt: skip
    assert seen["order"][:2] == ["h1", first]
    assert seen["order"][2:4] == (["Warnings", "dl"] if kind == "damaged" else ["dl", seen["order"][3]])
    assert seen["verdict"] < 300, "above the fold"
    rows = Counter(top for top, _ in seen["facts"])
    one_column = len({left for _, left in seen["facts"]}) == 1
    assert one_column == (width == 500)
    assert one_column or min(rows.values()) > 1, "a tile alone in its row"
    assert not [label for label, _ in seen["labels"] if label.endswith(" more")]
