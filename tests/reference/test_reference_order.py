"""The reference's reading of `--queue-order logical`, case by case; policies, fills and filters on tiny logs."""

from pathlib import Path
from typing import Any

import pytest

from tests.reference.build import ReferenceBuild, reference_build
from tests.reference.queue_order import Unit, judge, settle
from tests.tools.make_log import LogWriter, Message

APPEND, GENERATION, JUMP, OUT, PENDING = "append", "generation", "jump", "out-of-line", "pending"


def _units(offsets: list[int]) -> list[Unit]:
    return [Unit(100 * number, 100, 0, offset) for number, offset in enumerate(offsets)]


@pytest.mark.parametrize(
    ("offsets", "does", "stands", "filled"),
    [
        ([5, 6, 7], [APPEND] * 3, [5, 6, 7], []),
        ([0, 1, 2, 0, 1], [APPEND] * 3 + [GENERATION, APPEND], [0, 1], []),
        ([0, 1, 2, 3, 1, 2, 3], [APPEND] * 4 + [GENERATION, APPEND, APPEND], [0, 1, 2, 3], []),
        ([0, 1, 2, 3, 1, 2], [APPEND] * 4 + [PENDING, PENDING], [0, 1, 2, 3], []),
        ([0, 1, 2, 3, 1, 2, 4], [APPEND] * 4 + [OUT, OUT, APPEND], [0, 1, 2, 3, 4], []),
        ([0, 1, 5, 6, 7], [APPEND] * 2 + [JUMP, APPEND, APPEND], [0, 1, 5, 6, 7], [2, 3, 4]),
        ([0, 1, 5, 6], [APPEND] * 2 + [JUMP, APPEND], [0, 1, 5, 6], [2, 3, 4]),
        ([0, 1, 5, 9], [APPEND] * 2 + [JUMP, JUMP], [0, 1, 5, 9], [2, 3, 4, 6, 7, 8]),
        ([0, 1, 5, 0, 1], [APPEND] * 2 + [JUMP, GENERATION, APPEND], [0, 1], []),
        ([0, 1, 5, 6, 2, 7, 8, 9], [APPEND] * 2 + [JUMP, APPEND, OUT] + [APPEND] * 3, [0, 1, 5, 6, 7, 8, 9], [2, 3, 4]),
        ([0, 1, 2, 9, 5], [APPEND] * 3 + [JUMP, PENDING], [0, 1, 2, 9], [3, 4, 5, 6, 7, 8]),
        ([0, 1, 50, 2, 3], [APPEND] * 2 + [OUT, APPEND, APPEND], [0, 1, 2, 3], []),
        ([9, 4, 5, 6], [APPEND, GENERATION, APPEND, APPEND], [4, 5, 6], []),
        ([0, 9, 10, 11, 4, 5, 6], [APPEND, JUMP, APPEND, APPEND, GENERATION, APPEND, APPEND], [0, 4, 5, 6], [1, 2, 3]),
    ],
)  # fmt: skip
def test_verdicts(offsets: list[int], does: list[str], stands: list[int], filled: list[int]) -> None:
    verdicts = judge(_units(offsets), [])
    assert [v.does for v in verdicts] == does
    standing, fills = settle(verdicts)
    assert (sorted(standing), sorted(fills)) == (stands, filled)
    # The live topic wins: what stands is the last record of its offset; a fill repeats the unit that follows it.
    for at, unit in fills.items():
        assert unit == standing[min(s for s in standing if s > at)]


def test_a_jump_over_damage_counts() -> None:
    units = [Unit(400 * number, 100, 0, offset) for number, offset in enumerate([0, 1, 5, 2])]
    assert [v.does for v in judge(units, [(500, 800)])] == [APPEND, APPEND, JUMP, PENDING]
    assert [v.does for v in judge(units, [(100, 400)])] == [APPEND, APPEND, OUT, APPEND]
    assert [v.does for v in judge(units, [(900, 1200)])] == [APPEND, APPEND, OUT, APPEND]


def test_a_far_jump_that_nothing_explains_does_not_count() -> None:
    assert [v.does for v in judge(_units([0, 1, 100_002]), [])] == [APPEND, APPEND, JUMP]
    assert [v.does for v in judge(_units([0, 1, 100_003]), [])] == [APPEND, APPEND, PENDING]


def test_lost_bytes_have_room_for_so_many_records() -> None:
    units = [Unit(place, 100, 0, offset) for place, offset in ((0, 0), (282, 3), (400, 2))]
    for far, does in ((3, [APPEND, JUMP, PENDING]), (4, [APPEND, OUT, JUMP])):
        some = [units[0], Unit(282, 100, 0, far), units[2]]
        assert [v.does for v in judge(some, [(100, 282)])] == does


def test_what_is_missing_at_a_queues_beginning() -> None:
    standing, fills = settle(judge(_units([7, 8, 9]), []), head=5)
    assert (sorted(standing), sorted(fills)) == ([7, 8, 9], [5, 6])
    assert settle(judge(_units([5, 6, 7]), []), head=5)[1] == {}


def _log(store: Path, offsets: list[int]) -> None:
    with LogWriter(store / "commitlog") as writer:
        for offset in offsets:
            writer.append(Message(queue_offset=offset, properties={"KEYS": f"k{offset}"}))


def _build(store: Path, **settings: Any) -> ReferenceBuild:
    return reference_build(store, **({"cq_file_size": 200, "hash_slots": 10, "index_items": 100} | settings))


def test_out_of_line_records_keep_their_keys(tmp_path: Path) -> None:
    _log(tmp_path, [0, 1, 50, 2, 3])
    assert _build(tmp_path).summary.exit == 5
    salvaged = _build(tmp_path, on_damage="salvage").summary
    assert (salvaged.exit, salvaged.units, salvaged.items, salvaged.damage[0].reason) == (3, 4, 5, "queue-order")
    stopped = _build(tmp_path, on_damage="stop").summary
    assert (stopped.exit, stopped.units, stopped.items, stopped.records) == (3, 2, 2, 2)
    assert _build(tmp_path, queue_order="fail", on_damage="salvage").summary.exit == 5
    broker = _build(tmp_path, queue_order="broker").summary
    assert (broker.exit, broker.units, [d["kind"] for d in broker.decisions]) == (0, 4, ["dropped", "misplaced"])
    index_only = _build(tmp_path, only=("index",))
    assert (index_only.summary.exit, index_only.summary.items, len(index_only.files)) == (0, 5, 1)


def test_too_many_fills_are_refused(tmp_path: Path) -> None:
    _log(tmp_path, [0, 100_001, 100_002, 100_003])
    filled = _build(tmp_path, cq_file_size=2_000_000).summary
    assert (filled.exit, filled.units, filled.fills) == (0, 100_004, 100_000)
    assert _build(tmp_path, max_fill=99_999).summary.exit == 5


def test_filters_and_limits(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "commitlog") as writer:
        puts = [writer.append(Message(topic=t, store_timestamp=n, properties={"KEYS": "k"}))
                for n, t in enumerate(["A", "B", "A", "C"], 1)]  # fmt: skip
    for settings, records in (
        ({"include_topic": ("A",)}, 2),
        ({"exclude_topic": ("A", "B")}, 1),
        ({"until_offset": puts[2].offset}, 2),
        ({"until_offset": puts[2].offset + 1}, 3),
        ({"until_time": 2}, 2),
    ):
        summary = _build(tmp_path, **settings).summary
        assert (summary.exit, summary.units, summary.items, summary.records) == (0, records, records, records)


def test_a_sealed_last_file_and_a_safe_checkpoint(tmp_path: Path) -> None:
    _log(tmp_path, [0, 1, 2])
    safe, broker = _build(tmp_path), _build(tmp_path, checkpoint="broker")
    (name,) = (path for path in safe.files if path.startswith("index/"))
    assert safe.files[name][:36] == broker.files[name][:36]
    assert safe.files[name][40:] == broker.files[name][40:]
    assert safe.files[name][36:40] == (100).to_bytes(4, "big")
    assert broker.files[name][36:40] == (4).to_bytes(4, "big")
    stored = (1_700_000_000_000).to_bytes(8, "big")
    assert safe.files["checkpoint"][:24] == stored * 3
    assert broker.files["checkpoint"][:24] == bytes(8) + stored + bytes(8)


def test_no_segments_and_only_zeros(tmp_path: Path) -> None:
    assert _build(tmp_path).files == {"checkpoint": bytes(4096)}
    (tmp_path / "commitlog").mkdir()
    assert _build(tmp_path).files == {"checkpoint": bytes(4096)}
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    built = _build(tmp_path)
    assert built.files == {"checkpoint": bytes(4096)}
    assert built.summary.exit == 0
