"""The answers that the SQL functions are tested with are RocketMQ's own, of the version that the tag items are of."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


def test_the_fixture_is_what_rocketmq_says() -> None:
    done = subprocess.run([HERE / "run", "5.5.0", "KnownAnswers"], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    kept = HERE / "known_answers.json"
    assert json.loads(done.stdout) == json.loads(kept.read_text(encoding="utf-8")), (
        "run KnownAnswers again and keep what it prints"
    )
