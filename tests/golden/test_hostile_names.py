"""Topics and LMQ names that must never become a path, and those that are merely odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.stores import read_files
from tests.golden.test_damage import EXIT, POLICIES, build_and_compare
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

HOSTILE: tuple[bytes, ...] = (
    b"../x", b"..", b".", b"", b"/etc", b"/", b"a/b", b"a/../../b", b"a\\b", b"\\", b"nul\0byte", b"\0", b"line\nbreak",
    b"tab\t", b"bell\x07", b"del\x7f", "c1\x85".encode(), b"x" * 256, b"\xff" * 86, "é".encode() * 128,
)  # fmt: skip
ODD = ("a b", "Тема", "x~y!", "...", "-", "~", "*", "$(id)", "a.b", "\u202eevil", "😀")


def _paths(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*")}


@pytest.mark.parametrize("topic", HOSTILE, ids=lambda topic: repr(topic)[:20])
def test_a_hostile_topic_is_damage(topic: bytes, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("topic", ODD, ids=lambda topic: topic[:8].encode("unicode_escape").decode())
def test_an_odd_topic_is_built_with_a_warning(topic: str, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(20):
            writer.append(Message(topic=topic if number % 3 else "Good", properties={"KEYS": f"k{number}"}))
    for size in (0, 500):
        summary = build_and_compare(store, out, size, **SMALL)
        assert (summary.exit, summary.damage, summary.units) == (0, [], 20)
        assert (out / "consumequeue" / topic / "0").is_dir()
        usual = topic == "-"
        assert [("TopicValidator" in warning) for warning in summary.warnings] == ([] if usual else [True])


@pytest.mark.parametrize("name", [name for name in HOSTILE if b"/" not in name and len(name) < 99 and name], ids=repr)
def test_a_hostile_light_queue_is_damage(name: bytes, tmp_path: Path) -> None:
    """With --lmq alone: without it the property is a property like any other."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(10):
            properties = b"INNER_MULTI_DISPATCH\x01ok,%s\x02INNER_MULTI_QUEUE_OFFSET\x010,0\x02" % name
            put = writer.append(Message(properties=properties if number == 4 else {}))
            if number == 4:
                bad = put
    for policy in POLICIES:
        summary = build_and_compare(store, out, 400, on_damage=policy, lmq=True, **SMALL)
        assert summary.exit == EXIT[policy]
        assert (summary.damage[0]["offset"], summary.damage[0]["length"]) == (bad.offset, bad.size)
        assert summary.damage[0]["reason"] == "LMQ name is not one plain path component"
    assert build_and_compare(store, out, 400, **SMALL).exit == 0


def test_a_light_queue_with_a_slash_is_skipped(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for _ in range(10):
            writer.append(Message(lmq=("%LMQ%a/b", "../../x", "%LMQ%fine")))
    for size in (0, 700):
        summary = build_and_compare(store, out, size, lmq=True, **SMALL)
        assert (summary.exit, summary.units, summary.damage) == (0, 20, [])
        assert sorted(path.name for path in (out / "consumequeue").iterdir()) == ["%LMQ%fine", "TopicA"]
        assert any(warning.startswith("skipped 20 dispatches to LMQ names") for warning in summary.warnings)


@pytest.mark.parametrize(
    ("queue_id", "queue_offset"), [(-1, 0), (-(2**31), 0), (0, -1), (0, -(2**63)), (0, 2**63 - 2), (0, (2**63 - 1) // 20 + 1)]
)
def test_impossible_queues_are_damage(queue_id: int, queue_offset: int, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(10):
            lying = Message(queue_id=queue_id, queue_offset=queue_offset)
            writer.append(lying if number == 5 else Message(queue_offset=number - (number > 5)))
    summary = build_and_compare(store, out, on_damage="salvage", **SMALL)
    assert (summary.exit, summary.records) == (3, 9)
    assert summary.damage[0]["reason"] == "impossible queue id or queue offset"


def test_far_queues_make_no_more_files_than_records(tmp_path: Path) -> None:
    """A queue that begins at a huge offset, with a huge id, is one file: nothing is allocated for what lies before."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(5):
            writer.append(Message(queue_id=2**31 - 1, queue_offset=10**17 + number))
    summary = build_and_compare(store, out, **SMALL)
    assert (summary.exit, summary.files["consumequeue"]) == (0, 1)
    (path,) = (path for path in read_files(out) if path.startswith("consumequeue/"))
    assert path == f"consumequeue/TopicA/2147483647/{10**17 * 20 // 400 * 400:020d}"
    with LogWriter(tmp_path / "far" / "commitlog", 1 << 13) as writer:
        for offset in (0, 10**17, 10**17 + 1, 10**17 + 2):
            writer.append(Message(queue_offset=offset))
    refused = local_build(tmp_path / "far", tmp_path / "never", **SMALL)
    assert (refused.exit, (tmp_path / "never").exists()) == (5, False)
    assert "--max-fill" in (refused.error or "")
