"""Progress without a terminal: plain lines on stderr, nothing on stdout, whatever becomes of the stage."""

from __future__ import annotations

import io
import json
import re
import time
from itertools import pairwise

import pytest
from rich.console import Console

from rocketmq_reindex.jobs.building.summary import BuildResult, Warnings
from rocketmq_reindex.jobs.watching import progress, progress_shown
from rocketmq_reindex.jobs.watching.progress import Reporter, Stage
from rocketmq_reindex.jobs.watching.progress_shown import StageBars, usual


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("ranges", "size", "line"), [(3, 5_000_000, "scan: 3 ranges, 5,000,000 bytes"), (1, 1, "scan: 1 range, 1 byte")]
)
def test_a_stage_begins_and_ends_with_a_line(ranges: int, size: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter([usual()]) as reporter, reporter.stage("scan", "ranges", ranges, size, lambda: (0, 0)):
        pass
    printed = capsys.readouterr()
    first, last = printed.err.splitlines()
    assert first == line
    assert re.fullmatch(r"scan: done after \d+\.\d s", last)
    assert printed.out == ""


def test_a_stage_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(OSError, match="gone"),
        Reporter([usual()]) as reporter,
        reporter.stage("write", "files", 2, 0, lambda: (0, 0)),
    ):
        raise OSError("gone")
    first, last = capsys.readouterr().err.splitlines()
    assert first == "write: 2 files"
    assert last.startswith("write: failed after")


def test_lines_between_say_how_far_it_is(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that cannot look just now is asked again. A stage that has moved once only has no pace."""
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    monkeypatch.setattr(progress_shown, "LINE_INTERVAL", 0.03)
    asked: list[int] = []

    def probe() -> tuple[int, float]:
        asked.append(1)
        if len(asked) % 2:
            raise FileNotFoundError("not yet")
        return 1, 0.25

    with Reporter([usual()]) as reporter, reporter.stage("scan", "ranges", 4, 16_000_000, probe):
        end = time.monotonic() + 60
        while len(asked) < 12 and time.monotonic() < end:
            time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()[1:-1]
    assert lines == ["scan: 1/4 ranges, 4,000,000 bytes"], "once, since nothing changes any more"


def test_a_stage_that_stands_still_has_no_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One log of Airflow had "scan: 0/3 ranges, 0 bytes" dozens of times."""
    monkeypatch.setattr(progress, "INTERVAL", 0.005)
    monkeypatch.setattr(progress_shown, "LINE_INTERVAL", 0.0)
    asked: list[int] = []

    def probe() -> tuple[int, float]:
        asked.append(1)
        return 0, 0.0

    with Reporter([usual()]) as reporter, reporter.stage("scan", "ranges", 3, 3_000_000, probe):
        end = time.monotonic() + 60
        while len(asked) < 20 and time.monotonic() < end:
            time.sleep(0.01)
    first, last = capsys.readouterr().err.splitlines()
    assert first == "scan: 3 ranges, 3,000,000 bytes"
    assert last.startswith("scan: done after")


@pytest.mark.parametrize(("things", "one_thing"), [("tasks", "task"), ("items of keys and TAGS", "item of keys and TAGS")])
def test_one_thing_has_no_plural(things: str, one_thing: str, capsys: pytest.CaptureFixture[str]) -> None:
    stages = [Stage(Reporter([]), "compare", things, total, 0, lambda: (0, 0)) for total in (1, 2)]
    for stage in stages:
        progress_shown.Lines().stage_started(stage)
    one, two = capsys.readouterr().err.splitlines()
    assert (one, two) == (f"compare: 1 {one_thing}", f"compare: 2 {things}")


def test_lines_become_ever_more_seldom(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of a day that moves each half second."""
    lines, now = progress_shown.Lines(), [0.0]
    monkeypatch.setattr(Stage, "seconds", property(lambda _: now[0]))
    stage = Stage(Reporter([]), "scan", "ranges", 86400, 86400, lambda: (0, 0))
    lines.stage_started(stage)
    at: list[float] = []
    for half in range(1, 2 * 86400):
        now[0] = half / 2
        lines.stage_moved(stage, half // 2, half // 2)
        if capsys.readouterr().err.startswith(f"scan: {half // 2:,}/"):
            at.append(now[0])
    assert at[:3] == [5, 10, 15], "the first lines come each five seconds"
    pauses = [later - before for before, later in pairwise(at)]
    assert pauses == sorted(pauses)
    assert 30 < len(at) < 60


def test_lines_of_a_stage_with_a_pace(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    monkeypatch.setattr(progress_shown, "LINE_INTERVAL", 0.03)
    monkeypatch.setattr(progress, "_SECONDS", 0.05)
    asked: list[int] = []

    def probe() -> tuple[int, float]:
        asked.append(1)
        return 1, min(len(asked) / 100, 0.9)

    with Reporter([usual()]) as reporter, reporter.stage("scan", "ranges", 4, 16_000_000, probe):
        end = time.monotonic() + 60
        while len(asked) < 40 and time.monotonic() < end:
            time.sleep(0.01)
    lines = capsys.readouterr().err.splitlines()[1:-1]
    assert re.fullmatch(r"scan: 1/4 ranges, [\d,]+ bytes, \d+ MB/s, \d+ s left", lines[-1])
    assert re.fullmatch(r"scan: 1/4 ranges, [\d,]+ bytes", lines[0])


def shown_on_a_terminal(total_bytes: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a bar shows of a stage of four things, two of which are done, and which then ends."""
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    asked: list[int] = []

    def probe() -> tuple[int, float]:
        asked.append(1)
        return 2, 0.5

    screen = io.StringIO()
    bar = StageBars(Console(file=screen, force_terminal=True, width=120, legacy_windows=False))
    with Reporter([bar]) as reporter, reporter.stage("write", "buckets", 4, total_bytes, probe):
        end = time.monotonic() + 60
        # The bar is drawn ten times a second.
        while "2/4 buckets" not in screen.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    return screen.getvalue()


def test_a_bar_without_bytes_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(0, monkeypatch)
    assert "2/4 buckets" in shown
    assert "4/4 buckets" in shown
    assert "byte" not in shown
    assert "?" not in re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", shown)


def test_no_rate_is_shown_as_long_as_there_is_none_and_nothing_is_red() -> None:
    screen = io.StringIO()
    bar = StageBars(Console(file=screen, force_terminal=True, color_system="truecolor", width=120, legacy_windows=False))
    stage = Stage(Reporter([]), "scan", "ranges", 4, 4 << 20, lambda: (0, 0))
    with Reporter([bar]):
        bar.stage_started(stage)
        bar._bar.refresh()
        stage.share = 0.5
        bar.stage_moved(stage, 2, 2 << 20)
    shown = screen.getvalue()
    assert "0/4 ranges" in shown
    assert "2/4 ranges" in shown
    assert "?" not in re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", shown)
    red = re.findall(r"\x1b\[[0-9;]*(?:38;2;249;38;114|\b31)m", shown)
    assert red == [], "what goes well is not shown as an alarm"


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads compare at the same time: their lines must not run into each other."""
    written: list[str] = []

    class Kept(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr("sys.stderr", Kept())
    progress_shown.Lines().line("compare: index")
    assert written == ["compare: index\n"]


def test_a_bar_of_bytes_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = shown_on_a_terminal(4 << 20, monkeypatch)
    assert "2.0/4.0 MiB" in shown
    assert "4.0/4.0 MiB" in shown


def test_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with Reporter([usual()]) as reporter:
        reporter.line("[bold]a topic named like markup[/bold]")
    assert capsys.readouterr().err == "[bold]a topic named like markup[/bold]\n"


def test_the_summary_is_one_json_object() -> None:
    result, found = BuildResult(), Warnings()
    found.add_damage("0" * 20, 7, 8, "bad magic code")
    found.add_damage("0" * 20, 70, 8, "torn tail: zeros", lost=False)
    found.add_decision("fill", "topic\n\x1b", 3, 4, 5)
    found.add_to(result)
    told = json.loads(result.to_json())
    assert told["damage"][0] == {"segment": "0" * 20, "offset": 7, "length": 8, "reason": "bad magic code"}
    assert told["decisions"] == [{"kind": "fill", "topic": r"topic\n\x1b", "queue": 3, "offset": 4, "count": 5}]
    assert [w.split(":")[0] for w in told["warnings"]] == ["damage", "cut", r"queue topic\n\x1b/3"]
    assert "\n" not in result.to_json()
    assert result.to_text().startswith("read     0 bytes, 0 records\n")
