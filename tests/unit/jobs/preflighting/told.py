"""What a preflight says of a store, asked as the tests ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr

SEGMENT = 1 << 12
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}


def told(store: Path, release: str = "5.3.3", **keywords: Any) -> rr.PreflightResult:
    return rr.preflight(store, broker_version=release, **keywords)


def kinds(found: rr.PreflightResult) -> list[str]:
    return [loss["kind"] for loss in found.losses]


def error_of(store: Path, **keywords: Any) -> str:
    with pytest.raises(rr.InputError) as raised:
        told(store, **keywords)
    assert str(raised.value).isprintable()
    return str(raised.value)


def state_of(store: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(store)): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in store.rglob("*") if path.is_file()
    }  # fmt: skip
