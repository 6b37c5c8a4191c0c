"""Root lays out files for a broker that seldom is root: what is new in a store gets the owner of the log in it.

It is given by handles, never through a link, and before it comes to where the new owner may write: he could put a link to
another file in its place meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import stat


def give(place: str, store: str) -> None:
    """Give a file, or a folder and all in it, to the owner and group of STORE/commitlog, or else of STORE.

    Only root may; for anybody else what they write is theirs, as ever. ``place`` lies where only root may write.
    """
    if os.geteuid() != 0:
        return
    uid, gid = _owner(store)
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        os.chown(place, uid, gid, follow_symlinks=False)
        return
    # A folder after what is in it: who has it may change that.
    for _, _, names, handle in os.fwalk(place, topdown=False, follow_symlinks=False):
        for name in names:
            os.chown(name, uid, gid, dir_fd=handle, follow_symlinks=False)
        os.fchown(handle, uid, gid)


def give_handle(handle: int, store: str) -> None:
    """Give the file behind an open ``handle`` likewise."""
    if os.geteuid() == 0:
        os.fchown(handle, *_owner(store))


def _owner(store: str) -> tuple[int, int]:
    found = os.stat(store)
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(os.path.join(store, "commitlog"))
    return found.st_uid, found.st_gid
