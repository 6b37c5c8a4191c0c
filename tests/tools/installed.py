"""The wheel in an environment of its own, outside the checkout. All other packages come from the project's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from rocketmq_reindex.storage_format.kernels import cache_folder
from tests.tools.faulty_processes import ROOT


@dataclass(frozen=True)
class Installed:
    """``folder`` is a virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "bin" / "rmq-reindex"

    @property
    def packages(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def compiled(self) -> dict[str, str]:
        """The environment with which it finds what the checkout has compiled: the same sources have the same stamp."""
        return {cache_folder.VARIABLE: str(self.folder / "compiled")}


def uv(*words: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "uv", *words], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def install(wheel: Path, folder: Path) -> Installed:
    """Install a wheel, and nothing else, into a new environment."""
    venv.create(folder, symlinks=True)
    made = Installed(folder)
    put(wheel, made)
    # No .pth file of that folder counts: the checkout is not found by way of it.
    found = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    (made.packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in found))
    return made


def put(wheel: Path, made: Installed) -> None:
    """Install a wheel, and nothing else, into an environment, with what the checkout has compiled beside it."""
    uv("pip", "install", "-q", "--offline", "--no-deps", "--python", made.python, wheel)
    (made.folder / "compiled").mkdir(mode=0o700)
    keep_compiled(made.folder / "compiled")


def keep_compiled(folder: Path) -> None:
    """Put a copy of what the checkout has compiled into a folder of the user's own."""
    if compiled := cache_folder.find():
        shutil.copytree(compiled, folder / Path(compiled).name)
