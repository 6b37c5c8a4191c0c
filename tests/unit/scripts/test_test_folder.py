"""Where `make test` keeps what its tests write."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "test-folder"
USE = 'printf %s "$TMPDIR"; [ -z "$TMPDIR" ] || : >"$TMPDIR/left"; exit 3'


def used(**given: str) -> str:
    """The TMPDIR of a command that writes a file there and fails."""
    environment = {name: value for name, value in os.environ.items() if name != "TMPDIR"} | given
    done = subprocess.run([SCRIPT, "sh", "-c", USE], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    return done.stdout


def test_a_command_that_fails_leaves_nothing_in_memory() -> None:
    """Where memory is short the command has the usual folder."""
    folder = used()
    assert not folder or (folder.startswith("/dev/shm/rmq-reindex-test.") and not Path(folder).exists())


def test_a_folder_of_the_users_is_kept(tmp_path: Path) -> None:
    assert used(TMPDIR=str(tmp_path)) == str(tmp_path)
    assert (tmp_path / "left").exists()
