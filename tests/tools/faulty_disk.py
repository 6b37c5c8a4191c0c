"""Builds on a small disk that is really full, or fills up on the way: a tmpfs in a mount namespace of this process alone.

``unshare -m python -m tests.tools.faulty_disk STORE FOLDER SEED`` tells each build as a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from tests.tools.faulty_files import Fault
from tests.tools.faulty_runs import command_with

ENOUGH: Final = 8 << 20
TOO_LITTLE: Final = 64 << 10
KEPT: Final = 16 << 10
"""Bytes that the neighbour who fills the disk leaves."""


def namespace() -> list[str]:
    """The words before a command that may mount; none when this user may not."""
    mount = ["mount", "-t", "tmpfs", "none", "/mnt"]
    for words in (["unshare", "-m"], ["unshare", "-rm"]):
        if subprocess.run(["sh", "-c", f"{' '.join([*words, *mount])} 2>&-"], check=False).returncode == 0:
            return words
    return []


def unsent_pages(path: Path) -> int | None:
    """The pages of a file that wait to begin their way to the disk (cachestat of Linux 6.5 and later); None where unknown."""
    ask = (ctypes.c_uint64 * 2)(0, 0)
    told = (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        failed = ctypes.CDLL(None).syscall(451, file.fileno(), ask, told, 0)
    return None if failed else told[1]


def _build(store: Path, disk: Path, size: int, fill_at: int) -> dict[str, Any]:
    """One build on a disk of ``size`` bytes; at its ``fill_at``-th file operation somebody else takes what is left of it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], check=True)
    try:
        place, filler = disk / "place", disk / "filler"
        place.mkdir()
        seen = 0

        def fill(_name: str, _path: str) -> bool:
            nonlocal seen
            seen += 1
            if seen == fill_at:
                room = os.statvfs(disk)
                filler.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - KEPT)))
            return False

        summary, said = command_with(Fault("EIO", 1, fill), store, place / "out")
        names = sorted(os.listdir(place))
        bytes_left = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file() and path != filler)
        manifest = place / "out" / "reindex.json"
        text = manifest.read_text() if manifest.exists() else ""
    finally:
        _unmount(disk)
    return {"summary": summary, "said": said, "names": names, "left": bytes_left, "manifest": text, "operations": seen}


def _unmount(disk: Path) -> None:
    """Unmounts the disk. A process that looks at /proc/PID/fd keeps it busy for a moment, a handle left open for good."""
    for _ in range(100):
        done = subprocess.run(["umount", str(disk)], stderr=subprocess.PIPE, text=True, check=False)
        if not done.returncode:
            return
        time.sleep(0.1)
    handles = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(disk) in line]
    raise OSError(f"{done.stderr.strip()}: {[name for name in handles if name.startswith(str(disk))]}, {mapped}")


def _main(store: Path, disk: Path, seed: int) -> None:
    rng = random.Random(seed)
    whole = _build(store, disk, ENOUGH, 0)
    print(json.dumps(whole), flush=True)
    print(json.dumps(_build(store, disk, TOO_LITTLE, 0)), flush=True)
    for _ in range(6):
        print(json.dumps(_build(store, disk, ENOUGH, rng.randrange(60, whole["operations"] - 60))), flush=True)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
