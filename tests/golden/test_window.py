"""`--index-policy window:...`: IndexFiles cut at time windows as well, each of them one that a broker can read."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.stores import index_in_order, read_files
from tests.reference.index_file import HEADER, IndexFile, IndexService, key_hash
from tests.reference.log import read_segments, walk
from tests.reference.records import Record
from tests.reference.settings import Settings
from tests.tools.compare import SMALL
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message, random_log
from tests.tools.seeds import cases

SLOTS, ITEMS = SMALL["hash_slots"], SMALL["index_items"]
WINDOWS = {"window:5s": 5_000, "window:1m": 60_000, "window:1h": 3_600_000, "window:36525d": 36525 * 86_400_000}


class WindowedService(IndexService):
    """The broker's service, which also turns to a new file where a record with keys opens a later window than any before."""

    def __init__(self, window: int) -> None:
        super().__init__(SLOTS, ITEMS)
        self._window, self._highest = window, -(1 << 62)
        self._turn = False

    def build(self, record: Record) -> None:
        self._turn = False
        self._last(record)
        window = record.store_timestamp // self._window
        if record.index_keys() and window > self._highest:
            self._highest = window
            self._turn = bool(self.files[-1].items)
        super().build(record)

    def _last(self, record: Record) -> IndexFile:
        if not self._turn:
            return super()._last(record)
        self._turn = False
        last, count = self.files[-1], self.files[-1].index_count
        last.index_count = ITEMS  # as if full
        file = super()._last(record)
        last.index_count = count
        return file


def _records(store: Path) -> list[Record]:
    segments, size = read_segments([store / "commitlog"], None)
    return walk(segments, size, Settings()).records


def _chain(content: bytes, number: int) -> Iterator[tuple[int, int, int, int]]:
    """A plain reader: the items of a hash's slot, newest first, as (hash, offset, seconds, link)."""
    (link,) = struct.unpack_from(">i", content, HEADER + number % SLOTS * 4)
    while link:
        item = struct.unpack_from(">iqii", content, HEADER + SLOTS * 4 + link * 20)
        assert item[3] < link
        yield item
        link = item[3]


@pytest.mark.parametrize("policy", WINDOWS)
@pytest.mark.parametrize("checkpoint", ["broker", "safe"])
def test_window_files(policy: str, checkpoint: str, seed: int, tmp_path: Path) -> None:
    window = WINDOWS[policy]
    store, out = tmp_path / "store", tmp_path / "out"
    random_log(store / "commitlog", seed, records=300)
    records = _records(store)
    service = WindowedService(window)
    for record in records:
        service.build(record)
    if checkpoint == "safe":
        service.files[-1].seal()
    expected = service.contents("5.3")
    ways = ((0, InlineEngine(1, 1)), (2000, InlineEngine(7, 3)), (9000, InlineEngine()))
    for size, engine in random.Random(seed).sample(ways, cases(3, 1)):
        settings = SMALL | {"index_policy": policy, "checkpoint": checkpoint, "range_size": size, "overwrite": True}
        summary = local_build(store, out, engine, **settings)
        ours = {path: content for path, content in read_files(out).items() if path.startswith("index/")}
        assert (summary.exit, sorted(ours)) == (0, sorted(expected))
        assert ours == expected
    _assert_readable(index_in_order(read_files(out)), records, window)


def _assert_readable(files: list[bytes], records: list[Record], window: int) -> None:
    """Every item is found, where a broker looks for it; files follow each other in the log, one window or full each."""
    stored = {record.offset: record.store_timestamp for record in records}
    headers = [struct.unpack_from(">qqqqii", content) for content in files]
    highest, at = -1, 0
    wanted = [(key_hash(text), record.offset) for record in records for text in record.index_keys()]
    for number, (content, header) in enumerate(zip(files, headers, strict=True)):
        begin, end, first, last, slots_used, count = header
        raw = content[HEADER + SLOTS * 4 + 20 :]
        items = [item for item in struct.iter_unpack(">iqii", raw[: len(raw) - len(raw) % 20]) if item != (0, 0, 0, 0)]
        mine = wanted[at : at + len(items)]
        at += len(items)
        assert [item[:2] for item in items] == mine
        if not items:
            continue
        assert count in (len(items) + 1, ITEMS)
        assert (begin, end, first, last) == (stored[mine[0][1]], stored[mine[-1][1]], mine[0][1], mine[-1][1])
        assert slots_used == len({number % SLOTS for number, _ in mine})
        for key, offset in mine:
            assert (key, offset) in [item[:2] for item in _chain(content, key)]
        for _, offset, seconds, _ in items[1:]:
            assert seconds == min(max(int((stored[offset] - begin) / 1000), 0), 2**31 - 1)
        windows = [stored[offset] // window for _, offset in mine]
        assert max(windows) <= max(windows[0], highest), "a later window begins in the middle of a file"
        cut_by_capacity = number > 0 and headers[number - 1][5] == ITEMS
        assert windows[0] > highest or cut_by_capacity, "cut neither at a window nor at capacity"
        highest = max(windows[0], highest)
    assert at == len(wanted)


def test_windows_without_end_are_refused(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 21) as writer:
        for number in range(10_001):
            writer.append(Message(body=b"", properties={"KEYS": "k"}, store_timestamp=1_700_000_000_000 + number))
    summary = local_build(store, out, index_policy="window:1ms", **SMALL)
    assert (summary.exit, out.exists()) == (5, False)
    assert "10001 files" in (summary.error or "")
    assert local_build(store, out, index_policy="window:2ms", only=("checkpoint",), **SMALL).exit == 0
