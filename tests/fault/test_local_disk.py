"""What lies on disk while a run by processes of this machine goes on, and where that is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

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
    # Python would keep what is cut off of its own compiled code, for all later runs.
    surroundings = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(limited, capture_output=True, text=True, cwd=ROOT, env=surroundings, timeout=PATIENCE, check=False)
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


FAILING: Final = """
import ctypes, os, sys
from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import output
target = sys.argv[1] + "/out"
with output.locked(target), output.staging(target) as staging:
    with files.writing(staging.temporary, files.join(staging.tree, "reindex.json"), soon=True) as writer:
        writer.append(os.urandom(32 << 20))
        writer.finish()
    told = [ctypes.CDLL(None).syncfs(os.open(sys.argv[1], os.O_RDONLY))]
    os.unlink(sys.argv[2])
    told += [ctypes.CDLL(None).syncfs(os.open(sys.argv[1], os.O_RDONLY)) for _ in range(2)]
    print(told, flush=True)
    output.publish(staging, target, False)
"""


def test_a_failed_write_of_which_another_process_was_told(tmp_path: Path) -> None:
    """Linux tells a handle that is opened later nothing more of it. The disk is a file that has no room for all at first."""
    thin, disk = tmp_path / "thin", tmp_path / "disk"
    mount = f"mount -t tmpfs -o size=32m none '{thin}' && truncate -s 200m '{thin}/image'"
    mount += f" && mkfs.ext4 -q -O ^has_journal '{thin}/image'"
    mount += f" && head -c 16m /dev/zero > '{thin}/filler' && mount -o loop '{thin}/image' '{disk}'"
    for folder in (thin, disk):
        folder.mkdir()
    if not WORDS or subprocess.run([*WORDS, "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("nothing may be mounted here")
    words = [*WORDS, "sh", "-c", f'{mount} && "$@"', "sh", sys.executable, "-c", FAILING, str(disk), str(thin / "filler")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "[-1, 0, 0]\n"), done.stderr
    assert "in sync" in done.stderr
    assert "OSError: " in done.stderr.splitlines()[-1]
