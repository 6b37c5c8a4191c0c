"""Digests of a segment's chunks are the same however the segment is cut into ranges and reads."""

from __future__ import annotations

import random
from collections.abc import Iterator

import mmh3
import numpy as np
import pytest
import xxhash

from rocketmq_reindex.storage_format import digest
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, ChunkDigests, new_digest

SMALL = 1000


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "CHUNK", SMALL)


def expected(data: bytes, start: int, chunk: int) -> dict[int, str]:
    return {start + at: xxhash.xxh3_128_digest(data[at : at + chunk]).hex() for at in range(0, len(data), chunk)}


def cut(rng: random.Random, low: int, high: int, most: int) -> Iterator[tuple[int, int]]:
    while low < high:
        end = min(high, low + rng.randrange(1, most))
        yield low, end
        low = end


@pytest.mark.usefixtures("small_chunks")
def test_any_split_gives_the_same(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        start, size = rng.choice((0, 7, 123_456)), rng.choice((0, 1, 999, 1000, 1001, 5000, 7777))
        data = rng.randbytes(size)
        end, found = start + size, dict[int, str]()
        for low, high in cut(rng, start, end, rng.choice((50, 3000, 9000))):
            digests = ChunkDigests(start, end, low, high)
            # A range is read at least to its end, on to where its last chunk ends, and some bytes twice.
            until, at = max(high, digests.wanted_until), low
            while at < until:
                stop = min(end, at + rng.randrange(1, 1500))
                again = max(low, at - rng.choice((0, 0, 10, 1200)))
                digests.feed(again, np.frombuffer(data[again - start : stop - start], np.uint8))
                at = stop
            assert all(low <= chunk < high for chunk in digests.chunks)
            assert not found.keys() & digests.chunks.keys()
            found |= digests.chunks
        assert found == expected(data, start, SMALL)


@pytest.mark.usefixtures("small_chunks")
def test_what_is_wanted() -> None:
    assert ChunkDigests(0, 2500, 0, 100).wanted_until == 1000
    assert ChunkDigests(0, 2500, 1, 1000).wanted_until == 0
    assert ChunkDigests(0, 2500, 1, 1001).wanted_until == 2000
    assert ChunkDigests(0, 2500, 900, 2400).wanted_until == 2500
    assert ChunkDigests(70, 2570, 70, 71).wanted_until == 1070
    begun = ChunkDigests(0, 2500, 0, 1500)
    begun.feed(0, np.zeros(1200, np.uint8))
    assert (begun.wanted_until, len(begun.chunks)) == (2000, 1)


def test_real_chunks() -> None:
    """Of 64 MiB, the last one shorter; a range that begins inside a chunk leaves that one to the range before."""
    size = 2 * digest.CHUNK + 5
    data = np.zeros(size, np.uint8)
    data[:: 1 << 20] = 7
    whole, part = ChunkDigests(0, size, 0, size), ChunkDigests(0, size, 1, size)
    for low in range(0, size, 40 << 20):
        view = data[low : low + (40 << 20)]
        whole.feed(low, view)
        part.feed(low, view)
    assert whole.chunks == expected(data.tobytes(), 0, digest.CHUNK)
    assert list(part.chunks) == [digest.CHUNK, 2 * digest.CHUNK]
    assert part.chunks.items() <= whole.chunks.items()


def test_the_digest_of_parts_is_that_of_all() -> None:
    parts: list[bytes | memoryview | np.ndarray[tuple[int], np.dtype[np.uint8]]] = [
        b"abc",
        memoryview(b"de"),
        np.frombuffer(b"fgh", np.uint8),
        b"",
    ]
    assert new_digest(parts).digest().hex() == new_digest([b"abcdefgh"]).digest().hex()
    assert len(new_digest().digest().hex()) == 32
    assert new_digest(parts).digest() == xxhash.xxh3_128_digest(b"abcdefgh")
    assert new_digest(parts, EARLIER_KIND).digest() == mmh3.mmh3_x64_128_digest(b"abcdefgh")
