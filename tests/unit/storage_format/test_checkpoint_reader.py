"""What a checkpoint says of its store, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_reindex.storage_format.checkpoint import SIZE, Checkpoint, StoreFacts, read_checkpoint
from rocketmq_reindex.storage_format.findings import CODES
from tests.golden.stores import NAMES, GoldenStore

NOW = 1_700_000_000_000
STORE = StoreFacts(log_start=1000, log_end=9000, last_time=NOW, last_unit_time=NOW - 5, index_ends=(NOW - 100, NOW))


def codes(data: bytes, store: StoreFacts | None = None) -> dict[str, tuple[int, int]]:
    return {finding.code: (finding.at, finding.count) for finding in read_checkpoint(data, store)[1]}


@pytest.mark.parametrize("name", NAMES)
def test_the_brokers_own(name: str, golden_store: Callable[[str], GoldenStore]) -> None:
    path = golden_store(name).path
    for file in (path / "checkpoint", path / "rebuilt" / "checkpoint"):
        assert codes(file.read_bytes()) == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ((NOW, NOW, NOW, 0, 8000), {}),
        ((NOW, NOW - 5, NOW, 0, 0), {}),
        ((0, NOW, NOW), {"checkpoint-stale": (0, 1)}),  # as the broker's own rebuild leaves it
        ((NOW, NOW - 6, NOW), {"checkpoint-stale": (8, 1)}),
        ((NOW + 1, NOW + 1, NOW), {"checkpoint-ahead": (0, 1)}),
        ((NOW, NOW, NOW - 1), {"checkpoint-index": (16, 1)}),
        ((NOW, NOW, 0), {"checkpoint-index": (16, 2)}),
        ((NOW, NOW, NOW, 0, 999), {}),
        ((NOW, NOW, NOW, 0, 9001), {"checkpoint-confirm": (32, 1)}),
        ((NOW, NOW, NOW, -1, 8000), {"checkpoint-negative": (24, 1)}),
    ],
)
def test_beside_its_store(fields: tuple[int, ...], expected: dict[str, tuple[int, int]]) -> None:
    data = Checkpoint(*fields).to_bytes()
    assert codes(data, STORE) == expected
    assert set(expected) <= set(CODES)
    assert read_checkpoint(data, STORE)[0] == Checkpoint(*fields)


def test_in_itself() -> None:
    data = Checkpoint(NOW, NOW, NOW).to_bytes()
    assert codes(data[:40]) == {"checkpoint-size": (40, 1)}
    assert codes(data[:17]) == {"checkpoint-size": (17, 1)}
    assert read_checkpoint(data[:16])[0] == Checkpoint(NOW, NOW, 0)
    assert codes(data[:-1] + b"\x01") == {"checkpoint-rest": (SIZE - 1, 1)}
    assert codes(b"\xff" * SIZE) == {"checkpoint-negative": (0, 5), "checkpoint-rest": (40, SIZE - 40)}
