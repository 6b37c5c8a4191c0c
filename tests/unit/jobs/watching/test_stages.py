"""How far a preflight is: said where it takes longer than a moment, on stderr, to whoever asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.preflight import preflight
from rocketmq_reindex.jobs.watching import stages
from rocketmq_reindex.jobs.watching.stages import Stages
from rocketmq_reindex.storage_format.kernels import cache_folder
from tests.tools.make_log import random_log


def test_each_stage_says_its_size_and_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stages, "_SILENT", 0.0)
    with Stages(quiet=False, loop="") as told:
        told.begin("nothing", 0)
        told.begin("recover", 3 << 20)
        told.moved(1 << 20)
        told.moved(1 << 20)
        told.begin("compare", 1 << 20)
        told.moved(1 << 20)
    begun, ended, *others = capsys.readouterr().err.splitlines()
    assert (begun, ended[:19]) == ("recover: 3 MiB, 3,145,728 bytes", "recover: done after")
    assert [line[:20] for line in others] == ["compare: 1 MiB, 1,04", "compare: done after "]


def test_it_begins_with_what_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(quiet=False, loop="no loop") as told:
        told.begin("nothing", 0)
        assert capsys.readouterr().err == ""
        told.begin("recover", 1)
        told.begin("compare", 1)
    assert capsys.readouterr().err == "compiling the record loops, once (some 25 s)\n"


@pytest.mark.parametrize(("silent", "lines"), [(0.0, 4), (60.0, 0)])
def test_a_command_says_it_and_a_short_one_does_not(
    silent: float, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random_log(tmp_path / "commitlog", 1, records=50, segment_size=1 << 15)
    monkeypatch.setattr(stages, "_SILENT", silent)
    monkeypatch.setattr(cache_folder, "holds", lambda _: True)
    assert preflight([str(tmp_path), "--json"]) in (0, 4)
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_the_python_api_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stages, "_SILENT", 0.0)
    with Stages(quiet=True, loop="no loop") as told:
        told.begin("recover", 2)
        told.moved(1)
    assert capsys.readouterr().err == ""
