"""What stands at a file's end: a segment is as long as it was when it was listed, whatever its file has become since."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.storage_format.repair import RecordAt
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from rocketmq_reindex.udfs.repair.replicas import Walker, is_completed, record_bytes
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter, Put

SIZE = 1 << 12


@pytest.fixture
def puts(tmp_path: Path) -> list[Put]:
    with LogWriter(tmp_path, SIZE) as writer:
        for number in range(5):
            writer.append(Message("T", body=b"x" * 100, properties={"KEYS": f"key-{number}"}))
    return writer.puts


def cut(folder: Path, size: int, *more: bytes) -> Segment:
    """The segment with ``size`` bytes of its file, and what was written behind them since it was listed."""
    path = folder / f"{0:020d}"
    path.write_bytes(b"".join([path.read_bytes()[:size], *more]))
    return Segment(path.name, str(path), 0, size, SIZE)


@pytest.mark.parametrize("more", [b"", b"\xff" * 50, bytes(50)], ids=["none", "bytes", "zeros"])
def test_a_record_in_which_the_file_ends(more: bytes, puts: list[Put], tmp_path: Path) -> None:
    """With zeros behind it it is one, with other properties, as soon as all of its lengths are there."""
    last = puts[-1]
    whole = (tmp_path / f"{0:020d}").read_bytes()
    # The high byte of the properties' length is 0, as what fills the file up.
    properties = last.offset + last.size - len(b"KEYS\x01key-4\x02")
    for size in range(last.offset + 1, last.offset + last.size + 1):
        completed = is_completed(cut(tmp_path, size, more), last.offset)
        assert completed == (size >= properties), size
        (tmp_path / f"{0:020d}").write_bytes(whole)


def test_framed_records_up_to_the_end(puts: list[Put], tmp_path: Path) -> None:
    walker, last = Walker(ScanSettings()), puts[-1]
    offsets = [put.offset for put in puts]
    assert list(walker.framed(cut(tmp_path, SIZE), 0, SIZE)) == offsets
    assert list(walker.framed(cut(tmp_path, SIZE), 0, last.offset)) == offsets[:-1]
    assert list(walker.framed(cut(tmp_path, SIZE), last.offset, last.offset)) == []
    end = last.offset + last.size
    rest = (tmp_path / f"{0:020d}").read_bytes()[end - 1 :]
    for size, found in ((end, offsets), (end - 1, offsets[:-1])):
        for more in ((), (rest[size - end + 1 :],)):
            segment = cut(tmp_path, size, *more)
            assert list(walker.framed(segment, 0, SIZE)) == found
            assert list(walker.framed(segment, size, SIZE)) == list(walker.framed(segment, size + 1, SIZE)) == []


def test_the_bytes_of_a_files_last_record(puts: list[Put], tmp_path: Path) -> None:
    whole = (tmp_path / f"{0:020d}").read_bytes()
    segment = cut(tmp_path, puts[-1].offset + puts[-1].size)
    for put in puts:
        assert record_bytes(RecordAt(segment, put.offset, 0)) == whole[put.offset : put.offset + put.size]
