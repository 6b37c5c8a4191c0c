"""Queue ids and queue offsets that are negative, huge or far apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.stores import read_files
from tests.golden.test_damage import EXIT, POLICIES, build_and_compare
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

HIGHEST = (2**63 - 2**40) // 20
"""More than this and a unit's place has no name."""


def write(store: Path, queues: list[tuple[int, int]]) -> None:
    """A record for each (queue id, queue offset)."""
    with LogWriter(store / "commitlog", 1 << 13) as writer:
        for number, (queue_id, offset) in enumerate(queues):
            writer.append(Message(queue_id=queue_id, queue_offset=offset, properties={"KEYS": f"k{number}"}))


@pytest.mark.parametrize(
    ("queue_id", "offset"),
    [(-1, 0), (-(2**31), 0), (0, -1), (0, -(2**63)), (0, 2**63 - 1), (0, 2**63 - 2), (0, (2**63 - 1) // 20 + 1), (-1, -1)],
)
def test_an_impossible_queue_is_damage(queue_id: int, offset: int, tmp_path: Path) -> None:
    write(tmp_path / "store", [(0, n) for n in range(5)] + [(queue_id, offset)] + [(0, n) for n in range(5, 9)])
    for policy in POLICIES:
        summary = build_and_compare(tmp_path / "store", tmp_path / "out", 400, on_damage=policy, **SMALL)
        assert summary.exit == EXIT[policy]
        assert policy == "fail" or summary.records == {"stop": 5, "salvage": 9}[policy]
        assert summary.damage[0]["reason"] == "impossible queue id or queue offset"


@pytest.mark.parametrize("order", ["logical", "broker"])
@pytest.mark.parametrize(
    "queues",
    [
        pytest.param([(2**31 - 1, 10**17 + n) for n in range(5)], id="huge id, huge offset"),
        pytest.param([(0, HIGHEST - 4 + n) for n in range(5)], id="highest offset"),
        pytest.param([(n * 10**8, 7 * n) for n in range(21)], id="sparse ids"),
        pytest.param([(0, n * 9) for n in range(20)], id="sparse offsets"),
    ],
)
def test_a_far_queue_makes_no_more_files_than_records(queues: list[tuple[int, int]], order: str, tmp_path: Path) -> None:
    """Nothing is allocated for what lies before; records out of line are damage in logical order."""
    write(tmp_path / "store", queues)
    for size in (0, 400):
        summary = build_and_compare(
            tmp_path / "store", tmp_path / "out", size, queue_order=order, on_damage="salvage", **SMALL
        )  # fmt: skip
        assert summary.exit in (0, 3)
        assert summary.files["consumequeue"] <= len(queues)
    paths = [path for path in read_files(tmp_path / "out") if path.startswith("consumequeue/")]
    if queues[0][0] == 2**31 - 1:
        assert paths == [f"consumequeue/TopicA/2147483647/{10**17 * 20 // 400 * 400:020d}"]


def test_a_far_gap_is_refused_not_filled(tmp_path: Path) -> None:
    write(tmp_path / "store", [(0, offset) for offset in (0, 10**17, 10**17 + 1, 10**17 + 2)])
    refused = build_and_compare(tmp_path / "store", tmp_path / "never", **SMALL)
    assert (refused.exit, (tmp_path / "never").exists()) == (5, False)
    assert "--max-fill" in (refused.error or "")
