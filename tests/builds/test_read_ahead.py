"""A build that loads its log ahead, and lets go of it behind, gives the bytes of one that does not."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import entries as file_entries
from rocketmq_reindex.files.entries import Ahead
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.make_log import random_log
from tests.tools.seeds import cases

KIB = 1 << 10


def tree(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # It has times.
    del found["reindex.json"]
    return found


def test_the_same_bytes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store, plain, other = tmp_path / "store", tmp_path / "plain", tmp_path / "other"
    random_log(store / "commitlog", seed, records=cases(4000, 1200), segment_size=1 << 20)
    assert local_build(store, plain, **SMALL).exit == 0

    begin, load = RangeScanner.__init__, Ahead._load
    loaded: list[tuple[int, int]] = []

    def in_chunks(self: RangeScanner, settings: ScanSettings) -> None:
        begin(self, dataclasses.replace(settings, chunk=32 * KIB))

    def counted(self: Ahead, sink: int, source: int, low: int, high: int) -> None:
        loaded.append((low, high))
        load(self, sink, source, low, high)

    monkeypatch.setattr(RangeScanner, "__init__", in_chunks)
    monkeypatch.setattr(Ahead, "_load", counted)
    monkeypatch.setattr(file_entries, "AHEAD_BYTES", 64 * KIB)
    monkeypatch.setattr(file_entries, "PIECE_BYTES", 32 * KIB)
    monkeypatch.setattr(files, "outgrows_cache", lambda size: size > 0)
    for segment in (store / "commitlog").iterdir():
        with segment.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert local_build(store, other, InlineEngine(), range_size=300 * KIB, **SMALL).exit == 0
    assert tree(other) == tree(plain)
    assert len(loaded) > cases(10, 3)
    assert not [thread for thread in threading.enumerate() if thread.name == "read-ahead"]
