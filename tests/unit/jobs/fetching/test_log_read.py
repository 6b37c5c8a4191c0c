"""Which stretches of a log show that a build belongs to a store, and what the build says that it leaves out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching.build import DigestedBytes, ReadLog, ReadSegment
from tests.tools.compare import SMALL
from tests.tools.encode import Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

CHUNK = 100


@pytest.mark.parametrize(
    ("end", "wanted"),
    [
        # A broker may have written on in the last one.
        (-1, 3),
        (4 * CHUNK, 4),
        (4 * CHUNK - 1, 3),
    ],
)
def test_chunks_where_no_sample_is_there(end: int, wanted: int) -> None:
    """A chunk in front of the log's end has not changed; where the end is not known, the last one may have."""
    chunks = tuple(DigestedBytes(CHUNK * k, CHUNK * (k + 1), f"{k:032x}") for k in range(4))
    log = ReadLog((ReadSegment("0", 0, 4 * CHUNK),), end, (), chunks, "", 1, False, ())
    assert log.stretches({0}) == list(chunks[:wanted])


def test_one_chunk_shows_an_unchanged_log() -> None:
    chunk = DigestedBytes(0, CHUNK, "0" * 32)
    assert ReadLog((ReadSegment("0", 0, CHUNK),), -1, (), (chunk,), "", 1, False, ()).stretches({0}) == [chunk]


@pytest.mark.parametrize(("number", "more"), [(5, ""), (6, " ...")])
def test_a_build_of_some_topics_is_named_by_its_globs(
    number: int, more: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as there is room in one line."""
    names = [f"T{k}" for k in range(number)]
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for name in names:
            writer.append(Message(name))
    out = tmp_path / "out"
    assert local_build(tmp_path / "store", out, include_topics=tuple(names), **SMALL).exit == 0
    assert fetch([str(out), "--to", str(tmp_path / "store")]) != 0
    found = re.search(r"leaves something out \((.*?)\)", capsys.readouterr().err)
    assert found is not None
    assert found[1] == f"only topics T0, T1, T2, T3, T4{more}"
