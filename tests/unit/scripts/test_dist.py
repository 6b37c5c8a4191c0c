"""How `make dist` packs: the same files give the same bytes whenever they are packed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
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


def test_a_zip_has_bytecode_that_python_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside each source, the same at any time. Another source beside it is not passed over (PEP 552)."""
    # To compile the loops takes a minute: tests/cluster has them.
    monkeypatch.setattr(dist, "carry", lambda _tree: None)
    source = "FOUND = {'one'}\n"
    with zipfile.ZipFile(tmp_path / "made.whl", "w") as wheel:
        wheel.writestr("package/__init__.py", "")
        wheel.writestr("package/inner.py", source)
        wheel.writestr("package-1.dist-info/METADATA", "Name: package\n")
    for name in ("one.zip", "two.zip"):
        dist.zipped(tmp_path / "made.whl", tmp_path / name)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as made, zipfile.ZipFile(tmp_path / "edited.zip", "w") as edited:
        for name in made.namelist():
            edited.writestr(name, "FOUND = 'new'\n" if name == "package/inner.py" else made.read(name))
    for name, taken in (("one.zip", "inner.pyc {'one'}"), ("edited.zip", "inner.py new")):
        asked = f"import sys; sys.path.insert(0, {str(tmp_path / name)!r})\n"
        asked += "from package import inner; print(inner.__file__, inner.FOUND)"
        done = subprocess.run([sys.executable, "-I", "-c", asked], capture_output=True, text=True, check=True)
        assert done.stdout == f"{tmp_path / name}/package/{taken}\n"


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
