"""Root lays out files for a broker that seldom is root: what is new in a store gets the owner of the log in it."""

from __future__ import annotations

import contextlib
import os


def give(place: str, store: str) -> None:
    """Give a file, or a folder and all in it, to the owner and group of STORE/commitlog, or else of STORE.

    Only root may; for anybody else what they write is theirs, as ever.
    """
    if os.geteuid() != 0:
        return
    uid, gid = _owner(store)
    os.chown(place, uid, gid, follow_symlinks=False)
    for folder, inner, names in os.walk(place):
        for name in (*inner, *names):
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)


def _owner(store: str) -> tuple[int, int]:
    found = os.stat(store)
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(os.path.join(store, "commitlog"))
    return found.st_uid, found.st_gid
