"""``rmq-reindex inspect`` of files that were copied under another name: where they begin is given, or told by their records."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.inspecting import segment
from rocketmq_reindex.jobs.inspecting.segment import Begin, by_records
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.record.frame import find_record
from tests.tools.encode import Message
from tests.unit.jobs.querying.test_query import keyed, make

SEGMENT = 1 << 12


def say(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["inspect", "--json", *words]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    found: dict[str, Any] = json.loads(told.out.splitlines()[0])
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The second segment of a log, as someone keeps it."""
    make(tmp_path / "store", keyed(60))
    target = tmp_path / "seg.bak"
    target.write_bytes((tmp_path / "store" / "commitlog" / f"{SEGMENT:020d}").read_bytes())
    return target


def test_a_copied_segment_says_itself_where_it_begins(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    original = say(capsys, str(copied.parent / "store" / "commitlog" / f"{SEGMENT:020d}"))
    assert (original["firstOffsetBy"], "recordsSayFirstOffset" in original) == ("name", False)
    told = say(capsys, str(copied))
    assert (told["firstOffset"], told["firstOffsetBy"]) == (SEGMENT, "record at byte 0")
    given = say(capsys, str(copied), "--first-offset", str(SEGMENT))
    assert given["firstOffsetBy"] == "--first-offset"
    different = ("file", "firstOffsetBy")
    assert [{name: value for name, value in one.items() if name not in different} for one in (told, given)] == [
        {name: value for name, value in original.items() if name not in different}
    ] * 2


def test_a_name_that_is_not_true(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name, or the option, is taken at its word; what the records say is said beside it."""
    wrong = copied.rename(copied.parent / f"{3 * SEGMENT:020d}")
    for words, by in (([], "name"), (["--first-offset", "77"], "--first-offset")):
        told = say(capsys, str(wrong), "--kind", "segment", *words)
        assert (told["records"], told["firstOffsetBy"], told["recordsSayFirstOffset"]) == (0, by, SEGMENT)


def test_the_first_good_record_tells(copied: Path) -> None:
    content = bytearray(copied.read_bytes())
    (size,) = struct.unpack_from(">i", content, 0)
    content[size - 40] ^= 1  # its body
    copied.write_bytes(content)
    assert by_records(str(copied), len(content)) == Begin(SEGMENT, f"record at byte {size}")
    # A head without any record, and the good one behind the edge of what is read at once.
    copied.write_bytes(bytes(segment._STEP - 2) + bytes(content[size:]))
    step = segment._STEP - 2
    begin = SEGMENT + size - step
    assert by_records(str(copied), step + len(content) - size) is None, "it would begin before the log"
    struct.pack_into(">q", content, size + r.AT_PHYSICAL_OFFSET, step)
    copied.write_bytes(bytes(step) + bytes(content[size:]))
    assert begin < 0
    assert by_records(str(copied), step + len(content) - size) == Begin(0, f"record at byte {step}")


def test_nothing_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "seg.bak").write_bytes(bytes(4096))
    assert main(["inspect", "--kind", "segment", str(tmp_path / "seg.bak")]) == 1
    assert "give it as --first-offset" in capsys.readouterr().err
    assert say(capsys, "--kind", "segment", str(tmp_path / "seg.bak"), "--first-offset", "4096")["endsWith"] == (
        "zeros from offset 4096 on"
    )


def test_what_only_looks_like_records_costs_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every 16 bytes begins what has the head of a record of 512 KiB: of that no more is read than a bound."""
    monkeypatch.setattr(segment, "_WORK_MAX", 1 << 22)
    checked = 0

    def counted(data: Any, *more: Any) -> tuple[int, int]:
        nonlocal checked
        checked += len(data)
        return find_record(data, *more)

    monkeypatch.setattr("rocketmq_reindex.jobs.inspecting.segment.find_record", counted)
    head = struct.pack(">iiii", 1 << 19, r.MAGIC_V1, 1, 0)
    path = tmp_path / "seg.bak"
    path.write_bytes(head * (1 << 16))
    assert by_records(str(path), path.stat().st_size) is None
    assert 0 < checked <= (1 << 22) + (1 << 19)


@pytest.mark.parametrize(
    ("name", "words", "status", "told"),
    [
        ("seg.bak", ["--first-offset", str(2**63 - 1)], 1, "is beyond what a commitlog can hold"),
        ("seg.bak", ["--first-offset", "-1"], 2, "--first-offset takes a number from 0 on"),
        ("seg.bak", ["--first-offset", str(2**63)], 2, "--first-offset takes a number from 0 on"),
        ("seg.bak", ["another", "--first-offset", "0"], 2, "one FILE"),
    ],
)
def test_offsets_that_no_segment_has(
    name: str, words: list[str], status: int, told: str, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied.rename(copied.parent / name)
    assert main(["inspect", str(path), *words]) == status
    error = capsys.readouterr().err
    assert (told in error, error.count("\n")) == (True, 1)


def test_a_copied_queue_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Units do not say where they stand in their queue: only the name does, or the option."""
    make(tmp_path, [Message(topic="T", queue_offset=k) for k in range(30)])
    path = tmp_path / "consumequeue" / "T" / "0" / f"{400:020d}"
    whole = say(capsys, str(path))
    copied = path.rename(tmp_path / "queue.bak")
    assert main(["inspect", "--kind", "consumequeue", str(copied)]) == 1
    assert "give it as --first-offset" in capsys.readouterr().err
    told = say(capsys, "--kind", "consumequeue", str(copied), "--first-offset", "400")
    assert told | {"file": whole["file"]} == whole
    assert told["first"]["offset"] == 20
