"""What lies on disk while a run by processes of this machine goes on, and where that is full."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fault.test_disk_full import wide_store
from tests.tools.faulty_disk import namespace
from tests.tools.faulty_processes import PATIENCE, ROOT

WORDS = namespace()


@pytest.mark.skipif(not WORDS, reason="this user may not mount a small disk")
def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is published, nothing is left, and the line names a file on it."""
    store, disk = wide_store(tmp_path / "store"), tmp_path / "disk"
    disk.mkdir()
    asked = [*WORDS, sys.executable, "-m", "tests.local.full_disk", str(store), str(disk), str(tmp_path / "runs")]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=PATIENCE, check=True)
    whole, little, filled = map(json.loads, done.stdout.splitlines())
    assert (whole["summary"]["exit"], whole["names"], whole["processes"]) == (0, ["out"], [])
    for found, said in ((little, "bytes where"), (filled, ": No space left on device: nothing was published")):
        assert (found["summary"]["exit"], found["names"], found["processes"]) == (1, [], [])
        assert said in found["summary"]["error"]
    assert filled["summary"]["error"].startswith(f"{disk}/place/.out.rmq-reindex-")
