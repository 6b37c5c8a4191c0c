"""Light message queues whose names must never become a path, and topics that are merely odd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.test_damage import POLICIES, build_and_compare
from tests.hostile.test_names import IMPOSSIBLE
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

ODD = ("a b", "Тема", "x~y!", "...", "-", "~", "*", "$(id)", "a.b", "\u202eevil", "😀")


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


@pytest.mark.parametrize("name", [name for name in IMPOSSIBLE if b"/" not in name and len(name) < 99 and name], ids=repr)
def test_a_hostile_light_queue_costs_its_own_dispatch(name: bytes, tmp_path: Path) -> None:
    """It never becomes a path; its record keeps its unit and its items, in the middle of the log and at its end."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number in range(10):
            count = b"0" if number == 4 else b"1"
            properties = b"KEYS\x01k\x02INNER_MULTI_DISPATCH\x01ok,%s\x02INNER_MULTI_QUEUE_OFFSET\x01%s,0\x02" % (name, count)
            writer.append(Message(properties=properties if number in (4, 9) else {}))
    for policy in POLICIES:
        for size in (0, 400):
            summary = build_and_compare(store, out, size, on_damage=policy, lmq=True, **SMALL)
            assert (summary.exit, summary.damage, summary.units, summary.items) == (0, [], 12, 2)
            assert sorted(path.name for path in (out / "consumequeue").iterdir()) == ["TopicA", "ok"]
            assert [warning[:20] for warning in summary.warnings] == ["skipped 2 dispatches"]
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
