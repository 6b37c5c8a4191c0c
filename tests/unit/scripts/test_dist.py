"""How `make dist` packs: the same files give the same bytes whenever they are packed."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from scripts import dist


def test_packing_says_nothing_of_when_and_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"lib/b.py": (b"b", 0o644), "bin/python": (b"#!/bin/sh", 0o755), "lib/a.py": (b"a" * 9999, 0o644)}
    digests = set()
    for name, order in (("one", 1), ("two", -1)):
        monkeypatch.setattr("time.time", lambda order=order: 1e9 + order)
        dist.pack(tmp_path / name, dict(list(members.items())[::order]))
        digests.add(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
    assert len(digests) == 1


def test_what_somebody_reads_stays_as_it_was(tmp_path: Path) -> None:
    target = tmp_path / "rocketmq_reindex.zip"
    target.write_bytes(b"old")
    with open(target, "rb") as reading:
        (tmp_path / "new").write_bytes(b"new")
        dist.put(tmp_path / "new", target)
        assert (reading.read(), target.read_bytes()) == (b"old", b"new")


@pytest.mark.parametrize("folder", ["plain", "with blank"])
def test_the_launcher_puts_its_packages_first(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder
    (place / "bin").mkdir(parents=True)
    launcher = place / "bin" / "python"
    launcher.write_text(dist.LAUNCHER)
    launcher.chmod(0o755)
    for number, given in enumerate(("", "/other")):
        words = [str(launcher) if number else "bin/python", "-c", "import sys; print(*sys.path, sep=chr(10))"]
        environment = os.environ | {"PYTHONPATH": given}
        done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=True)
        # Behind the folder of the script, here the empty one.
        assert done.stdout.split("\n")[1:2] == [str(place / "lib")]
        assert ("/other" in done.stdout) == bool(given)
