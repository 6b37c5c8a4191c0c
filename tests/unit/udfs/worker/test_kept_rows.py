"""Rows in files come back as they were: by kind and key, without ranges, sorted by bucket and sort key, in small batches."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.worker import tasks
from rocketmq_reindex.udfs.worker.tasks import CellFolders, Number, PlacedTask, Placing, Reduce, RowsWriter, read_rows


def some_rows(rng: random.Random, count: int) -> list[handover.Row]:
    """Rows of all kinds, also with empty cells."""
    return [
        handover.Row(
            rng.randrange(4),
            rng.randrange(1 << 31),
            rng.randrange(3),
            rng.randrange(-1, 5),
            rng.randbytes(rng.choice((0, 1, 20, 3000))),
            rng.randrange(-(1 << 62), 1 << 62),
        )
        for _ in range(count)
    ]


def write(path: Path, rows: list[handover.Row]) -> list[bytes]:
    with RowsWriter(str(path)) as writer:
        return [data for batch in handover.batches(rows) for data in writer.take(batch)]


def read(paths: list[Path], kind: int, left_out: list[int], key: int | None = None) -> Iterator[handover.Row]:
    # Of summaries alone no file is made, and no other task is sent there.
    for batch in read_rows([str(path) for path in paths if path.exists()], kind, left_out, key):
        batch.validate(full=True)
        assert batch.num_rows <= tasks.BATCH_ROWS
        yield from handover.rows_of(batch)


def order(row: handover.Row) -> tuple[int, int]:
    return row.bucket, row.sort_key


@pytest.mark.parametrize("held", [1, 5000, 1 << 24])
def test_rows_come_back(held: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(tasks, "HELD_BYTES", held)
    monkeypatch.setattr(tasks, "BATCH_BYTES", rng.choice((1, 7000, 1 << 22)))
    monkeypatch.setattr(tasks, "BATCH_ROWS", rng.choice((1, 7, 4096)))
    rows, paths = list[handover.Row](), list[Path]()
    for number in range(3):
        mine = some_rows(rng, rng.randrange(1, 200))
        paths.append(tmp_path / f"{number}")
        told = write(paths[-1], mine)
        assert told == [row.data for row in mine if row.kind == handover.SUMMARY]
        rows += mine
    for kind in range(1, 4):
        for left_out in ([], [-1, 2], list(range(-1, 5))):
            wanted = [row for row in rows if row.kind == kind and row.range_number not in left_out]
            assert sorted(read(paths, kind, left_out)) == sorted(wanted)
            for key in range(4):
                found = list(read(paths, kind, left_out, key))
                assert sorted(found) == sorted(row for row in wanted if row.key == key)
                assert [order(row) for row in found] == sorted(order(row) for row in found)


def test_rows_of_one_place_stay_in_their_order(tmp_path: Path) -> None:
    rows = [handover.Row(handover.UNITS, 3, 0, 1, b"%d" % number) for number in range(100)]
    write(tmp_path / "rows", rows)
    assert list(read([tmp_path / "rows"], handover.UNITS, [], 0)) == rows


def test_no_file_without_rows(tmp_path: Path) -> None:
    with RowsWriter(str(tmp_path / "rows")) as writer:
        (batch,) = handover.batches([handover.summary(1, b"{}")])
        assert writer.take(batch) == [b"{}"]
    assert not writer.wrote
    assert list(tmp_path.iterdir()) == []
    assert list(read_rows([], handover.UNITS, [], 0)) == []


def test_a_file_that_was_cut_is_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write(path, [handover.Row(handover.UNITS, 3, 0, 1, b"x" * 100)])
    whole = path.read_bytes()
    path.write_bytes(whole[:50] + whole[-40:])
    with pytest.raises(OSError, match="ends within its rows"):
        list(read_rows([str(path)], handover.UNITS, [], 0))


def test_results_of_tasks(tmp_path: Path) -> None:
    """The texts of all batches that a function makes of a number, and of rows."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([pa.array([f"{batch.num_rows}", batch.schema.names[0]])], ["result"])

    assert Number(tell, 7)() == ["1", "id"]
    write(tmp_path / "rows", [handover.Row(handover.UNITS, 3, 0, number, b"x") for number in range(4)])
    assert Reduce(tell, (str(tmp_path / "rows"),), handover.UNITS, (), 0)() == ["4", handover.ROWS.names[0]]


@dataclass(frozen=True)
class Gives:
    """Makes rows of no input, in batches of so many."""

    rows: tuple[handover.Row, ...]
    each: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert not list(batches)
        for low in range(0, len(self.rows), self.each):
            yield from handover.batches(self.rows[low : low + self.each])


@pytest.mark.parametrize("folders", [1, 2])
def test_cells_in_files_come_back(folders: int, seed: int, tmp_path: Path) -> None:
    """What passes from task to task names the file of a long cell; summaries and short cells are in the rows."""
    rng = random.Random(seed)
    places = tuple(str(tmp_path / f"{number}") for number in range(folders))
    for place in places:
        os.mkdir(place)
    cells = CellFolders(places, rng.randbytes(16))
    rows = tuple(some_rows(rng, 60))
    sent = [batch for each in (1, 7) for batch in Placing(Gives(rows, each), cells)(iter(()))]
    for row in (row for batch in sent for row in handover.rows_of(batch)):
        assert row.kind == handover.SUMMARY or len(row.data) <= tasks._PLACE.itemsize
    # Two attempts, whose rows mix.
    assert sum(len(os.listdir(place)) for place in places) == 2
    back = list(PlacedTask(lambda batches: batches, cells)(iter(sent)))
    assert [row for batch in back for row in handover.rows_of(batch)] == [*rows, *rows]
    # A batch of places is small, the cells in their place may not be.
    (many,) = pa.Table.from_batches(sent).combine_chunks().to_batches()
    assert max(batch.num_rows for batch in PlacedTask(lambda batches: batches, cells)(iter([many]))) == tasks._TOGETHER


def test_a_slice_of_a_batch_is_placed(tmp_path: Path) -> None:
    """Its cells do not begin where its buffer does."""
    cells = CellFolders((str(tmp_path),), bytes(16))
    rows = [handover.Row(handover.UNITS, 0, 0, 0, bytes([65 + k]) * 100, k) for k in range(9)]
    (whole,) = handover.batches(rows)
    (sent,) = Placing(lambda _: iter([whole.slice(3, 4)]), cells)(iter(()))
    assert list(handover.rows_of(cells.whole(sent))) == rows[3:7]


def test_an_attempt_that_fails_leaves_no_cells(tmp_path: Path) -> None:
    """Its task may be tried again while its folder is there."""

    def fails(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from handover.batches([handover.Row(handover.UNITS, 0, 0, 0, b"x" * 100, 1)])
        assert len(list(tmp_path.iterdir())) == 1
        raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        list(Placing(fails, CellFolders((str(tmp_path),), bytes(16)))(iter(())))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["nothing", "a file"])
def test_a_worker_without_the_folder_sends_cells(there: str, tmp_path: Path) -> None:
    if there == "a file":
        (tmp_path / "elsewhere").touch()
    cells = CellFolders((str(tmp_path / "elsewhere"),), b"m" * 16)
    rows = (handover.Row(handover.UNITS, 0, 0, 0, b"x" * 100, 1),)
    sent = list(Placing(Gives(rows, 1), cells)(iter(())))
    assert [row for batch in sent for row in handover.rows_of(batch)] == list(rows)
    assert [row for batch in sent for row in handover.rows_of(cells.whole(batch))] == list(rows)
