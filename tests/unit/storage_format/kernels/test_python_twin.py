"""The compiled loops and their plain Python twins say the same of one log: no overflow, sign or type is numba's alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.tools.make_log import FEATURES, random_log
from tests.tools.twin_scan import everything

SEGMENT = 1 << 14


@pytest.fixture(scope="module")
def plain() -> Iterator[subprocess.Popen[str]]:
    """A process whose loops are plain Python, as those of ``tests.tools.twin_scan``. It is started once for all seeds."""
    with subprocess.Popen(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.tools.twin_scan", str(SEGMENT)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "plain\n"
        yield process
        process.kill()


def test_the_twins_agree(tmp_path: Path, seed: int, plain: subprocess.Popen[str]) -> None:
    random_log(tmp_path, seed, records=70, segment_size=SEGMENT, features=FEATURES, biggest_body=300)
    rng = random.Random(seed)
    for path in sorted(tmp_path.iterdir()):
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data) // 2)] ^= 0x10
        path.write_bytes(data)
    compiled = everything(tmp_path, SEGMENT)
    assert plain.stdin is not None
    assert plain.stdout is not None
    print(tmp_path, file=plain.stdin, flush=True)
    told = plain.stdout.readline()
    assert told.startswith("{"), told + plain.stdout.read()
    ours, theirs = json.loads(compiled), json.loads(told)
    for version in ("5.5", "4.9"):
        assert ours[version]["units"], "an empty log says nothing"
        for part, value in theirs[version].items():
            assert ours[version][part] == value, f"{part}, RocketMQ {version}"
