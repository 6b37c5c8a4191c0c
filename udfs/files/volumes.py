"""Databricks' volumes: /Volumes/CATALOG/SCHEMA/VOLUME is a folder to write in, and everything above it is read-only."""

from __future__ import annotations

import os
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.uris import is_remote, plain

_TOP: Final = "/Volumes"
_DEPTH: Final = 5
"""Names of a volume's path, the empty one before the first slash included."""


def check_volume(path: str) -> None:
    """Check that a folder can be made at ``path``, as far as volumes decide that; other paths pass.

    Raises InputError for a path above all volumes, and for one in a volume that is not there.
    """
    path = plain(path)
    if is_remote(path):
        return
    path = os.path.abspath(path)
    names = path.split("/")
    if "/".join(names[: _DEPTH - 3]) != _TOP:
        return
    if len(names) < _DEPTH:
        raise InputError(f"{escape(path)}: is no folder of a volume: name /Volumes/CATALOG/SCHEMA/VOLUME or a folder in it")
    volume = "/".join(names[:_DEPTH])
    if not os.path.isdir(volume):
        raise InputError(f"{escape(volume)}: is no volume that this user sees: make it first, or name another")
