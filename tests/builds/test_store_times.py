"""Store times that no broker's clock should give: a build of such a log is clean, and so is what a broker itself leaves."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message
from tests.tools.seeds import cases

LEAST, MOST = -(2**63), 2**63 - 1
TIMES = {
    "all negative": [-5] * 40,
    "the last one negative": [*range(EPOCH, EPOCH + 39), -7],
    "negative and falling": [-(10**15) - k for k in range(40)],
    "the least there is": [LEAST] * 40,
    "the last one the least": [EPOCH] * 39 + [LEAST],
    "negative in the middle": [EPOCH] * 20 + [-5] * 10 + [EPOCH] * 10,
    "negative at the beginning": [-5] * 20 + [EPOCH] * 20,
    "zeros": [0] * 40,
    "the last one zero": [EPOCH] * 39 + [0],
    "backwards": [EPOCH + 10**9 - k * 10**5 for k in range(40)],
    "huge": [2**62] * 40,
    "huge both ways": [2**62, -(2**62)] * 20,
    "the most there is": [MOST] * 40,
    "the last one the most": [EPOCH] * 39 + [MOST],
    "the most in the middle": [EPOCH] * 20 + [MOST] * 10 + [EPOCH] * 10,
}


def log_of(store: Path, times: list[int]) -> Path:
    """A log of two queues, each record with a key."""
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for number, time in enumerate(times):
            writer.append(Message(topic=f"T{number % 2}", store_timestamp=time, properties={"KEYS": f"k{number}"}))
    return store


def check(store: Path, out: Path, policy: str, version: str) -> None:
    """A build of the store is what it should be, and a verify of it is clean."""
    built = local_build(store, out, checkpoint=policy, broker_version=version, **SMALL)
    assert (built.exit, built.warnings) == (0, [])
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), broker_version=version, **SMALL)
    assert (found.exit, kinds(found)) == (0, {}), found.to_text()


@pytest.mark.parametrize("version", ["4.9", "5.5"])
@pytest.mark.parametrize("policy", ["safe", "broker"])
@pytest.mark.parametrize("name", TIMES)
def test_a_build_is_clean(name: str, policy: str, version: str, tmp_path: Path) -> None:
    check(log_of(tmp_path / "store", TIMES[name]), tmp_path / "out", policy, version)


def test_random_times(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    values = (LEAST, -EPOCH, -1, 0, 1, EPOCH, EPOCH + 5, 1 << 50, MOST)
    for number in range(cases(15, 3)):
        store = log_of(tmp_path / f"{number}", [rng.choice(values) for _ in range(rng.randrange(1, 60))])
        check(store, tmp_path / f"{number}-out", rng.choice(("safe", "broker")), rng.choice(("4.9", "5.3", "5.4", "5.5")))


@pytest.mark.parametrize(("at", "times"), [(0, [EPOCH] * 40), (8, [EPOCH] * 40), (16, [-5] * 40), (32, [-5] * 40)])
def test_other_negative_fields_differ(at: int, times: list[int], tmp_path: Path) -> None:
    """A time that the log does not end with, and what is never negative."""
    store, out = log_of(tmp_path / "store", times), tmp_path / "out"
    local_build(store, out, broker_version="5.3", **SMALL)
    data = bytearray((out / "checkpoint").read_bytes())
    struct.pack_into(">q", data, at, -5)
    (out / "checkpoint").write_bytes(data)
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), broker_version="5.3", only=("checkpoint",), **SMALL)
    assert kinds(found).get("checkpoint-bytes") == 1, found.to_text()
