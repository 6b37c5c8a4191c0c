"""Topics that TopicValidator refuses are warned of: the same ones however the log is cut and whoever scans what."""

from __future__ import annotations

from pathlib import Path

from rocketmq_reindex.storage_format.scan.chain import chain_ranges
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message, encode
from tests.tools.scans import MemoryLog, scan_range


def test_each_range_names_its_own(tmp_path: Path) -> None:
    """A scanner that met the name in a range before still names it: that other range may come to be rejected."""
    with LogWriter(tmp_path) as writer:
        for _ in range(40):
            writer.append(Message(topic="odd~name"))
            writer.append(Message(topic="Usual"))
    log = MemoryLog(tmp_path, 1 << 16)
    scanner = RangeScanner(ScanSettings())
    (specs,) = log.cut([1 << 11, 1 << 12]).values()
    assert [scan_range(scanner, spec, log).summary.unusual_names for spec in specs] == [["odd~name"]] * 3


def test_a_name_met_first_in_a_rejected_range(tmp_path: Path) -> None:
    """A range that begins inside a body meets a record image there; the true records of that topic come later."""
    size = 1 << 12
    with LogWriter(tmp_path, size) as writer:
        lead = 200
        image = encode(Message(topic="odd~name"), 88 + lead)
        writer.append(Message(body=bytes(lead) + image + bytes(400)))
        writer.roll()
        writer.append(Message(topic="odd~name"))
    log = MemoryLog(tmp_path, size)
    scanner = RangeScanner(ScanSettings())
    ranges = log.cut([150])
    summaries = {s.number: scan_range(scanner, s, log).summary for specs in ranges.values() for s in specs}
    chain = chain_ranges(log.segments, ranges, summaries)
    assert len(chain.rescans) == 1
    accepted = [summaries[spec.number] for spec in ranges[size]]
    assert accepted[0].records == 1
    assert {name for s in accepted for name in s.unusual_names} == {"odd~name"}


def test_names_behind_the_stop_are_not_told(tmp_path: Path) -> None:
    """Nothing is built for the good record that ends a stretch of damage at which a build stops."""
    with LogWriter(tmp_path) as writer:
        writer.append(Message(topic="a~b"))
        writer.append_raw(b"no record")
        writer.append(Message(topic="odd~name"))
    log = MemoryLog(tmp_path, 1 << 16)
    (specs,) = log.cut([]).values()
    found = scan_range(RangeScanner(ScanSettings(stop_at_damage=True)), specs[0], log)
    assert (found.summary.records, found.summary.unusual_names) == (1, ["a~b"])


def test_names_of_what_is_left_out_are_not_told(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as writer:
        for topic in ("a~b", "c~d"):
            writer.append(Message(topic=topic))
    log = MemoryLog(tmp_path, 1 << 16)
    (specs,) = log.cut([]).values()
    found = scan_range(RangeScanner(ScanSettings(exclude=("c*",))), specs[0], log)
    assert found.summary.unusual_names == ["a~b"]
