"""The work and the memory that light queues' names cost: by counts of calls and of names, not by a clock."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rocketmq_reindex.storage_format.record import loop, name_table
from rocketmq_reindex.storage_format.scan import range_scan, settings
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message
from tests.tools.scans import MemoryLog, scan_range

ROWS = 20_000


class Calls:
    """Counts calls of a function of a module."""

    def __init__(self, module: ModuleType, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self._inner = 0, getattr(module, name)
        monkeypatch.setattr(module, name, self)

    def __call__(self, *arguments: Any) -> Any:
        self.count += 1
        return self._inner(*arguments)


def log_of(folder: Path, records: int, names: int) -> MemoryLog:
    """Records that each name so many light queues that no other does."""
    with LogWriter(folder, 1 << 22) as writer:
        for number in range(records):
            lmq = tuple(f"%LMQ%{number}-{k:x}" for k in range(names))
            writer.append(Message(topic=f"T{number % 3}", queue_id=number % 2, lmq=lmq, properties={"KEYS": "k"}))
    return MemoryLog(folder, 1 << 22)


@pytest.mark.parametrize("names", [1, 50, 1500])
def test_a_record_is_walked_as_often_whatever_it_names(names: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new name once began the walk anew: 4,600 names in a record cost the sum of its body and list 4,600 times."""
    log = log_of(tmp_path, 20, names)
    walks = Calls(loop, "walk", monkeypatch)
    (specs,) = log.cut([]).values()
    found = scan_range(RangeScanner(ScanSettings(lmq=True, block_rows=ROWS)), specs[0], log)
    assert len(found.units) == 20 * (names + 1)
    blocks = len(found.units) // (ROWS // 4)
    assert walks.count <= 2 * 20 + 10 + blocks, "once more for its topic, once more for its list"


def test_names_do_not_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scanner holds so many of light queues, and the topics; what it finds is the same."""
    log = log_of(tmp_path, 60, 40)
    scans = []
    for limit in (1_000_000, 300, 1):
        monkeypatch.setattr(settings, "NAMES_KEPT", limit)
        most, add = 0, name_table.NameTable.add

        def counted(table: name_table.NameTable, raw: bytes, add: Any = add) -> int:
            nonlocal most
            entry: int = add(table, raw)
            most = max(most, len(table.texts))
            return entry

        with monkeypatch.context() as patch:
            patch.setattr(name_table.NameTable, "add", counted)
            scanner = RangeScanner(ScanSettings(lmq=True, want_topics=True, block_rows=ROWS))
            for places in ([], [1 << 15, 1 << 16]):
                (specs,) = log.cut(places).values()
                found = [scan_range(scanner, spec, log) for spec in specs if spec.known or spec.low < log.segments[0].data_end]
                topics = {scanner.names.texts[k] for k in scanner.names.topics()}
                # A range that begins inside a record finds the next one: all are there, in order.
                units = [unit for one in found for unit in one.units]
                scans.append((units, [item for one in found for item in one.items], topics if not places else set()))
        if limit < 1_000_000:
            assert most <= limit + 3 + 2 * 40
        else:
            assert most > 2_000
    assert len(scans[0][0]) == 60 * 41
    assert scans[0][2] == {"T0", "T1", "T2"}
    assert scans[0::2] == scans[:1] * 3
    assert all(scan[:2] == scans[0][:2] for scan in scans)


def test_what_a_search_behind_a_stop_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record that stands there ends it: no record is walked, no table of names copied."""
    with LogWriter(tmp_path, 1 << 20) as writer:
        for number in range(500):
            writer.append(Message(topic=f"T{number}"))
        writer.append_raw(b"no record")
        for _ in range(500):
            writer.append(Message(topic=b"a\tb"))
    log = MemoryLog(tmp_path, 1 << 20)
    walks, searches = Calls(loop, "walk", monkeypatch), Calls(range_scan, "find_record", monkeypatch)
    (specs,) = log.cut([]).values()
    found = scan_range(RangeScanner(ScanSettings(stop_at_damage=True)), specs[0], log)
    assert (found.summary.records, found.summary.after_tail - found.summary.tail) == (500, 9)
    assert walks.count <= 500 + 5, "once for each new topic"
    assert searches.count <= 3
