"""The folders of a commitlog are listed and checked: one clear line for the first thing that is wrong."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.commands import preflight, query
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.jobs.store.settings import (
    Commitlog,
    check_is_store,
    check_mends,
    check_unchanged,
    list_segments,
    roots_of,
)
from rocketmq_reindex.storage_format.errors import InputError


def put(folder: Path, start: int, size: int = 100, byte: bytes = b"x") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{start:020d}"
    path.write_bytes(byte * size)
    return path


def roots(*folders: Path) -> tuple[str, ...]:
    return tuple(map(str, folders))


def told(log: Commitlog) -> list[tuple[int, int, int]]:
    return [(s.start, s.data_end, s.segment_end) for s in log.segments]


def test_segments_in_order(tmp_path: Path) -> None:
    for start in (300, 100, 200):
        put(tmp_path, start)
    log = list_segments(roots(tmp_path), 0)
    assert told(log) == [(100, 200, 200), (200, 300, 300), (300, 400, 400)]
    assert (log.size, log.warnings) == (300, [])
    assert [s.path for s in log.segments] == [str(tmp_path / f"{start:020d}") for start in (100, 200, 300)]


def test_spread_over_roots(tmp_path: Path) -> None:
    """Also with a hole between, and an empty root: what is missing is damage, and not of this place."""
    put(tmp_path / "a", 0)
    put(tmp_path / "b", 100)
    put(tmp_path / "a", 500)
    (tmp_path / "c").mkdir()
    log = list_segments(roots(tmp_path / "a", tmp_path / "b", tmp_path / "c"), 0)
    assert [start for start, _, _ in told(log)] == [0, 100, 500]


def test_a_reason_has_one_printable_line(tmp_path: Path) -> None:
    """The reason of an OSError of pyarrow holds the path as it is."""
    with pytest.raises(InputError) as refused, failures_as_errors("x"), files.Reader(f"file://{tmp_path}/no\x1bsuch"):
        pass
    assert str(refused.value).isprintable()


def test_no_segments(tmp_path: Path) -> None:
    log = list_segments(roots(tmp_path), 0)
    assert (log.segments, log.size, log.warnings) == ([], 0, [])


def test_a_short_last_segment(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, 100, 30)
    log = list_segments(roots(tmp_path), 0)
    assert told(log)[-1] == (100, 130, 200)
    (warning,) = log.warnings
    assert "has 30 of 100 bytes" in warning


def test_one_segment_alone_is_whole_unless_its_size_is_given(tmp_path: Path) -> None:
    put(tmp_path, 0, 30)
    assert told(list_segments(roots(tmp_path), 0)) == [(0, 30, 30)]
    log = list_segments(roots(tmp_path), 100)
    assert (told(log), len(log.warnings)) == ([(0, 30, 100)], 1)


def test_links_to_segments_are_followed(tmp_path: Path) -> None:
    real = put(tmp_path / "real", 100)
    put(tmp_path / "log", 0)
    (tmp_path / "log" / real.name).symlink_to(real)
    assert told(list_segments(roots(tmp_path / "log"), 0)) == [(0, 100, 100), (100, 200, 200)]
    (tmp_path / "linked").symlink_to(tmp_path / "log")
    assert len(list_segments(roots(tmp_path / "linked"), 0).segments) == 2


ODD_NAMES = [
    "0",
    "1" * 19,
    "1" * 21,
    "0000000000000000000x",
    "-0000000000000000100",
    "٠" * 20,
    "00000000000000000100.bak",
    ".hidden",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names(tmp_path: Path, name: str) -> None:
    put(tmp_path, 0)
    (tmp_path / name).write_bytes(b"x" * 100)
    with pytest.raises(InputError, match="its name is not 20 digits") as caught:
        list_segments(roots(tmp_path), 0)
    assert str(caught.value).isascii()


def test_a_folder_among_segments(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").mkdir()
    with pytest.raises(InputError, match="is not a segment but a folder: move it out"):
        list_segments(roots(tmp_path), 0)


def test_offsets_beyond_any_commitlog(tmp_path: Path) -> None:
    (tmp_path / ("9" * 20)).write_bytes(b"x")
    with pytest.raises(InputError, match="or more than any offset"):
        list_segments(roots(tmp_path), 0)


def test_no_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{0:020d}")
    with pytest.raises(InputError, match="is no regular file"):
        list_segments(roots(tmp_path), 0)


def test_a_broken_link(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").symlink_to(tmp_path / "gone")
    with pytest.raises(InputError, match="mend or remove the link"):
        list_segments(roots(tmp_path), 0)


def test_missing_roots(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not there"):
        list_segments(roots(tmp_path / "none\n"), 0)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="is not a folder"):
        list_segments(roots(tmp_path / "file"), 0)


@pytest.mark.parametrize(
    ("sizes", "segment_size", "wrong"),
    [
        ({0: 100, 100: 90, 200: 100}, 0, 100),
        ({0: 100, 100: 110}, 0, 100),
        ({0: 90, 100: 100, 200: 100, 300: 100}, 0, 0),
        ({0: 100, 100: 100}, 50, 0),
        ({0: 100, 100: 0, 200: 100, 300: 100}, 0, 100),
        ({0: 0, 100: 0}, 0, 0),
    ],
)
def test_wrong_sizes(tmp_path: Path, sizes: dict[int, int], segment_size: int, wrong: int) -> None:
    for start, size in sizes.items():
        put(tmp_path, start, size)
    with pytest.raises(InputError, match=rf"/{wrong:020d}: .*give the right file or --segment-size"):
        list_segments(roots(tmp_path), segment_size)


@pytest.mark.parametrize("part", ["consumequeue", "batchconsumequeue", "index", "config"])
def test_a_part_of_a_store_is_no_folder_of_segments(part: str, tmp_path: Path) -> None:
    """Nobody is told to move a topic's queues out of it."""
    put(tmp_path / "commitlog", 0)
    (tmp_path / part / "Topic").mkdir(parents=True)
    with pytest.raises(
        InputError, match=rf"/{part}: is a part of a store, no folder of segments: did you mean .*/commitlog\?$"
    ):
        list_segments(roots(tmp_path / part), 0)


def test_a_segment_that_was_cut(tmp_path: Path) -> None:
    """No --segment-size helps there: the error names the command that takes such a log."""
    for start, size in {0: 100, 100: 90, 200: 100}.items():
        put(tmp_path, start, size)
    with pytest.raises(InputError, match="; if it was cut, rmq-reindex repair takes the log as it is"):
        list_segments(roots(tmp_path), 0)
    os.truncate(tmp_path / f"{100:020d}", 110)
    with pytest.raises(InputError, match=r"give the right file or --segment-size$"):
        list_segments(roots(tmp_path), 0)


@pytest.mark.parametrize(
    ("starts", "message"),
    [((0, 50), "overlaps segment 0{20}, which ends at 100"), ((0, 150), "is not a multiple of 100 bytes after the first")],
)
def test_wrong_places(tmp_path: Path, starts: tuple[int, int], message: str) -> None:
    for start in starts:
        put(tmp_path, start)
    with pytest.raises(InputError, match=message):
        list_segments(roots(tmp_path), 0)


def test_the_same_segment_in_two_roots(tmp_path: Path) -> None:
    put(tmp_path / "a", 0)
    put(tmp_path / "b", 0)
    with pytest.raises(InputError, match="overlaps"):
        list_segments(roots(tmp_path / "a", tmp_path / "b"), 0)


def test_a_change_during_the_run(tmp_path: Path) -> None:
    paths = [put(tmp_path, start) for start in (0, 100)]
    before = list_segments(roots(tmp_path), 0)
    check_unchanged(before, roots(tmp_path))
    stat = paths[0].stat()
    os.utime(paths[0], ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    with pytest.raises(InputError, match=re.escape(f"{paths[0]}: changed during the run")):
        check_unchanged(before, roots(tmp_path))
    os.utime(paths[0], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    check_unchanged(before, roots(tmp_path))
    more = put(tmp_path, 200)
    with pytest.raises(InputError, match=re.escape(f"{more}: appeared during the run")):
        check_unchanged(before, roots(tmp_path))
    more.unlink()
    paths[1].unlink()
    with pytest.raises(InputError, match=re.escape(f"{paths[1]}: changed during the run")):
        check_unchanged(before, roots(tmp_path))


def test_a_queue_that_is_taken_for_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its files have the names of segments."""
    queue = tmp_path / "a\nstore" / "consumequeue" / "T" / "0"
    queue.parent.mkdir(parents=True)
    put(tmp_path / "a\nstore" / "commitlog", 0)
    put(queue, 0)
    monkeypatch.chdir(queue)
    for named in (str(queue), "."):
        with pytest.raises(InputError, match=r": is no store: it is a part of a store: did you mean .*/a\\nstore\?$"):
            check_is_store(named)


def test_a_store_and_a_folder_of_segments_taken_for_each_other(tmp_path: Path) -> None:
    store, loose = tmp_path / "a\nstore", tmp_path / "loose"
    store.mkdir()
    (store / "config").mkdir()
    put(store / "commitlog", 0)
    put(loose, 0)
    with pytest.raises(
        InputError, match=r"a\\nstore: is a store, no folder of segments: did you mean .*/a\\nstore/commitlog\?$"
    ):
        list_segments(roots(store), 0)
    for wrong, meant in ((store / "commitlog", r"the store around it, .*/a\\nstore"), (loose, "--commitlog .*/loose")):
        with pytest.raises(InputError, match=rf": is no store: it holds segments: did you mean {meant}\?$"):
            list_segments((f"{wrong}/commitlog",), 0)
        for command in (preflight, query):
            words = [str(wrong)] if command is preflight else [str(wrong), "--topic", "T", "--key", "k"]
            assert command(words) == 1
    with pytest.raises(InputError, match="is not there: STORE is the folder around commitlog/"):
        list_segments((f"{tmp_path}/none/commitlog",), 0)


def test_a_node_of_dledger_that_is_taken_for_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also by a repair to a plain log, which does not say then that there is no log of DLedger."""
    node = tmp_path / "store" / "dledger-n0"
    node.mkdir(parents=True)
    put(node / "data", 0)
    monkeypatch.chdir(tmp_path / "store")
    for wrong in (str(node), f"{node}/data", "dledger-n0", "dledger-n0/data"):
        meant = ": is no store: it is the log of a node of DLedger: did you mean the store around it, "
        with pytest.raises(InputError, match=re.escape(f"{wrong}{meant}{tmp_path / 'store'}?")):
            list_segments(roots_of(wrong), 0)
        with pytest.raises(InputError, match=re.escape(f"{wrong}{meant}")):
            check_mends(roots_of(wrong), to_plain=True)
    with pytest.raises(InputError, match="none: is not there: STORE is the folder around commitlog/"):
        check_mends(roots_of(f"{tmp_path}/none"), to_plain=True)
    for inside in (node / "data", node):
        monkeypatch.chdir(inside)
        with pytest.raises(InputError, match=re.escape(f"did you mean the store around it, {tmp_path / 'store'}?")):
            list_segments(roots_of("."), 0)
    # It has an index of its own.
    put(node / "index", 0)
    assert preflight([str(node)]) == 1
    assert f"did you mean the store around it, {tmp_path / 'store'}?" in capsys.readouterr().err
