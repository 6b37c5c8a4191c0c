"""The sizes of an IndexFile that is not full, as those before it show them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.files import Reader
from rocketmq_reindex.jobs.store.fitting import index_files, newest_index_sizes
from tests.tools.derived_store import derive
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

SLOTS, ITEMS, RECORDS = 100, 400, 500
COUNT_AT = 36

pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def index(tmp_path: Path) -> list[Path]:
    """Two IndexFiles: one that is full, and one that is not, and does not say what it has room for."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog") as writer:
        for k in range(RECORDS):
            writer.append(Message(properties={"KEYS": f"key-{k}"}))
    derive(store, "--hash-slots", str(SLOTS), "--index-items", str(ITEMS), "--broker-version", "5.3")
    found = sorted((store / "index").iterdir())
    assert len(found) == 2
    # A build seals it, as a broker does when it makes the next: one that is being filled counts its items.
    with found[1].open("r+b") as file:
        file.seek(COUNT_AT)
        file.write(struct.pack(">i", 1 + RECORDS - (ITEMS - 1)))
    return found


def sizes(index: list[Path]) -> tuple[int, int] | None:
    return newest_index_sizes(index_files(str(index[0].parent.parent)))


def refuse(*_: Any) -> None:
    raise AssertionError("a whole file is read")


def test_a_full_one_before_it_shows_them(index: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "whole", refuse)
    assert sizes(index) == (SLOTS, ITEMS)
    index[0].unlink()
    with pytest.raises(AssertionError, match="whole"):
        sizes(index)


def test_it_alone_shows_them(index: list[Path]) -> None:
    index[0].unlink()
    assert sizes(index) == (SLOTS, ITEMS)


def test_another_one_that_does_not_fit(index: list[Path]) -> None:
    """A file of the same size with other slots and items: the newest one counts."""
    with index[0].open("r+b") as file:
        file.seek(COUNT_AT)
        assert file.read(4) == struct.pack(">i", ITEMS)
        # Five slots more and an item less have as many bytes.
        file.seek(COUNT_AT)
        file.write(struct.pack(">i", ITEMS - 1))
    assert sizes(index) == (SLOTS, ITEMS)
