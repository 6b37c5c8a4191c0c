"""How far a command of one process is: said where it takes longer than a moment, on stderr, to whoever asked for it."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import reading
from rocketmq_reindex.jobs.commands import preflight, query
from rocketmq_reindex.jobs.inspecting import index, segment
from rocketmq_reindex.jobs.inspecting.options import inspect
from rocketmq_reindex.jobs.watching import watch
from rocketmq_reindex.jobs.watching.watch import Stages
from rocketmq_reindex.storage_format.checks import index as index_check
from rocketmq_reindex.storage_format.kernels import cache_folder
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.local_engine import local_build
from tests.tools.make_log import random_log


def test_each_stage_says_its_size_and_its_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "_SILENT", 0.0)
    with Stages(quiet=False, loop="") as told:
        told.begin("nothing", 0)
        told.begin("recover", 3 << 20)
        told.moved(1 << 20)
        told.moved(1 << 20)
        told.begin("compare", 2 << 20)
        told.moved(1 << 20)
        told.begin("done at once", 1 << 20)
        told.moved(1 << 20)
    begun, ended, *others = capsys.readouterr().err.splitlines()
    assert (begun, ended[:19]) == ("recover: 3,145,728 bytes", "recover: done after")
    assert [line[:20] for line in others] == ["compare: 2,097,152 b", "compare: done after "]


def test_a_stage_that_runs_no_loop_compiles_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(quiet=False, loop="no loop", loops={"read": ""}) as told:
        told.begin("read", 1)
        assert capsys.readouterr().err == ""
        told.begin("recover", 1)
    assert capsys.readouterr().err == "compiling the record loops, once (some 25 s)\n"


def test_a_file_that_is_not_mapped_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(bytes(range(250)))
    monkeypatch.setattr(watch, "_SILENT", 0.0)
    monkeypatch.setattr(reading, "_TOLD_BYTES", 100)
    monkeypatch.setattr(files.Reader, "view", lambda *_: None)
    with files.Reader(str(tmp_path / "file")) as reader, Stages(quiet=False, loop="") as told:
        assert reader.whole(told).tobytes() == bytes(range(250))
    assert [line.partition(":")[0] for line in capsys.readouterr().err.splitlines()] == ["read", "read"]


def test_it_begins_with_what_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    with Stages(quiet=False, loop="no loop") as told:
        told.begin("nothing", 0)
        assert capsys.readouterr().err == ""
        told.begin("recover", 1)
        told.begin("compare", 1)
    assert capsys.readouterr().err == "compiling the record loops, once (some 25 s)\n"


@pytest.mark.parametrize(("silent", "stages_shown"), [(0.0, 1), (60.0, 0)])
def test_a_command_says_it_and_a_short_one_does_not(
    silent: float, stages_shown: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    random_log(tmp_path / "commitlog", 1, records=50, segment_size=1 << 15)
    monkeypatch.setattr(watch, "_SILENT", silent)
    monkeypatch.setattr(cache_folder, "holds", lambda _: True)
    assert preflight([str(tmp_path), "--json"]) in (0, 4)
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if " done after " in line]) == stages_shown
    assert bool(lines) == bool(stages_shown)


def test_the_python_api_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "_SILENT", 0.0)
    with Stages(quiet=True, loop="no loop") as told:
        told.begin("recover", 2)
        told.moved(1)
    assert capsys.readouterr().err == ""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log that is read in small pieces, and one of its IndexFiles."""
    random_log(tmp_path / "commitlog", 1, records=50, segment_size=1 << 15)
    out = tmp_path.with_name(f"{tmp_path.name}-out")
    assert local_build(tmp_path, out, hash_slots=50, index_items=60).exit == 0
    shutil.move(min((out / "index").iterdir()), tmp_path)
    shutil.rmtree(out)
    begin = RangeScanner.__init__

    def in_chunks(self: RangeScanner, settings: ScanSettings) -> None:
        begin(self, dataclasses.replace(settings, chunk=4096))

    monkeypatch.setattr(RangeScanner, "__init__", in_chunks)
    monkeypatch.setattr(segment, "_CHUNK", 4096)
    for module in (index, index_check):
        monkeypatch.setattr(module, "ITEM_STEP", 8)
    monkeypatch.setattr(cache_folder, "holds", lambda _: True)
    return tmp_path


def asked_of(store: Path) -> list[tuple[Callable[[Sequence[str]], int], list[str], list[str]]]:
    """Each command that reads much of a log by itself: what runs it, its words, and its stages."""
    words = [str(store), "--topic", "TopicA", "--json"]
    of_index = next(path for path in store.iterdir() if path.name.isdigit())
    return [
        (query, [*words, "--key", "none", "--scan"], ["scan"]),
        (query, [*words, "--queue", "0", "--offset", "0", "--scan"], ["scan"]),
        (inspect, [str(next((store / "commitlog").iterdir())), "--json"], ["scan", "count"]),
        (inspect, [str(of_index), "--json"], ["check", "count"]),
    ]


@pytest.mark.parametrize("case", range(4))
@pytest.mark.parametrize("silent", [0.0, 60.0])
def test_what_reads_a_log_says_how_far_it_is(
    case: int, silent: float, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "_SILENT", silent)
    command, words, names = asked_of(store)[case]
    assert command(words) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.endswith(" bytes") or " done after " in line]
    ended = [line.partition(":")[0] for line in lines if " done after " in line]
    assert ended == ([] if silent else names)
    assert bool(lines) == bool(ended)


def test_it_moves_within_the_log(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes are told, no more, and more than once."""
    moved: list[int] = []
    monkeypatch.setattr(Stages, "moved", lambda _, size: moved.append(size))
    command, words, _ = asked_of(store)[0]
    assert command(words) == 0
    assert sum(moved) == sum(path.stat().st_size for path in (store / "commitlog").iterdir())
    assert len([size for size in moved if size]) > 1


def test_a_bar_leaves_the_answer_on_stdout(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "_SILENT", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    command, words, _ = asked_of(store)[1]
    assert command(words) == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["queueOffset"] for line in printed.out.splitlines()] == [0]
    assert "scan" in printed.err
    assert "queueOffset" not in printed.err
