"""What a run says of itself: it moves within a range, an IndexFile and a verify's compare, and its time left comes true."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.watching.progress import Reporter, Shown, Stage
from rocketmq_reindex.storage_format.checks.queues import UnitChecker
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.scan.ranges import SegmentReader
from rocketmq_reindex.udfs.verify import items
from rocketmq_reindex.udfs.verify.index import CheckIndex, IndexFileCheck, ListedIndexFile
from rocketmq_reindex.udfs.write import index as write_index
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.local_verify import run_verify
from tests.tools.log_writer import LogWriter

CHUNK = 16384
RECORDS = 3600
SECONDS = 4.0
"""What the scan takes, and the writing of the IndexFile."""


class Kept(Shown):
    """All that is told: (stage, seconds since it began, things, bytes, share, time left)."""

    def __init__(self) -> None:
        self.moves: list[tuple[str, float, int, int, float, float | None]] = []
        self.ended: dict[str, float] = {}

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        self.moves.append((stage.name, stage.seconds, things, size, stage.share, stage.pace.left))

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        _ = failed
        self.ended[stage.name] = stage.seconds

    def of(self, name: str) -> list[tuple[float, int, int, float, float | None]]:
        return [move[1:] for move in self.moves if move[0] == name]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of one range, and one IndexFile, that take SECONDS each."""
    begin, view, chunks = RangeScanner.__init__, SegmentReader.view, write_index.chunks

    def in_chunks(self: RangeScanner, settings: ScanSettings) -> None:
        begin(self, dataclasses.replace(settings, chunk=CHUNK))

    def slow_view(self: SegmentReader, at: int, count: int) -> npt.NDArray[np.uint8] | None:
        size = os.path.getsize(self._reader.path)
        time.sleep(SECONDS * CHUNK / size)
        return view(self, at, count)

    def slow_chunks(stretches: tuple[Any, ...]) -> Iterator[npt.NDArray[np.void]]:
        items = sum(stretch.count for stretch in stretches)
        for chunk in chunks(stretches):
            for part in np.array_split(chunk, 50):
                time.sleep(SECONDS / 2 * len(part) / items)
                yield part

    monkeypatch.setattr(RangeScanner, "__init__", in_chunks)
    monkeypatch.setattr(SegmentReader, "view", slow_view)
    monkeypatch.setattr(write_index, "chunks", slow_chunks)


@pytest.mark.usefixtures("slow")
def test_it_moves_within_a_range_and_its_time_left_comes_true(tmp_path: Path) -> None:
    store, out, kept = tmp_path / "store", tmp_path / "out", Kept()
    with LogWriter(store / "commitlog", 2 << 20) as writer:
        for number in range(RECORDS):
            writer.append(Message(queue_id=number % 8, body=bytes(400), properties={"KEYS": f"key-{number}"}))
    with Reporter([kept]) as reporter:
        summary = run_build(BuildSettings(str(store), str(out)).check(), single(InlineEngine()), reporter)
    assert summary.exit == 0, summary.error
    assert [path.name for path in tmp_path.iterdir() if path not in (store, out)] == [], "nothing is left beside DIR"
    for name in ("scan", "write"):
        moves, end = kept.of(name), kept.ended[name]
        assert end > SECONDS / 2
        inside = [share for _, _, _, share, _ in moves if 0 < share < 1]
        assert len(set(inside)) >= 4, "told within one range, or one file"
        assert inside == sorted(inside)
        first = next(seconds for seconds, _, _, share, _ in moves if share)
        assert first < end / 2, "half a second until the task writes, half until the driver looks, and a busy machine"
        lefts = [(seconds, left) for seconds, _, _, _, left in moves if left is not None]
        assert lefts
        for seconds, left in lefts:
            if end - seconds > end / 2:
                assert 1 / 4 < left / (end - seconds) < 4, (name, seconds, left, end)
    scan = kept.of("scan")
    size = os.path.getsize(next((store / "commitlog").iterdir()))
    assert all(0 <= done <= size for _, _, done, _, _ in scan)
    assert any(things == 0 and done > 0 for _, things, done, _, _ in scan)


@pytest.fixture
def slow_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison of units, and one of items, that take SECONDS each."""
    expect, compare, begin = UnitChecker.expect, items._compare, RangeScanner.__init__

    def in_chunks(self: RangeScanner, settings: ScanSettings) -> None:
        begin(self, dataclasses.replace(settings, chunk=CHUNK))

    def slow_expect(self: UnitChecker, rows: npt.NDArray[np.int64]) -> None:
        time.sleep(SECONDS * rows.shape[1] / RECORDS)
        expect(self, rows)

    def slow_items(tables: Any, staged: npt.NDArray[np.void], *rest: Any) -> None:
        time.sleep(SECONDS * len(staged) / RECORDS)
        compare(tables, staged, *rest)

    monkeypatch.setattr(RangeScanner, "__init__", in_chunks)
    monkeypatch.setattr(UnitChecker, "expect", slow_expect)
    monkeypatch.setattr(items, "_compare", slow_items)
    monkeypatch.setattr(items, "PIECE_ITEMS", RECORDS // 50)


@pytest.mark.usefixtures("slow_compare")
def test_a_verify_moves_within_its_compare(tmp_path: Path) -> None:
    store, kept = tmp_path / "store", Kept()
    with LogWriter(store / "commitlog", 1 << 16) as writer:
        for number in range(RECORDS):
            writer.append(Message(queue_id=0, body=bytes(400), properties={"KEYS": f"key-{number}"}))
    assert local_build(store, tmp_path / "out", broker_version="5.3").exit == 0
    for name in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "out" / name).rename(store / name)
    with Reporter([kept]) as reporter:
        summary = run_verify(VerifySettings(str(store)).check(), reporter=reporter)
    assert (summary.exit, summary.findings) == (0, []), summary.error
    for name in ("compare consumequeue", "compare index"):
        inside = [(done, share) for _, done, _, share, _ in kept.of(name) if 0 < share < 1]
        assert len(set(inside)) >= 4, name
        assert inside == sorted(inside)
        assert all(abs(done - share * RECORDS) <= 1 for done, share in inside), "units and items, not tasks"


def test_a_check_of_the_index_that_outlasts_the_scan_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, kept, check = tmp_path / "store", Kept(), CheckIndex._check

    def slow(self: CheckIndex, file: ListedIndexFile) -> IndexFileCheck:
        time.sleep(1.5)
        return check(self, file)

    with LogWriter(store / "commitlog", 1 << 16) as writer:
        for number in range(60):
            writer.append(Message(queue_id=0, body=bytes(400), properties={"KEYS": f"key-{number}"}))
    assert local_build(store, tmp_path / "out", index_items=32).exit == 0
    (tmp_path / "out" / "index").rename(store / "index")
    monkeypatch.setattr(CheckIndex, "_check", slow)
    with Reporter([kept]) as reporter:
        wanted = VerifySettings(str(store), only=("index",), index_items=32, named=frozenset({"index_items"}))
        run_verify(wanted.check(), reporter=reporter)
    assert {things for _, things, _, _, _ in kept.of("check index")} >= {1}
