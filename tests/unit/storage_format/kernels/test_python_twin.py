"""The compiled loops and their plain Python twins say the same of one log: no overflow, sign or type is numba's alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

from tests import ROOT
from tests.tools.make_log import FEATURES, random_log
from tests.tools.twin_scan import everything

SEGMENT = 1 << 14


def test_the_twins_agree(tmp_path: Path, seed: int) -> None:
    random_log(tmp_path, seed, records=70, segment_size=SEGMENT, features=FEATURES, biggest_body=300)
    rng = random.Random(seed)
    for path in sorted(tmp_path.iterdir()):
        data = bytearray(path.read_bytes())
        data[rng.randrange(len(data) // 2)] ^= 0x10
        path.write_bytes(data)
    compiled = everything(tmp_path, SEGMENT)
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-m", "tests.tools.twin_scan", str(tmp_path), str(SEGMENT)],
        cwd=ROOT,
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kind, _, plain = done.stdout.partition("\n")
    assert kind == "plain"
    ours, theirs = json.loads(compiled), json.loads(plain)
    for version in ("5.5", "4.9"):
        assert ours[version]["units"], "an empty log says nothing"
        for part, value in theirs[version].items():
            assert ours[version][part] == value, f"{part}, RocketMQ {version}"
