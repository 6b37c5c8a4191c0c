"""The overview pages of ``browse`` of a store in a bucket: the same as of the store on a disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from tests.golden.stores import GoldenStore
from tests.tools.browsing import Pages
from tests.tools.upload import upload


@pytest.mark.parametrize("name", ["trimmed-head", "rocksdb-5.5"])
def test_overview(name: str, bucket: str, golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    local = tmp_path / "store"
    shutil.copytree(golden_store(name).path, local, ignore=shutil.ignore_patterns("rebuilt", "other"))
    (local / "config").mkdir(exist_ok=True)
    topic = "TopicA@g" if name == "trimmed-head" else "orders-0@g"
    (local / "config" / "consumerOffset.json").write_text(f'{{"offsetTable": {{"{topic}": {{"0": 60}}}}}}')
    uri = files.join(bucket, f"browse-{name}")
    upload(local, uri, str(tmp_path / "aside"))
    pages = Pages(f"a={local}", f"b={uri}")
    for page in ("log", "disk", "rates", "consumers"):
        here, there = (plain(pages.both(page, store=store)[1]) for store in "ab")
        assert here == there, page
    assert pages.json("consumers", store="b")["groups"][0]["offset"] == 60
    # The time of a bucket's objects is one of seconds, and just made: nothing is remembered, so nothing is stale.
    files.write_bytes(str(tmp_path / "aside"), files.join(uri, "commitlog", "00000000000099999744"), [bytes(256)])
    assert pages.json("log", store="b")["count"] == pages.json("log", store="a")["count"] + 1


def plain(found: dict[str, Any]) -> dict[str, Any]:
    """What the page says, without the places of the store, and what a disk alone knows."""
    left_out = ("store", "stores", "lookedAt", "command", "place", "source", "allocated", "warnings")
    kept = {name: value for name, value in found.items() if name not in left_out}
    for rows in kept.values():
        for row in rows if isinstance(rows, list) else ():
            for field in left_out if isinstance(row, dict) else ():
                row.pop(field, None)
    return kept
