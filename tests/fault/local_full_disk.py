"""Builds by processes of this machine on a small disk that is really full, or that somebody else fills as the scan begins.

``unshare -m python -m tests.fault.local_full_disk STORE FOLDER PLACE`` tells each build as a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.fault.processes import fault
from tests.tools.faulty_processes import command, fired, in_session, running, wait_until
from tests.tools.faulty_runs import SIZES

ENOUGH, TOO_LITTLE = 8 << 20, 64 << 10
LEFT = 8 << 10


def _build(store: Path, disk: Path, place: Path, size: int, fill: bool) -> dict[str, Any]:
    """One build on a disk of ``size`` bytes; with ``fill`` the only worker waits until there is nearly nothing left of it."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(disk)], check=True)
    out, filler = disk / "place" / "out", disk / "filler"
    out.parent.mkdir()
    words = command(store, out, *SIZES, "--engine=local", "--master=local[1]")
    faults = [fault("worker", ("open", "/commitlog/"), "meet", 2)] if fill else []
    with running(words, place, faults) as run:
        if fill:
            wait_until(lambda: fired(place))
            room = os.statvfs(disk)
            filler.write_bytes(bytes(room.f_bavail * room.f_frsize - LEFT))
            Path(f"{faults[0]['marker']}.1").touch()
        summary = run.summary()
        left = list(in_session(run.process.pid).values())
    names = sorted(os.listdir(out.parent))
    subprocess.run(["umount", str(disk)], check=True)
    return {"summary": summary, "names": names, "processes": left}


def _main(store: Path, disk: Path, place: Path) -> None:
    for number, (size, fill) in enumerate(((ENOUGH, False), (TOO_LITTLE, False), (ENOUGH, True))):
        print(json.dumps(_build(store, disk, place / f"{number}", size, fill)), flush=True)


if __name__ == "__main__":
    _main(*map(Path, sys.argv[1:]))
