"""What a build will write, guessed from samples: near enough, whatever the last segment is filled with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.planning import check_free, dry_run_lines, sample, scan_settings
from rocketmq_reindex.jobs.store.settings import list_segments
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import counted
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


def expected_records(store: Path, **more: object) -> int:
    settings = BuildSettings(str(store), "out", **more)  # type: ignore[arg-type]
    log = list_segments(settings.roots, settings.segment_size)
    (line,) = (line for line in dry_run_lines(settings, scan_settings(settings), log) if line.startswith("expected"))
    return int(line.split()[2].replace(",", ""))


def make(store: Path, records: int, segment_size: int) -> None:
    with LogWriter(store / "commitlog", segment_size) as writer:
        for number in range(records):
            writer.append(Message(body=bytes(900), queue_id=number % 4, properties={"KEYS": f"k{number}"}))


@pytest.mark.parametrize(
    ("records", "segment_size"),
    [
        (60, 1 << 14),
        (300, 1 << 20),
        # A broker allocates a segment whole: a young store is one file with little in it.
        (300, 8 << 20),
    ],
)
def test_a_small_store_is_known(tmp_path: Path, records: int, segment_size: int) -> None:
    make(tmp_path, records, segment_size)
    assert 0.9 * records <= expected_records(tmp_path) <= 1.1 * records


@pytest.mark.parametrize(("until", "segments"), [(5, 1), (2 << 14, 2), (1 << 40, 5)])
def test_what_lies_behind_the_end_is_not_counted(tmp_path: Path, until: int, segments: int) -> None:
    """A plan says what the run reads of the log, and what it finds there."""
    make(tmp_path, 80, 1 << 14)
    settings = BuildSettings(str(tmp_path), str(tmp_path / "out"), until_offset=until, engine="local")
    log = list_segments(settings.roots, settings.segment_size)
    lines = list(dry_run_lines(settings, scan_settings(settings), log))
    built = local_build(tmp_path, tmp_path.with_name(f"{tmp_path.name}-built"), None, until_offset=until)
    assert lines[0].startswith(f"would read  {counted(segments, 'segment')} (")
    assert lines[0].endswith(f", {counted(built.bytes, 'byte')}")
    assert abs(expected_records(tmp_path, until_offset=until) - built.records) <= 1


def test_what_was_written_is_told(tmp_path: Path) -> None:
    """Nothing is said of parts that were left out."""
    make(tmp_path, 60, 1 << 14)
    told = {
        ("index", "checkpoint"): "wrote    60 items in 1 IndexFile",
        ("consumequeue",): "wrote    60 units in 4 ConsumeQueue files",
        ("checkpoint",): "wrote    the checkpoint",
        ("consumequeue", "index", "checkpoint"): "wrote    60 units in 4 ConsumeQueue files, 60 items in 1 IndexFile",
    }
    for number, (only, line) in enumerate(told.items()):
        summary = local_build(tmp_path, tmp_path.with_name(f"out-{number}"), None, only=only)
        assert line in summary.to_text().splitlines(), summary.error


def test_a_sample_leaves_the_rest_unread(tmp_path: Path) -> None:
    make(tmp_path, 9000, 16 << 20)
    settings = BuildSettings(str(tmp_path), "out")
    found = sample(scan_settings(settings), list_segments(settings.roots, 0))
    assert found.bytes <= 4 << 20
    assert (found.units, found.items, found.queues) == (found.records, found.records, 4)
    assert 3000 < found.records < 4300


def test_what_else_needs_room_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 60, 1 << 14)
    settings = BuildSettings(str(tmp_path), str(tmp_path / "out"))
    log = list_segments(settings.roots, settings.segment_size)
    monkeypatch.setattr(files, "free_bytes", lambda _: 0)
    check = partial(check_free, settings, scan_settings(settings), log, str(tmp_path))

    def needed(checked: Callable[[], None]) -> int:
        with pytest.raises(InputError, match="where 0 are free") as raised:
            checked()
        return int(str(raised.value).split(" bytes where")[0].split()[-1].replace(",", ""))

    alone = needed(check)
    assert needed(partial(check, besides=1000)) == alone + 1000
    monkeypatch.setattr(files, "free_bytes", lambda _: alone)
    check()
    with pytest.raises(InputError):
        check(besides=1)


def test_nothing_to_sample(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    assert expected_records(tmp_path) == 0
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 20))
    assert expected_records(tmp_path) == 0
