"""Signs of life of runs that hold no lock: each leaves a new small file every minute, with its store's time."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import Final

from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder

_ALIVE: Final = "alive-"
VERIFY: Final = "rmq-reindex-verify-"
"""how the names of folders begin that verifies work in"""
VERIFY_NAME: Final = re.compile(f"{VERIFY}[0-9a-f]{{32}}")
"""names of those in which verifies leave signs of life"""
BEAT_SECONDS: Final = 60.0


class Alive:
    """Writes a sign of life of a run every BEAT_SECONDS."""

    def __init__(self, staging: StagingFolder) -> None:
        self._staging, self._end = staging, threading.Event()
        self._thread = threading.Thread(target=self._run, name="alive", daemon=True)
        self._count = 0

    def beat(self) -> None:
        """Write a new file before the old one is removed, so that there is one at every moment."""
        files.write_bytes(self._staging.temporary, files.join(self._staging.root, f"{_ALIVE}{self._count + 1}"), [b"alive\n"])
        files.remove_tree(files.join(self._staging.root, f"{_ALIVE}{self._count}"))
        self._count += 1

    def _run(self) -> None:
        while not self._end.wait(BEAT_SECONDS):
            # The next one may get through.
            with contextlib.suppress(OSError):
                if not self.known():
                    return
                self.beat()

    def known(self) -> bool:
        """Return whether the last file is still there: a run that was taken for dead must not go on."""
        return files.entry_of(files.join(self._staging.root, f"{_ALIVE}{self._count}")).kind != files.ABSENT

    def __enter__(self) -> Alive:
        files.make_folder(self._staging.temporary)
        self.beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def last_beat(work: str) -> int:
    """Return the time of a run's last sign of life, by the store's clock in nanoseconds; 0 for none."""
    if files.entry_of(work).kind != files.FOLDER:
        return 0
    beats = [entry.modified for entry in files.listing(work) if entry.kind == files.FILE and entry.name.startswith(_ALIVE)]
    return max(beats, default=0)
