"""What lies on disk while a run by processes of this machine goes on, and where that is full."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.fault.test_disk_full import wide_store
from tests.tools.faulty_disk import namespace
from tests.tools.faulty_processes import PATIENCE, ROOT, command
from tests.tools.faulty_runs import SIZES

WORDS = namespace()


def test_a_limit_on_file_sizes(tmp_path: Path) -> None:
    """``ulimit -f``, in blocks of 512 or 1024 bytes, counts for the workers as well."""
    store, place = wide_store(tmp_path / "store"), tmp_path / "place"
    place.mkdir()
    words = command(store, place / "out", *SIZES, "--engine=local", "--master=local[2]")
    limited = ["sh", "-c", 'ulimit -f 10; exec "$@"', "sh", *words]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
    assert (done.returncode, list(place.iterdir())) == (1, [])
    assert json.loads(done.stdout)["error"].endswith(": File too large: nothing was published")
    assert "Traceback" not in done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    """Nothing is published, nothing is left, and the line names a file on it. Where none may be mounted the limit counts."""
    if not WORDS:
        return
    store, disk = wide_store(tmp_path / "store"), tmp_path / "disk"
    disk.mkdir()
    asked = [*WORDS, sys.executable, "-m", "tests.fault.local_full_disk", str(store), str(disk), str(tmp_path / "runs")]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=PATIENCE, check=True)
    whole, little, filled = map(json.loads, done.stdout.splitlines())
    assert (whole["summary"]["exit"], whole["names"], whole["processes"]) == (0, ["out"], [])
    for found, said in ((little, "bytes where"), (filled, ": No space left on device: nothing was published")):
        assert (found["summary"]["exit"], found["names"], found["processes"]) == (1, [], [])
        assert said in found["summary"]["error"]
    assert filled["summary"]["error"].startswith(f"{disk}/place/.out.rmq-reindex-")
