"""A dry run refuses what the run itself would refuse of DIR, in the same words, and writes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex import files
from tests import ROOT
from tests.golden.stores import GoldenStore
from tests.local.wrong_world import state
from tests.tools.faulty_disk import namespace

WORDS = namespace()
READ_ONLY = 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"'
NOBODY = 65534


def errors(done: subprocess.CompletedProcess[str]) -> tuple[int, list[str]]:
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def told(store: Path, out: Path, *before: str, dry: bool) -> tuple[int, list[str]]:
    """The exit status and the errors of a build, as a process that runs behind the words ``before``."""
    words = [sys.executable, "-m", "rocketmq_reindex", "build", str(store), "--out", str(out), "--engine", "local"]
    asked = [*before, *words, *(["--dry-run"] if dry else [])]
    return errors(subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False))


@pytest.fixture
def store(golden_store: Callable[[str], GoldenStore]) -> Path:
    return golden_store("trimmed-head").path


@pytest.mark.parametrize("dry", [True, False])
def test_a_read_only_disk(dry: bool, store: Path, tmp_path: Path) -> None:
    if not WORDS:
        return
    disk, before = tmp_path / "disk", state(tmp_path)
    disk.mkdir()
    said = told(store, disk / "out", *WORDS, "sh", "-c", READ_ONLY, "sh", str(disk), dry=dry)
    line = f"error: {disk}/out: nothing can be written in {disk} (Read-only file system): name another folder"
    assert said == (1, [line])
    assert state(tmp_path).keys() - before.keys() == {str(disk)}


@pytest.mark.parametrize("dry", [True, False])
def test_a_file_system_of_the_kernel(dry: bool, store: Path) -> None:
    line = "error: /proc/x: nothing can be written in /proc (a file system of the kernel's own): name another folder"
    assert told(store, Path("/proc/x"), dry=dry) == (1, [line])


def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """Root's, asked by nobody; where the tests have no root, one that nobody may write to."""
    tmp_path.chmod(0o555)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        # What lies around it is not for nobody.
        os.chdir(tmp_path)
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        os.write(write, files.refuses(".").encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        assert answer.read() == "Permission denied"
    os.waitpid(child, 0)
    tmp_path.chmod(0o755)
    assert files.refuses(str(tmp_path)) == ""
    assert not list(tmp_path.iterdir())


def test_a_disk_without_room(store: Path, tmp_path: Path) -> None:
    if not WORDS:
        return
    small = READ_ONLY.replace("-o ro", "-o size=8k")
    status, lines = told(store, tmp_path / "out", *WORDS, "sh", "-c", small, "sh", str(tmp_path), dry=True)
    assert (status, len(lines)) == (1, 1)
    assert f"{tmp_path}/out: needs about " in lines[0]
