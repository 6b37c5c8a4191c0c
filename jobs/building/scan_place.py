"""Where the scan stores of one DIR lie below ``--tables``: that of its builds, and that of its verifies."""

from __future__ import annotations

import os
import re
from typing import Protocol

from rocketmq_reindex.storage_format.digest import EARLIER_KIND, new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore


class Places(Protocol):
    """Settings that say where the scan stores are, and what is only read."""

    @property
    def tables(self) -> str: ...

    @property
    def inputs(self) -> tuple[str, ...]: ...


def store_of(settings: Places, target: str, kind: str = "") -> ScanStore:
    """Return the scan store of one DIR (``target``); ``kind`` tells those of one DIR apart.

    Raises InputError when it would lie in the input, or in DIR.
    """
    scans = files.join(files.checked(settings.tables), "_scans")
    if not files.is_remote(scans):
        scans = os.path.realpath(scans)
    for place in (*settings.inputs, target):
        if files.within(scans, place):
            raise InputError(f"--tables {escape(settings.tables)}: lies inside {escape(place)}: name a folder apart from it")
    name = re.sub(r"[^A-Za-z0-9_-]", "_", files.base(target))[:40]
    # By the digest of earlier builds: what they left there is found, and removed.
    number = new_digest([_known_as(target).encode()], EARLIER_KIND).digest().hex()[:16]
    return ScanStore(files.join(scans, f"{name}-{number}{kind}"))


def _known_as(target: str) -> str:
    """Returns the same text for each form of a URI: a token may change every hour. Another endpoint is another store."""
    if not files.is_remote(target):
        return target
    return "\n".join([*files.canonical(target), files.option(files.split(target), "endpoint_override")])
