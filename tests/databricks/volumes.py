"""A root folder with /Volumes, where catalogs and schemas are read-only and each volume is a folder of this machine's disk.

``python -m tests.databricks.volumes VOLUMES WORDS``, in a mount namespace of its own, runs WORDS there: each folder
CATALOG/SCHEMA/VOLUME below VOLUMES is a volume, and everything else is as outside. Root may write anything but a read-only
mount, so this holds for root, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.faulty_disk import namespace


def inside(volumes: Path, *words: str | Path) -> list[str | Path]:
    """Return the command that runs ``words`` beside /Volumes. Raises RuntimeError where this user may not mount."""
    may_mount = namespace()
    if not may_mount:
        raise RuntimeError("unshare -m and unshare -rm are both refused here: run as root, or allow user namespaces")
    return [*may_mount, sys.executable, "-m", __name__, volumes, *words]


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *words], check=True)


def _new_root(volumes: Path) -> Path:
    """Make the folder that becomes /. It ends with the last process in this namespace."""
    root = volumes.with_name("root")
    root.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "none", root)
    for path in Path("/").iterdir():
        new = root / path.name
        if path.is_symlink():
            new.symlink_to(os.readlink(path))
        elif path.is_dir() and path.name != "Volumes":
            new.mkdir()
            _mount("--rbind", path, new)
    top = root / "Volumes"
    top.mkdir()
    _mount("-t", "tmpfs", "none", top)
    for volume in volumes.glob("*/*/*"):
        new = top / volume.relative_to(volumes)
        new.mkdir(parents=True)
        _mount("--bind", volume, new)
    _mount("-o", "remount,bind,ro", top)
    return root


def main() -> None:
    here, (volumes, *words) = os.getcwd(), sys.argv[1:]
    os.chroot(_new_root(Path(volumes)))
    os.chdir(here)
    os.execvp(words[0], words)


if __name__ == "__main__":
    main()
