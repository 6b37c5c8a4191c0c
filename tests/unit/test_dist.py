"""`make dist`: what it made is this tree, and the same files give the same bytes whenever they are packed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import dist
from tests.tools.faulty_processes import ROOT

PACKAGES = ("storage_format", "udfs", "jobs")
PACKAGE = "rocketmq_reindex"


def test_the_zip_is_the_tree() -> None:
    """Else `make dist` has not run since."""
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    here = {f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in paths}
    here |= {f"{PACKAGE}/{path.name}": path.read_bytes() for path in (ROOT / PACKAGE).glob("*.py")}
    with zipfile.ZipFile(dist.DIST / "rocketmq_reindex.zip") as archive:
        code = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
        conf = {name.rpartition("/")[2] for name in archive.namelist() if name.startswith(f"{PACKAGE}/conf/")}
    assert code == here
    assert {"spark-defaults.conf", "log4j2.properties"} <= conf
    (wheel,) = dist.DIST.glob("*.whl")
    assert wheel.read_bytes() == (dist.DIST / "rocketmq_reindex.zip").read_bytes()
    assert (dist.DIST / "rmq_reindex.py").read_bytes() == (ROOT / "jobs" / "cli.py").read_bytes()


def test_the_environment_has_what_the_jobs_import_and_not_spark() -> None:
    with tarfile.open(dist.DIST / "environment.tar.gz") as archive:
        members = {member.name: member for member in archive}
    top = {name.split("/")[1] for name in members if name.startswith("lib/")}
    assert {"numpy", "pyarrow", "numba", "llvmlite", "mmh3", "pandas", "rich", "delta"} <= top
    assert not top & {"pyspark", "py4j", "pytest", "atheris", *PACKAGES}
    assert list(members) == sorted(members)
    assert {(member.mtime, member.uid, member.uname) for member in members.values()} == {(0, 0, "")}
    assert members["bin/python"].mode == 0o755


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
