"""Stores that are none, or hostile, or lie in several places: one line that can be shown, and no more."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.preflighting import folders
from tests.tools import spoil
from tests.tools.no_override import bound_by_permissions
from tests.unit.jobs.preflighting.told import SEGMENT, SIZES, error_of, told


def test_no_store(tmp_path: Path) -> None:
    assert "is not a folder" in error_of(tmp_path / "none")
    assert "name the broker's store" in error_of(tmp_path)


@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "index"])
def test_a_folder_that_is_none(part: str, store: Path) -> None:
    shutil.rmtree(store / part)
    (store / part).touch()
    assert "is no folder" in error_of(store)


def test_a_file_of_an_odd_name(store: Path) -> None:
    (store / "commitlog" / "7").write_bytes(bytes(SEGMENT))
    assert "is not the offset of a file of its size" in error_of(store)


def test_as_many_files_as_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "commitlog").mkdir()
    for number in range(3):
        (tmp_path / "commitlog" / f"{number * SEGMENT:020d}").write_bytes(bytes(SEGMENT))
    monkeypatch.setattr(folders, "ENTRIES_MAX", 3)
    assert told(tmp_path).loads
    monkeypatch.setattr(folders, "ENTRIES_MAX", 2)
    assert "has more than 2 files" in error_of(tmp_path)


def test_too_many_files(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "ENTRIES_MAX", 5)
    assert "has more than 5 files" in error_of(store)


def hostile_topic(store: Path) -> None:
    (store / "consumequeue" / "a\x1b[31m\n\udcff" / "0").mkdir(parents=True)
    (store / "consumequeue" / "a\x1b[31m\n\udcff" / "0" / "x\n").write_bytes(b"x")


def fifo(store: Path) -> None:
    os.mkfifo(store / "consumequeue" / "T" / "0" / "00000000000000000001")


def loop(store: Path) -> None:
    (store / "commitlog" / "0").symlink_to("0")


def device(store: Path) -> None:
    (store / "index" / "20261121015957822").symlink_to("/dev/zero")


def huge(store: Path) -> None:
    with (store / "commitlog" / "00000000000000000000").open("r+b") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("spoil", [hostile_topic, fifo, loop, device, huge])
def test_hostile_files_are_refused_in_one_line_each(spoil: Callable[[Path], None], store: Path) -> None:
    spoil(store)
    found = told(store, **SIZES, segment_size=SEGMENT)
    assert (found.loads, found.exit_status) == (False, 4)
    assert found.refusals
    assert all(line.isprintable() for line in found.text.splitlines())
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()


def test_links_are_followed(store: Path, tmp_path: Path) -> None:
    """A commitlog on another disk."""
    shutil.move(store / "commitlog", tmp_path / "elsewhere")
    (store / "commitlog").symlink_to(tmp_path / "elsewhere")
    assert told(store).exit_status == 0


def test_a_folder_that_cannot_be_read(store: Path) -> None:
    (store / "consumequeue" / "T").chmod(0)
    with bound_by_permissions():
        assert "Permission denied" in error_of(store)


def test_several_roots(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "more"
    other.mkdir()
    for path in sorted((store / "commitlog").iterdir())[::2]:
        shutil.move(path, other / path.name)
    found = told(store, commitlog=[store / "commitlog", other])
    assert (found.exit_status, found.loads) == (0, True)
    os.truncate(max(other.iterdir()), 5)
    assert told(store, commitlog=[store / "commitlog", other]).refusals[0]["path"] == str(max(other.iterdir()))


def test_a_segment_that_was_cut(store: Path) -> None:
    """Zeros in its place would start the broker on a log that has lost messages, and nothing would say so."""
    cut = sorted((store / "commitlog").iterdir())[2]
    os.truncate(cut, 100)
    assert not [note for note in told(store).notes if "have no segment" in note], "it is there, and too short"
    found = told(store).losses[0]
    assert (found["kind"], found["advice"][0][:38]) == ("log-file-size", "if it was cut, put the whole file back")
    assert [command.split()[:2] for command in found["commands"]] == [["rmq-reindex", "repair"]]
    os.truncate(sorted((store / "commitlog").iterdir())[3], 100)
    found = told(store).losses[0]
    assert (found["count"], [command.split()[:2] for command in found["commands"]]) == (2, [["rmq-reindex", "repair"]])
    shutil.rmtree(store / "commitlog")
    (store / "commitlog").mkdir()
    cut.write_bytes(bytes(100))
    assert told(store, segment_size=SEGMENT).losses[0]["commands"][0].split()[0] == "truncate"


def test_segments_that_are_missing(store: Path) -> None:
    """The start itself loses nothing there, so the headline says that: a note says where to look."""
    segments = sorted((store / "commitlog").iterdir())
    assert not [note for note in told(store).notes if "look first" in note]
    segments[3].unlink()
    assert f"4,096 bytes of the log have no segment, from {3 * SEGMENT} on: look first" in "".join(told(store).notes)
    for segment in segments[-3:]:
        segment.unlink()
    found = told(store)
    assert found.exit_status == 0
    assert found.log is not None
    assert f"units, which the start cuts, behind the log's end at {found.log['max_offset']}: look first" in found.notes[-1]


def test_a_damaged_last_record_is_no_segment_that_is_missing(store: Path) -> None:
    spoil.bad_magic(store, -1)
    assert not [note for note in told(store).notes if "look first" in note]


def test_sizes_that_no_file_shows(store: Path, tmp_path: Path) -> None:
    """The build that is advised takes the defaults, which may not be the broker's."""

    def said(**given: Any) -> list[str]:
        return [note.partition(": the build")[0] for note in told(store, **given).notes if "no file shows" in note]

    assert said() == []
    shutil.rmtree(store / "index")
    assert said() == ["no file shows the sizes of IndexFiles"]
    (tmp_path / "broker.conf").write_text("maxHashSlotNum=100\nmaxIndexNum=400\n")
    assert said(broker_conf=tmp_path / "broker.conf") == []
    assert said(hash_slots=100, index_items=400) == []
