"""The heads of single records: what stands at an offset, and how often a segment is opened for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.udfs.scan.segments import list_segments
from rocketmq_reindex.udfs.verify.queue_files import RecordHeads
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message


def test_a_segment_is_opened_once_for_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with LogWriter(tmp_path, 1 << 12) as writer:
        for number in range(60):
            writer.append(Message(topic=f"T{number % 2}", queue_offset=number // 2, body=bytes(40)))
        puts = writer.puts
    heads = RecordHeads(tuple(list_segments((str(tmp_path),), 1 << 12).segments))
    opened: list[str] = []

    class Counted(files.Reader):
        def __init__(self, path: str) -> None:
            opened.append(path)
            super().__init__(path)

    monkeypatch.setattr(files, "Reader", Counted)
    offsets = [put.offset for put in puts]
    found = heads.of_all(offsets)
    assert [(head.topic, head.queue_offset, head.size) for head in found if head] == [
        (f"T{number % 2}", number // 2, put.size) for number, put in enumerate(puts)
    ]
    assert len(opened) == len(list(tmp_path.iterdir())) > 1
    # In front of the log, inside a record, behind the log, and nothing at all.
    assert heads.of_all([-1, -(1 << 62), offsets[3] + 1, 1 << 40, offsets[3]]) == [None, None, None, None, found[3]]
    assert (heads.at(offsets[5]), RecordHeads(()).of_all([0]), heads.of_all([])) == (found[5], [None], [])
