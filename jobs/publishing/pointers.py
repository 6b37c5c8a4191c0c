"""What was published behind a URI: the small files that make builds visible, and the folders they lead to.

Little is imported: ``query`` asks here, and starts in a fraction of a second.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from typing import Final

from rocketmq_reindex.storage_format.digest_kinds import EARLIER_KIND, KIND
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

BUILDS, POINTERS, WORK = "builds", "published", "work"
BUILD: Final = re.compile(r"[0-9a-f]{32}")
"""names of builds"""
_POINTER: Final = re.compile(r"([0-9]{10})-([0-9a-f]{32})\.json")
_POINTER_MAX: Final = 1 << 16
"""bytes: what is longer is none"""


@dataclass(frozen=True, order=True)
class Pointer:
    """One published build. ``digest`` is its manifest's, of this ``kind`` (``storage_format.digest_kinds``)."""

    number: int
    build: str
    digest: str = ""
    kind: str = KIND

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.number:010d}-{self.build}.json"


def pointers(out: str) -> list[Pointer]:
    """Return what was published; the last one counts. A file that is still being written is left out."""
    folder = files.join(out, POINTERS)
    if files.entry_of(folder).kind != files.FOLDER:
        return []
    found = []
    for entry in files.listing(folder):
        matched = _POINTER.fullmatch(entry.name)
        if matched and entry.kind == files.FILE:
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError, InputError, FileNotFoundError):
                fields = json.loads(files.read_bytes(entry.path, _POINTER_MAX))
                digest = str(fields["manifest"])
                found.append(Pointer(int(matched[1]), matched[2], digest, str(fields.get("digest", EARLIER_KIND))))
    return sorted(found)


def build_folder(out: str, build: str) -> str:
    """Return the folder of a build in OUT."""
    return files.join(out, BUILDS, build)


def is_work(place: str, out: str) -> bool:
    """Return whether ``place`` is the folder in which runs to OUT hand on what they keep for a while."""
    if not files.no_rename(out) or files.canonical(place) != files.canonical(files.join(out, WORK)):
        return False
    return bool(identity(out))


def check_laid_out(store: str) -> None:
    """Raises InputError for a folder of builds behind a URI: only ``fetch`` and ``verify`` know their files."""
    if identity(store):
        raise InputError(f"{escape(store)}: holds builds as behind a URI: `rmq-reindex fetch` lays one out on a disk")


def identity(folder: str) -> str | None:
    """Return the name of the build whose folder this is, or of the one that counts in an output; None for other folders."""
    with contextlib.suppress(OSError, InputError):
        if files.base(files.parent(folder)) == BUILDS and BUILD.fullmatch(files.base(folder)):
            return files.base(folder)
        found = pointers(folder)
        return found[-1].build if found else None
    return None
