"""What stands for lost bytes, and how a new segment is put together."""

from __future__ import annotations

import struct

import pytest

from rocketmq_reindex.storage_format.repair import BLANK, COPY, FILLER, Demands, Piece, covered, lost_pieces, small_filler

PLAIN = Demands()
SEGMENT = (0, 10_000)


def _kinds(low: int, high: int) -> list[tuple[str, int, int]] | None:
    pieces = lost_pieces(low, high, SEGMENT, 7, PLAIN)
    return None if pieces is None else [(piece.kind, piece.low, piece.high) for piece in pieces]


@pytest.mark.parametrize(
    ("low", "high", "kinds"),
    [
        (100, 192, [(FILLER, 100, 192)]),
        (100, 191, None),
        (9_992, 10_000, [(BLANK, 9_992, 10_000)]),
        (9_993, 10_000, None),
        (0, 10_000, [(FILLER, 0, small_filler(PLAIN)), (BLANK, small_filler(PLAIN), 10_000)]),
        (0, 500, [(FILLER, 0, 500)]),
    ],
)
def test_lost_bytes(low: int, high: int, kinds: list[tuple[str, int, int]] | None) -> None:
    assert _kinds(low, high) == kinds


def test_a_segment_too_small_for_both_is_one_filler() -> None:
    size = small_filler(PLAIN) + 7
    pieces = lost_pieces(0, size, (0, size), 7, PLAIN)
    assert pieces is not None
    assert [(piece.kind, piece.size) for piece in pieces] == [(FILLER, size)]


def test_the_bytes_of_pieces() -> None:
    assert b"".join(Piece(BLANK, 50, 90).made())[:8] == struct.pack(">iI", 40, 0xCBD43194)
    filler = b"".join(Piece(FILLER, 50, 550, time=7, property_crc=True).made())
    assert len(filler) == 500
    assert b"__CRC32#" in filler
    assert list(Piece(COPY, 50, 90, "log").made()) == []


def test_copies_lie_between_pieces() -> None:
    new = [Piece(FILLER, 120, 220, range=0), Piece(BLANK, 280, 300, range=1)]
    found = [(piece.kind, piece.low, piece.high, piece.path, piece.range) for piece in covered(new, 100, 300, "log", 100)]
    assert found == [
        (COPY, 100, 120, "log", -1), (FILLER, 120, 220, "", 0), (COPY, 220, 280, "log", -1), (BLANK, 280, 300, "", 1),
    ]  # fmt: skip
