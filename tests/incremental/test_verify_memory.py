"""What incremental verifies keep below --tables: spoilt, led elsewhere, removed, and beside that of builds."""

from __future__ import annotations

import errno
import os
import shutil
import time
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.parts import VerifyMemory, scans_of
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.incremental.verify_world import Growing, known
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds


@pytest.mark.parametrize(("ending", "ranges"), [("block", 3), ("runs", 3), ("entry", 3), ("gone", 0)])
def test_a_memory_that_is_spoilt_is_no_difference(growing: Growing, ending: str, ranges: int) -> None:
    growing.verify()
    if ending == "gone":
        shutil.rmtree(growing.tables)
    else:
        folder = growing.scans / ("entries" if ending == "entry" else "data")
        path = next(path for path in sorted(folder.iterdir()) if path.name.endswith(ending) or ending == "entry")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    found = growing.verify()
    assert kinds(found) == {}
    assert known(found) == (ranges, 4)


def test_what_no_run_needs_is_removed(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    growing.verify()
    before = growing.data()
    growing.grow(60)
    growing.verify()
    # The last range grew: what was known of it is not needed any longer.
    assert len(before - growing.data()) == 2
    # Ranges of other settings stay for a week.
    growing.verify(crc="all")
    both = growing.data()
    growing.verify()
    assert growing.data() == both
    later = time.time_ns() + 8 * 24 * 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: later)
    growing.verify()
    # By this clock the run's own note is old as well: its ranges stay.
    assert len(growing.data()) == len(both) // 2
    assert known(growing.verify()) == (5, 5)


def test_while_another_run_is_under_way_nothing_is_removed(growing: Growing) -> None:
    growing.verify()
    other, before = growing.scans / "builds" / "run-of-another", growing.data()
    other.write_bytes(b"under way\n")
    growing.grow(60)
    growing.verify()
    assert before < growing.data()
    # One that died leaves its mark.
    os.utime(other, (0, 0))
    growing.verify()
    assert not before < growing.data()
    assert [path.name for path in (growing.scans / "builds").iterdir() if path.name.startswith("run-")] == []


def test_an_error_of_the_disk_forgets_no_ranges(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the note of a run with other settings cannot be read, what that run used is not known: nothing is removed."""
    growing.verify(crc="all")
    (note,) = (growing.scans / "builds").iterdir()
    read = files.read_bytes

    def failing(path: str, most: int | None = None) -> bytes:
        if path == str(note):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return read(path, most)

    monkeypatch.setattr(files, "read_bytes", failing)
    assert growing.verify().exit == 0
    with pytest.raises(OSError, match="Input/output error"):
        growing.verify(crc="all")
    monkeypatch.undo()
    assert known(growing.verify(crc="all")) == (4, 4)


def test_a_run_says_that_it_is_under_way(growing: Growing) -> None:
    """Others then remove nothing: what it has read is not needed by any that has ended."""
    growing.verify()
    settings = VerifySettings(
        str(growing.folder / "out"), commitlogs=(str(growing.log),), incremental=True, tables=str(growing.tables), **SMALL
    ).check()  # fmt: skip
    place = scans_of(settings)
    assert place is not None
    unused = growing.scans / "data" / "of-this.runs"
    with VerifyMemory(place, ScanSettings(), False, Leftovers()):
        unused.write_bytes(b"rows")
        growing.verify()
        assert unused.exists()
    growing.verify()
    assert not unused.exists()


def test_what_a_run_writes_that_begins_meanwhile_stays(growing: Growing, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins when the one that ends has looked whether another is under way."""
    growing.verify()
    listing = files.listing

    def then_another_begins(folder: str) -> list[files.Entry]:
        found = listing(folder)
        if folder == str(growing.scans / "builds"):
            (growing.scans / "data" / "of-another.runs").write_bytes(b"rows")
        return found

    monkeypatch.setattr(files, "listing", then_another_begins)
    growing.verify()
    assert "of-another.runs" in growing.data()
    monkeypatch.undo()
    growing.verify()
    assert "of-another.runs" not in growing.data()


def test_a_memory_that_leads_elsewhere_is_refused(growing: Growing) -> None:
    """Whoever can write to --tables must not have other folders emptied."""
    growing.verify()
    mine = growing.folder / "mine"
    mine.mkdir()
    (mine / "file").write_bytes(b"mine")
    shutil.rmtree(growing.scans / "data")
    (growing.scans / "data").symlink_to(mine)
    found = growing.verify()
    assert found.exit == 1
    assert found.error is not None
    assert "is a symbolic link: remove it" in found.error
    assert [path.name for path in mine.iterdir()] == ["file"]


def test_a_verify_and_a_build_keep_their_own(growing: Growing) -> None:
    """In the same --tables; neither removes what the other keeps, and a verify reads what a build read itself."""
    words: dict[str, Any] = {"incremental": True, "tables": str(growing.tables), "overwrite": True, **SMALL}
    shutil.rmtree(growing.folder / "out")
    for _ in range(2):
        assert local_build(growing.log.parent, growing.folder / "out", **words).exit == 0
        assert growing.verify().exit == 0
    assert known(growing.verify()) == (4, 4)
    assert len(list((growing.tables / "_scans").iterdir())) == 2
