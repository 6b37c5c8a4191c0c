"""How far a preflight is: said where it takes longer than a moment, on stderr, to whoever asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.preflight import preflight
from rocketmq_reindex.jobs.preflighting import stages
from rocketmq_reindex.jobs.preflighting.stages import Stages
from tests.tools.make_log import random_log


def test_each_stage_says_its_size_and_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stages, "_SILENT", 0.0)
    with Stages(quiet=False) as told:
        told.begin("nothing", 0)
        told.begin("recover", 3 << 20)
        told.moved(1 << 20)
        told.moved(1 << 20)
        told.begin("compare", 1 << 20)
        told.moved(1 << 20)
    begun, ended, *others = capsys.readouterr().err.splitlines()
    assert (begun, ended[:19]) == ("recover: 3 MiB, 3,145,728 bytes", "recover: done after")
    assert [line[:20] for line in others] == ["compare: 1 MiB, 1,04", "compare: done after "]


@pytest.mark.parametrize(("silent", "lines"), [(0.0, 4), (60.0, 0)])
def test_a_command_says_it_and_a_short_one_does_not(
    silent: float, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random_log(tmp_path / "commitlog", 1, records=50, segment_size=1 << 15)
    monkeypatch.setattr(stages, "_SILENT", silent)
    assert preflight([str(tmp_path), "--json"]) in (0, 4)
    assert len(capsys.readouterr().err.splitlines()) == lines


def test_the_python_api_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(stages, "_SILENT", 0.0)
    with Stages(quiet=True) as told:
        told.begin("recover", 2)
        told.moved(1)
    assert capsys.readouterr().err == ""
