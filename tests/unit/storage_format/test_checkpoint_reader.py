"""A checkpoint read back, and what is wrong with its bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rocketmq_reindex.storage_format.checkpoints import SIZE, Checkpoint, read_checkpoint
from tests.golden.stores import NAMES, GoldenStore

NOW = 1_700_000_000_000


def codes(data: bytes) -> dict[str, tuple[int, int]]:
    return {finding.code: (finding.at, finding.count) for finding in read_checkpoint(data)[1]}


@pytest.mark.parametrize("name", NAMES)
def test_the_brokers_own(name: str, golden_store: Callable[[str], GoldenStore]) -> None:
    path = golden_store(name).path
    for file in (path / "checkpoint", path / "rebuilt" / "checkpoint"):
        assert codes(file.read_bytes()) == {}


def test_in_itself() -> None:
    data = Checkpoint(NOW, NOW, NOW).to_bytes()
    assert codes(data[:40]) == {"checkpoint-size": (40, 1)}
    assert codes(data[:17]) == {"checkpoint-size": (17, 1)}
    assert read_checkpoint(data[:16])[0] == Checkpoint(NOW, NOW, 0)
    assert codes(data[:-1] + b"\x01") == {"checkpoint-rest": (SIZE - 1, 1)}
    assert codes(b"\xff" * SIZE) == {"checkpoint-negative": (0, 6), "checkpoint-rest": (48, SIZE - 48)}
    assert codes(Checkpoint(NOW, NOW, NOW, -1, 8000).to_bytes()) == {"checkpoint-negative": (24, 1)}
