"""Databricks' volumes: /Volumes/CATALOG/SCHEMA/VOLUME is a folder to write in, and everything above it is read-only."""

from __future__ import annotations

import os
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.uris import is_remote, plain

_TOP: Final = "/Volumes"
_NAMES: Final = 3
"""names of a volume below it: catalog, schema, volume"""


def check_volume(path: str) -> None:
    """Check that a folder can be made at ``path``, as far as volumes decide that; other paths pass.

    Raises InputError for a path above all volumes, and for one in a volume that is not there.
    """
    path = plain(path)
    if is_remote(path):
        return
    path = os.path.abspath(path)
    if not f"{path}/".startswith(f"{_TOP}/"):
        return
    names = path[len(_TOP) :].split("/")[1:]
    if len(names) < _NAMES:
        raise InputError(f"{escape(path)}: is no folder of a volume: name /Volumes/CATALOG/SCHEMA/VOLUME or a folder in it")
    volume = "/".join((_TOP, *names[:_NAMES]))
    if not os.path.isdir(volume):
        raise InputError(f"{escape(volume)}: is no volume that this user sees: make it first, or name another")
