"""Which stretches of a log show that a build belongs to a store."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.fetching.log_read import ReadLog, ReadSegment, Stretch

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
    chunks = tuple(Stretch(CHUNK * k, CHUNK * (k + 1), f"{k:032x}") for k in range(4))
    log = ReadLog((ReadSegment("0", 0, 4 * CHUNK),), end, (), chunks, "", 1, False, ())
    assert log.stretches({0}) == list(chunks[:wanted])


def test_one_chunk_shows_an_unchanged_log() -> None:
    chunk = Stretch(0, CHUNK, "0" * 32)
    assert ReadLog((ReadSegment("0", 0, CHUNK),), -1, (), (chunk,), "", 1, False, ()).stretches({0}) == [chunk]
