"""Small files behind a URI: those that make builds visible, and those that say that a run is alive."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format import errors, layouts, showing
from rocketmq_reindex.udfs.staging import StagingFolder

# --------------------------------------------------------------------------------------------------------------------- pointers
# What was published behind a URI: the small files that make builds visible, and the folders they lead to.
#
# Little is imported: ``query`` asks here, and starts in a fraction of a second.

BUILDS, POINTERS, WORK = "builds", "published", "work"
BUILD: Final = re.compile(r"[0-9a-f]{32}")
"""names of builds"""
_POINTER: Final = re.compile(r"([0-9]{10})-([0-9a-f]{32})\.json")
_POINTER_MAX: Final = 1 << 16
"""bytes: what is longer is none"""


@dataclass(frozen=True, order=True)
class Pointer:
    """One published build. ``digest`` is its manifest's, of this ``kind`` (``storage_format.layouts``)."""

    number: int
    build: str
    digest: str = ""
    kind: str = layouts.KIND

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.number:010d}-{self.build}.json"


def pointers(out: str) -> list[Pointer]:
    """Return what was published; the last one counts. A file that is still being written is left out."""
    folder = files.join(out, POINTERS)
    if files.entry_of(folder).kind != files.FOLDER:
        return []
    published = []
    for entry in files.listing(folder):
        matched = _POINTER.fullmatch(entry.name)
        if matched and entry.kind == files.FILE:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, errors.InputError, FileNotFoundError):
                fields = json.loads(files.read_bytes(entry.path, _POINTER_MAX))
                digest = str(fields["manifest"])
                published.append(Pointer(int(matched[1]), matched[2], digest, str(fields.get("digest", layouts.EARLIER_KIND))))
    return sorted(published)


def build_folder(out: str, build: str) -> str:
    """Return the folder of a build in OUT."""
    return files.join(out, BUILDS, build)


def is_work(place: str, out: str) -> bool:
    """Return whether ``place`` is the folder in which runs to OUT hand on what they keep for a while."""
    if not files.no_rename(out) or files.canonical(place) != files.canonical(files.join(out, WORK)):
        return False
    return bool(identity(out))


def check_laid_out(store: str) -> None:
    """Raise InputError for a folder of builds behind a URI: only ``fetch`` and ``verify`` know their files."""
    if identity(store):
        raise errors.InputError(
            f"{showing.escape(store)}: holds builds as behind a URI: `rmq-reindex fetch` lays one out on a disk"
        )


def identity(folder: str) -> str | None:
    """Return the name of the build whose folder this is, or of the one that counts in an output; None for other folders."""
    with contextlib.suppress(OSError, errors.InputError):
        if files.base(files.parent(folder)) == BUILDS and BUILD.fullmatch(files.base(folder)):
            return files.base(folder)
        published = pointers(folder)
        return published[-1].build if published else None
    return None


# ------------------------------------------------------------------------------------------------------------------------ alive
# Signs of life of runs that hold no lock: each leaves a new small file every minute, with its store's time.

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
