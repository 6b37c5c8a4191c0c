"""Forty topics that no broker takes, or that a folder of the store is called: damage, or a queue's folder like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.test_damage import EXIT, POLICIES, build_and_compare
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

IMPOSSIBLE: tuple[bytes, ...] = (
    # traversal and absolute paths
    b"../x", b"..", b".", b"/etc", b"/", b"a/b", b"a/../../b", b"./a", b"a/", b"../../../../../../etc/passwd", b"a\\b", b"\\",
    b"..\\..\\x", b"consumequeue/TopicA", b"%LMQ%/../x",
    # nothing, control characters
    b"", b"nul\0byte", b"\0", b"line\nbreak", b"\r", b"tab\t", b"bell\x07", b"del\x7f", "c1\x85".encode(), b"\x1b[31mred",
    # too long, also once Java has made three bytes of a malformed one
    b"x" * 256, b"\xff" * 86, "é".encode() * 128,
)  # fmt: skip
FOLDERS = (
    "consumequeue",
    "index",
    "checkpoint",
    "commitlog",
    "config",
    "abort",
    "lock",
    "reindex.json",
    ".out.rmq-reindex.lock",
)
MALFORMED = (b"\xff", b"a\xc0\xafb", b"\xed\xa0\x80x")
"""Malformed UTF-8: as Java decodes it. C0 AF is no slash."""


def test_there_are_forty() -> None:
    assert len({*IMPOSSIBLE, *(name.encode() for name in FOLDERS), *MALFORMED}) == 40


def _paths(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.mark.parametrize("topic", IMPOSSIBLE, ids=lambda topic: repr(topic)[:20])
def test_an_impossible_topic_is_damage(topic: bytes, tmp_path: Path) -> None:
    store, out = tmp_path / "a" / "store", tmp_path / "a" / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(30):
            message = Message(topic="Good", properties={"KEYS": f"k{number}"})
            put = writer.append(message if number != 12 else Message(topic=topic, properties={"KEYS": "hostile"}))
            if number == 12:
                bad = put
    elsewhere = _paths(tmp_path)
    for policy in POLICIES:
        for size in (0, 500):
            summary = build_and_compare(store, out, size, on_damage=policy, **SMALL)
            assert summary.exit == EXIT[policy]
            (damage,) = summary.damage
            assert (damage["offset"], damage["length"]) == (bad.offset, bad.size)
            assert damage["reason"] == "topic is not one plain path component"
            if policy == "salvage":
                assert (summary.records, summary.units, summary.items) == (29, 29, 29)
            made = _paths(tmp_path) - elsewhere
            assert all(path == "a/out" or path.startswith("a/out/") for path in made)
            assert {path.split("/")[3] for path in made if path.startswith("a/out/consumequeue/")} <= {"Good"}


@pytest.mark.parametrize("topic", [*(name.encode() for name in FOLDERS), *MALFORMED], ids=lambda topic: repr(topic)[:30])
def test_a_possible_topic_is_a_folder_of_queues(topic: bytes, tmp_path: Path) -> None:
    """Whatever it is called, it lies below consumequeue/ and nowhere else."""
    store, out = tmp_path / "a" / "store", tmp_path / "a" / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(20):
            writer.append(Message(topic=topic if number % 3 else "Good", properties={"KEYS": f"k{number}"}))
    elsewhere = _paths(tmp_path)
    for size in (0, 500):
        summary = build_and_compare(store, out, size, **SMALL)
        assert (summary.exit, summary.damage, summary.units) == (0, [], 20)
        made = _paths(tmp_path) - elsewhere
        assert all(path == "a/out" or path.startswith("a/out/") for path in made)
        assert {path.split("/")[2] for path in made if path.count("/") > 1} == {
            "consumequeue",
            "index",
            "checkpoint",
            "reindex.json",
        }
        assert len({path.split("/")[3] for path in made if path.startswith("a/out/consumequeue/")}) == 2
