"""Links, FIFOs, sockets, devices and folders where segments or DIR should be; gaps, overlaps and odd names among segments.

Each of 28 cases ends at once: built, or refused with the path and the reason; and nothing is written but below DIR.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fault.disk import SEGMENT, state, tiny_store, tree
from tests.tools.faulty_runs import command

SECOND = f"{SEGMENT:020d}"


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """Whatever waits for the other end of a FIFO is ended."""
    signal.alarm(60)
    yield
    signal.alarm(0)


@dataclass
class Place:
    """A store of two segments and DIR, to spoil; ``words`` are more options."""

    root: Path
    words: tuple[str, ...] = ()

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def log(self) -> Path:
        return self.store / "commitlog"

    @property
    def out(self) -> Path:
        return self.root / "place" / "out"

    @property
    def away(self) -> Path:
        return self.root / "away"

    def move_away(self, path: Path) -> Path:
        target = self.away / path.name
        path.rename(target)
        return target


def _socket(path: Path) -> None:
    # Its path has a limit of 108 bytes.
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"/proc/self/fd/{here}/{path.name}")
    os.close(here)


def _link(link: Path, target: str | Path) -> Path:
    link.symlink_to(target)
    return link


def linked_folder(p: Place) -> None:
    _link(p.log, p.move_away(p.log))


def linked_segment(p: Place) -> None:
    _link(p.log / SECOND, p.move_away(p.log / SECOND))


def linked_store(p: Place) -> None:
    (p.root / "real").mkdir()
    p.store.rename(p.root / "real" / "store")
    _link(p.store, p.root / "real" / "store")


def linked_parent_of_out(p: Place) -> None:
    p.out.parent.rmdir()
    _link(p.out.parent, p.away)


def out_links_to_empty_folder(p: Place) -> None:
    (p.away / "empty").mkdir()
    _link(p.out, p.away / "empty")


def segments_in_two_folders(p: Place) -> None:
    (p.root / "more").mkdir()
    (p.log / SECOND).rename(p.root / "more" / SECOND)
    p.words = ("--commitlog", str(p.log), "--commitlog", str(p.root / "more"))


BUILT = [linked_folder, linked_segment, linked_store, linked_parent_of_out, out_links_to_empty_folder, segments_in_two_folders]


def _replace(p: Place, make: Callable[[Path], object]) -> None:
    p.move_away(p.log / SECOND)
    make(p.log / SECOND)


def _log(p: Place, make: Callable[[Path], object]) -> None:
    p.move_away(p.log)
    make(p.log)


def _out(p: Place, make: Callable[[Path], object]) -> None:
    make(p.out)


def _conf(p: Place, path: str | Path) -> None:
    p.words = ("--broker-conf", str(path))


def _conf_fifo(p: Place) -> None:
    os.mkfifo(p.root / "conf")
    _conf(p, p.root / "conf")


def _overlapping_folders(p: Place) -> None:
    (p.root / "more").mkdir()
    (p.root / "more" / SECOND).write_bytes((p.log / SECOND).read_bytes())
    p.words = ("--commitlog", str(p.log), "--commitlog", str(p.root / "more"))


def _gap(p: Place) -> None:
    (p.log / SECOND).rename(p.log / f"{2 * SEGMENT:020d}")


def _lock(p: Place, make: Callable[[Path], object]) -> None:
    make(p.out.parent / ".out.rmq-reindex.lock")


REFUSED: dict[str, tuple[Callable[[Place], object], int, str]] = {
    "a segment is a FIFO": (lambda p: _replace(p, os.mkfifo), 1, f"{SECOND}: is no regular file"),
    "a segment is a socket": (lambda p: _replace(p, _socket), 1, f"{SECOND}: is no regular file"),
    "a segment is a device": (lambda p: _replace(p, lambda x: _link(x, "/dev/zero")), 1, f"{SECOND}: is no regular file"),
    "a segment is a terminal": (lambda p: _replace(p, lambda x: _link(x, "/dev/ptmx")), 1, f"{SECOND}: is no regular file"),
    "a segment is a folder": (lambda p: _replace(p, os.mkdir), 1, f"{SECOND}: is not a segment"),
    "a segment leads nowhere": (lambda p: _replace(p, lambda x: _link(x, "none")), 1, f"{SECOND}: cannot be followed"),
    "a segment leads to itself": (lambda p: _replace(p, lambda x: _link(x, SECOND)), 1, f"{SECOND}: cannot be followed"),
    "a link to a segment has an odd name": (lambda p: _link(p.log / "last", SECOND), 1, "last: is not a segment"),
    "the log is a FIFO": (lambda p: _log(p, os.mkfifo), 1, "commitlog: is not a folder"),
    "the log is a device": (lambda p: _log(p, lambda x: _link(x, "/dev/zero")), 1, "is not a folder"),
    "the log leads nowhere": (lambda p: _log(p, lambda x: _link(x, "none")), 1, "is not there"),
    "broker.conf is a FIFO": (_conf_fifo, 2, "conf: cannot be read"),
    "broker.conf is a device": (lambda p: _conf(p, "/dev/zero"), 2, "/dev/zero: cannot be read"),
    "DIR is a FIFO": (lambda p: _out(p, os.mkfifo), 1, "out: is not a folder"),
    "DIR is a device": (lambda p: _out(p, lambda x: _link(x, "/dev/null")), 1, "out: is not a folder"),
    "DIR leads nowhere": (lambda p: _out(p, lambda x: _link(x, p.away / "none")), 1, "is a link that leads nowhere"),
    "DIR leads into the store": (lambda p: _out(p, lambda x: _link(x, p.log)), 1, "lies inside"),
    "DIR's lock is a FIFO": (lambda p: _lock(p, os.mkfifo), 1, "lock: is no regular file"),
    "DIR's lock is a link": (lambda p: _lock(p, lambda x: _link(x, p.away / "none")), 1, "Too many levels of symbolic links"),
    "segments overlap": (lambda p: (p.log / SECOND).rename(p.log / f"{SEGMENT - 8:020d}"), 1, "overlaps segment"),
    "a segment in two folders": (_overlapping_folders, 1, f"{SECOND}: overlaps segment"),
    "a segment under a wrong name": (_gap, 5, "segment is misnamed"),
}  # fmt: skip


def _place(root: Path) -> Place:
    place = Place(root)
    tiny_store(place.store)
    place.out.parent.mkdir()
    place.away.mkdir()
    return place


def test_how_many() -> None:
    assert len(BUILT) + len(REFUSED) == 28


@pytest.mark.parametrize("case", BUILT)
def test_built(case: Callable[[Place], object], tmp_path: Path) -> None:
    """Links in the input are followed, and so is one that the user names as DIR; neither is changed."""
    place = _place(tmp_path)
    assert command(place.store, tmp_path / "plain")[0]["exit"] == 0
    case(place)
    links = {path: os.readlink(path) for path in tmp_path.rglob("*") if path.is_symlink()}
    before = state(place.store)
    summary, said = command(place.store, place.out, *place.words)
    assert summary["exit"] == 0, said
    assert tree(place.out) == tree(tmp_path / "plain")
    assert {path: os.readlink(path) for path in tmp_path.rglob("*") if path.is_symlink()} == links
    assert state(place.store) == before
    assert not [name for name in os.listdir(place.out.resolve().parent) if name.startswith(".out")]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, tmp_path: Path) -> None:
    spoil, status, reason = REFUSED[case]
    place = _place(tmp_path)
    spoil(place)
    before = state(tmp_path)
    summary, said = command(place.store, place.out, *place.words)
    assert (summary["exit"], summary["records"]) == (status, 0), said
    assert reason in summary["error"]
    assert said.count("error: ") == 1
    assert "Traceback" not in said
    after = state(tmp_path)
    # A run takes the lock beside DIR and lets it go.
    for changed in (place.out.parent, place.out.parent.resolve()):
        before.pop(str(changed), None)
        after.pop(str(changed), None)
    assert after == before
