"""A page of ``browse`` reads no more of a store eight times as large: single pages of files, and nothing whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.files import reading
from tests.tools.browsing import Pages
from tests.tools.derived_store import derive
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter

COUNT, TIMES = 2_500, 8
QUEUES = 4
MORE = 16 * reading.LOCAL_PAGE
"""bytes that searches by halves may read more: less than the units of the larger store have more"""
OF_SEGMENTS = 32 * reading.LOCAL_PAGE
"""the same for pages that look into each segment"""
MOST = 2 << 20
"""bytes that any page may read of these stores"""

pytestmark = pytest.mark.usefixtures("inline_local")


def written(store: Path, count: int) -> Path:
    with LogWriter(store / "commitlog", 1 << 20) as writer:
        for k in range(count):
            properties = {"KEYS": f"key-{k}", "UNIQ_KEY": f"unique-{k}", "TAGS": "t"}
            writer.append(Message("T", queue_id=k % QUEUES, body=b"x" * 150, properties=properties, store_timestamp=EPOCH + k))
    derive(store, "--hash-slots", "50000", "--index-items", "100000")
    return store


@pytest.fixture
def read_bytes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many bytes of files have been read, or mapped, since it was asked before."""
    count = 0
    preadv, view = os.preadv, reading.Reader.view

    def counted_preadv(handle: int, buffers: Any, at: int, *flags: int) -> int:
        nonlocal count
        received = preadv(handle, buffers, at, *flags)
        count += received
        return received

    def counted_view(self: reading.Reader, at: int, size: int) -> Any:
        nonlocal count
        count += size
        return view(self, at, size)

    def since() -> int:
        nonlocal count
        told, count = count, 0
        return told

    monkeypatch.setattr(os, "preadv", counted_preadv)
    monkeypatch.setattr(reading.Reader, "view", counted_view)
    return since


def addresses(pages: Pages, count: int) -> dict[str, str]:
    """Pages of all kinds in the middle of a store."""
    middle = count // 2
    offset, queue = middle // QUEUES, middle % QUEUES
    at = pages.json("message", store="s", topic="T", queue=queue, offset=offset)["message"]["physicalOffset"]
    return {
        "stores": "/", "store": "/store?store=s", "topics": "/topics?store=s", "topic": "/topic?store=s&topic=T",
        "queue": f"/queue?store=s&topic=T&queue={queue}&from={offset}",
        "time": f"/queue?store=s&topic=T&queue={queue}&time={EPOCH + middle}",
        "message": f"/message?store=s&physical={at}", "body": f"/body?store=s&physical={at}",
        "unit": f"/message?store=s&topic=T&queue={queue}&offset={offset}",
        "key": f"/search?topic=T&key=key-{middle}", "id": f"/search?id=unique-{middle}",
        "search by time": f"/search?topic=T&queue={queue}&time={EPOCH + middle}",
    }  # fmt: skip


def test_no_page_reads_more_of_a_larger_store(tmp_path: Path, read_bytes: Callable[[], int]) -> None:
    read: dict[str, list[int]] = {}
    for count in (COUNT, TIMES * COUNT):
        pages = Pages(f"s={written(tmp_path / f'store-{count}', count)}")
        for name, address in addresses(pages, count).items():
            read_bytes()
            assert pages.client.get(address).status_code == 200, address
            read.setdefault(name, []).append(read_bytes())
    print(read)
    assert read.pop("topics") == [0, 0]
    assert all(small > 0 for small, _ in read.values())
    more = {name: OF_SEGMENTS if name in ("stores", "store") else MORE for name in read}
    assert {name: sizes for name, sizes in read.items() if sizes[1] > sizes[0] + more[name] or max(sizes) > MOST} == {}
