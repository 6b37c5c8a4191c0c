"""The checkpoint: any bytes, beside a plain reading."""

from __future__ import annotations

import random
from dataclasses import astuple

from rocketmq_reindex.storage_format.checkpoints import SIZE, Checkpoint, read_checkpoint
from rocketmq_reindex.storage_format.errors import CODES

MAX_LEN = 4200
DICTIONARY = [b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\x80" + bytes(7), bytes(8)]


def check(data: bytes) -> None:
    padded = data.ljust(48, b"\0")
    values = [int.from_bytes(padded[at : at + 8], "big", signed=True) for at in range(0, 48, 8)]
    found, findings = read_checkpoint(data)
    assert list(astuple(found)) == values
    codes = {finding.code for finding in findings}
    assert codes <= set(CODES)
    assert {
        "checkpoint-size": len(data) != SIZE,
        "checkpoint-negative": min(values) < 0,
        "checkpoint-rest": any(data[48:]),
    } == {code: code in codes for code in ("checkpoint-size", "checkpoint-negative", "checkpoint-rest")}
    for finding in findings:
        assert 0 <= finding.at <= len(data) or finding.at in range(0, 48, 8)
        assert finding.count > 0
    if not codes & {"checkpoint-size", "checkpoint-rest"}:
        assert found.to_bytes() == data


def seeds(rng: random.Random) -> list[bytes]:
    times = [rng.choice((0, 1_700_000_000_000, 1_700_000_000_000 + rng.randrange(10**9))) for _ in range(30)]
    return [
        Checkpoint(times[k], times[k + 1], times[k + 2], 0, rng.randrange(1 << 40), rng.randrange(1 << 40)).to_bytes()[
            : rng.choice((SIZE, SIZE, 64, 30))
        ]
        for k in range(0, 27, 3)
    ]
