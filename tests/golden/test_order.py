"""Queues out of order: topics made again, gaps, repeats, records out of line, and what each policy makes of them."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building import decisions
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from tests.golden.stores import read_files
from tests.golden.test_damage import build_and_compare
from tests.reference.build import reference_build
from tests.tools import spoil
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_repair
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message
from tests.tools.seeds import cases

SIZES = (0, 333, 1000)
"""Range sizes: one range, a few records each, some."""


def write_log(store: Path, offsets: list[int], topic: str = "TopicA", segment_size: int = 1 << 12) -> list[Put]:
    """One queue whose records name these offsets; of the other queues only the keys are there."""
    with LogWriter(store / "commitlog", segment_size) as writer:
        puts = []
        for number, offset in enumerate(offsets):
            writer.append(Message(topic="Other", properties={"KEYS": f"o{number}"}))
            puts.append(writer.append(Message(topic=topic, queue_offset=offset, properties={"KEYS": f"k{number}"})))
        return puts


def build(store: Path, out: Path, **settings: Any) -> BuildResult:
    """The build, alike for all range sizes."""
    found = [build_and_compare(store, out, size, **(SMALL | settings)) for size in SIZES]
    for other in found[1:]:
        assert (other.damage, other.decisions, other.warnings) == (found[0].damage, found[0].decisions, found[0].warnings)
    if found[0].exit in (0, 3):
        manifest = json.loads((out / "reindex.json").read_text())
        assert manifest["decisions"] == found[0].decisions
        assert manifest["damage"] == sorted(found[0].damage, key=lambda d: (d["offset"], d["reason"]))
        assert manifest["warnings"] == found[0].warnings
    return found[0]


def queue(out: Path, topic: str = "TopicA") -> dict[int, int]:
    """{position: physical offset} of queue 0."""
    found: dict[int, int] = {}
    for path, content in read_files(out).items():
        if path.startswith(f"consumequeue/{topic}/0/"):
            start = int(path.rsplit("/", 1)[1]) // 20
            units = enumerate(struct.iter_unpack(">qiq", content), start)
            found |= {at: unit[0] for at, unit in units if unit[1] not in (0, 2**31 - 1)}
    return found


def decided(summary: BuildResult, topic: str = "TopicA") -> list[tuple[str, int, int]]:
    assert all(entry["topic"] == topic and entry["queue"] == 0 for entry in summary.decisions)
    return [(entry["kind"], entry["offset"], entry["count"]) for entry in summary.decisions]


def test_a_topic_deleted_and_made_again(tmp_path: Path) -> None:
    """The live topic wins: what stood at or above its units is gone, and every unit stands at its own offset."""
    puts = write_log(tmp_path / "store", [*range(12), *range(5), *range(8)])
    out = tmp_path / "out"
    summary = build(tmp_path / "store", out)
    assert (summary.exit, summary.records, summary.items) == (0, 50, 50)
    assert decided(summary) == [("generation", 0, 12), ("generation", 0, 5)]
    assert queue(out) == {at: puts[17 + at].offset for at in range(8)}
    broker = build(tmp_path / "store", out, queue_order="broker")
    assert [kind for kind, _, _ in decided(broker)] == ["restart", "dropped", "restart", "dropped"]
    assert queue(out) == {at: puts[at if at < 12 else 12 if at == 12 else 17].offset for at in range(14)}


def test_a_topic_cut_back_to_the_middle(tmp_path: Path) -> None:
    """A slave promoted behind its master: three that follow on each other are a generation, two are not.

    At the queue's end two are pending: published without them, which the exit status says. Where the old line goes on they are
    damage.
    """
    puts = write_log(tmp_path / "three", [*range(10), 6, 7, 8])
    summary = build(tmp_path / "three", tmp_path / "out")
    assert (summary.exit, decided(summary)) == (0, [("generation", 6, 4)])
    assert queue(tmp_path / "out") == {at: puts[at if at < 6 else at + 4].offset for at in range(9)}
    for policy in ("fail", "stop", "salvage"):
        for number in (1, 2):
            puts = write_log(tmp_path / f"{policy}{number}", [*range(10), *range(6, 6 + number)])
            summary = build(tmp_path / f"{policy}{number}", tmp_path / "out", on_damage=policy)
            assert (summary.exit, summary.damage, decided(summary)) == (3, [], [("pending", 6, number)])
            assert [warning for warning in summary.warnings if "no consumer gets them" in warning] == summary.warnings
            assert queue(tmp_path / "out") == {at: puts[at].offset for at in range(10)}
            assert (summary.records, summary.items) == (20 + 2 * number, 20 + 2 * number), "a query finds them all the same"
    puts = write_log(tmp_path / "two", [*range(10), 6, 7, 10])
    refused = build(tmp_path / "two", tmp_path / "out")
    assert (refused.exit, [d["offset"] for d in refused.damage]) == (5, [puts[10].offset, puts[11].offset])
    assert f"offset {puts[10].offset}" in (refused.error or "")
    salvaged = build(tmp_path / "two", tmp_path / "out", on_damage="salvage")
    assert (salvaged.exit, salvaged.records, salvaged.items, salvaged.units) == (3, 26, 26, 24)
    assert decided(salvaged) == [("out-of-line", 6, 1), ("out-of-line", 7, 1)]
    assert {d["length"] for d in salvaged.damage} == {puts[10].size}
    stopped = build(tmp_path / "two", tmp_path / "out", on_damage="stop")
    assert (stopped.exit, stopped.records, len(stopped.damage)) == (3, 21, 1)


def test_repeated_records(tmp_path: Path) -> None:
    """One record twice is out of line; its broker drops it."""
    write_log(tmp_path / "store", [0, 1, 2, 2, 3, 4, 4, 5, 5])
    assert build(tmp_path / "store", tmp_path / "out").exit == 5
    salvaged = build(tmp_path / "store", tmp_path / "out", on_damage="salvage")
    assert (salvaged.exit, sorted(queue(tmp_path / "out"))) == (3, [0, 1, 2, 3, 4, 5])
    assert decided(salvaged)[-1] == ("pending", 5, 1)
    broker = build(tmp_path / "store", tmp_path / "out", queue_order="broker")
    assert (broker.exit, decided(broker)) == (0, [("dropped", at, 1) for at in (2, 4, 5)])


def test_gaps_repeat_the_next_surviving_unit(tmp_path: Path) -> None:
    puts = write_log(tmp_path / "store", [0, 1, 2, 7, 8, 9, 40, 41, 42])
    out = tmp_path / "out"
    summary = build(tmp_path / "store", out)
    assert (summary.exit, summary.units, summary.damage) == (0, 9 + 43, [])
    assert decided(summary) == [("fill", 3, 4), ("fill", 10, 30)]
    stands = dict(zip([0, 1, 2, 7, 8, 9, 40, 41, 42], [put.offset for put in puts], strict=True))
    assert queue(out) == {at: stands[min(s for s in stands if s >= at)] for at in range(43)}
    broker = build(tmp_path / "store", out, queue_order="broker")
    assert decided(broker) == [("misplaced", 7, 3), ("misplaced", 40, 3)]
    assert sorted(queue(out)) == list(range(9))


def test_gaps_of_delayed_messages_deliver_nothing(tmp_path: Path) -> None:
    """Each unit of the schedule topic is delivered as a new message: a fill there has a size that no message has."""
    puts = {}
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for offset in (0, 1, 2, 6, 7, 8):
            message = Message(topic="SCHEDULE_TOPIC_XXXX", queue_offset=offset, properties={"DELAY": "2"})
            puts[offset] = writer.append(message)
    store, out = tmp_path / "store", tmp_path / "out"
    summary = build(store, out)
    assert (summary.exit, decided(summary, "SCHEDULE_TOPIC_XXXX")) == (0, [("fill", 3, 3)])
    (file,) = (out / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "0").iterdir()
    units = np.frombuffer(file.read_bytes()[: 9 * UNIT.itemsize], UNIT)
    assert units["phy_offset"].tolist() == [puts[at].offset for at in (0, 1, 2, 6, 6, 6, 6, 7, 8)]
    assert units["size"].tolist() == [*(puts[at].size for at in (0, 1, 2)), 1, 1, 1, *(puts[at].size for at in (6, 7, 8))]


def test_a_lonely_jump_is_out_of_line(tmp_path: Path) -> None:
    """One record far above the end proves nothing, unless damage lies between."""
    write_log(tmp_path / "store", [0, 1, 1000, 2, 3])
    assert build(tmp_path / "store", tmp_path / "out").exit == 5
    salvaged = build(tmp_path / "store", tmp_path / "out", on_damage="salvage")
    assert (salvaged.exit, decided(salvaged)) == (3, [("out-of-line", 1000, 1)])
    assert sorted(queue(tmp_path / "out")) == [0, 1, 2, 3]


def test_a_jump_over_damage_is_filled(tmp_path: Path) -> None:
    puts = write_log(tmp_path / "store", list(range(20)))
    for number in (18, 9, 8, 7):
        spoil.garbage(tmp_path / "store", 2 * number + 1, seed=number)
    summary = build(tmp_path / "store", tmp_path / "out", on_damage="salvage")
    assert (summary.exit, len(summary.damage)) == (3, 4)
    assert decided(summary) == [("fill", 7, 3), ("fill", 18, 1)]
    stands = queue(tmp_path / "out")
    assert sorted(stands) == list(range(20))
    assert {stands[at] for at in (7, 8, 9, 10)} == {puts[10].offset}
    assert stands[18] == puts[19].offset


def test_fills_are_counted_over_the_whole_build(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for topic in ("A", "B"):
            for offset in (0, 11, 12, 13, 24, 25, 26):
                writer.append(Message(topic=topic, queue_offset=offset))
    filled = build(tmp_path / "store", tmp_path / "out", max_fill=40)
    assert (filled.exit, filled.units) == (0, 54)
    refused = build(tmp_path / "store", tmp_path / "out", max_fill=39)
    assert (refused.exit, (tmp_path / "out").exists()) == (5, False)
    assert "40 missing offsets" in (refused.error or "")
    assert [entry["count"] for entry in refused.decisions] == [10, 10, 10, 10]
    assert build(tmp_path / "store", tmp_path / "out", max_fill=0, queue_order="broker").exit == 0
    # What no ConsumeQueue is asked for needs no filling.
    assert build(tmp_path / "store", tmp_path / "out", max_fill=0, only=("index", "checkpoint")).exit == 0


@pytest.mark.parametrize(
    ("offsets", "kind", "at", "count"),
    [([0, 1, 2, 0, 1], "repeat", 0, 3), ([5, 6, 9, 10], "gap", 7, 2), ([0, 1, 1, 2], "repeat", 1, 1)],
)
def test_fail_refuses_any_disorder(offsets: list[int], kind: str, at: int, count: int, tmp_path: Path) -> None:
    write_log(tmp_path / "store", offsets)
    for policy in ("fail", "stop", "salvage"):
        refused = build(tmp_path / "store", tmp_path / "out", queue_order="fail", on_damage=policy)
        assert (refused.exit, (tmp_path / "out").exists()) == (5, False)
        assert decided(refused) == [(kind, at, count)]
        assert f"{kind} of {count} at queue offset {at}" in (refused.error or "")
        assert "TopicA/0" in (refused.error or "")
    assert build(tmp_path / "store", tmp_path / "out", queue_order="fail", only=("index",)).exit == 0


def _disorder(rng: random.Random) -> list[int]:
    """A queue that counts up, now and then from another place."""
    offsets: list[int] = []
    at = rng.choice((0, 0, 3, 17))
    for _ in range(rng.randrange(1, 12)):
        offsets += range(at, at + rng.choice((1, 1, 2, 3, 4, 9)))
        at = rng.choice((0, 0, 1, max(0, offsets[-1] - 2), offsets[-1], offsets[-1] + 1, offsets[-1] + 2, offsets[-1] + 30))
    return offsets


@pytest.mark.parametrize("few", [0, decisions.FEW_RUNS])
@pytest.mark.parametrize("policy", ["broker", "logical"])
def test_random_sequences(policy: str, few: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many queues in any disorder, dealt out over the log, against the reference: bytes, damage and decisions."""
    # Judged by reducers, or here.
    monkeypatch.setattr(decisions, "FEW_RUNS", few)
    rng = random.Random(seed)
    for number in range(cases(5, 1)):
        store = tmp_path / f"{number}"
        waiting = {(f"T{topic}", queue_id): _disorder(rng) for topic in range(3) for queue_id in range(2)}
        with LogWriter(store / "commitlog", 1 << 12) as writer:
            while waiting:
                topic, queue_id = rng.choice(list(waiting))
                offset = waiting[topic, queue_id].pop(0)
                if not waiting[topic, queue_id]:
                    del waiting[topic, queue_id]
                writer.append(Message(topic=topic, queue_id=queue_id, queue_offset=offset, properties={"KEYS": f"{offset}"}))
        if rng.random() < 0.5:
            spoil.garbage(store, rng.randrange(len(spoil.record_offsets(store))), seed)
        for damage in ("fail", "stop", "salvage"):
            settings = SMALL | {"queue_order": policy, "on_damage": damage}
            summary = build_and_compare(store, tmp_path / "out", rng.choice((0, 200, 1111)), **settings)
            if summary.exit in (0, 3):
                truth = reference_build(store, **settings).summary
                if policy == "broker":
                    assert _counts(summary.decisions) == _counts(truth.decisions)
                else:
                    assert summary.units - _filled(summary.decisions) == truth.units - truth.fills
                    assert _filled(summary.decisions) == truth.fills


def _filled(decisions: list[dict[str, Any]]) -> int:
    return sum(entry["count"] for entry in decisions if entry["kind"] == "fill")


def _counts(decisions: list[dict[str, Any]]) -> dict[tuple[str, str, int], int]:
    """Units by kind and queue; how they are grouped is the teller's choice, and a restart at 0 is one misplaced unit."""
    counts: dict[tuple[str, str, int], int] = {}
    for entry in decisions:
        kind = "misplaced" if entry["kind"] == "restart" else entry["kind"]
        place = (kind, entry["topic"], entry["queue"])
        counts[place] = counts.get(place, 0) + entry["count"]
    return counts


def mended(tmp_path: Path, messages: list[Message], damaged: int = -1) -> tuple[Path, BuildResult]:
    """A log of these records, one of them damaged, and its repair."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 14) as writer:
        for message in messages:
            writer.append(message)
    if damaged >= 0:
        spoil.bad_magic(tmp_path / "store", damaged)
    return tmp_path / "mended", local_repair(tmp_path / "store", tmp_path / "mended", broker_version="5.3", **SMALL)


@pytest.mark.parametrize("damaged", [-1, 5], ids=["sound", "flipped"])
def test_every_command_tells_of_pending_records(damaged: int, tmp_path: Path) -> None:
    """Verify compares, so they are no difference; but it never says that all is well."""
    offsets = [*range(10), 4, 5] if damaged < 0 else [*range(6), 8, 6, 7]
    messages = [Message(topic="T", queue_offset=offset, body=b"x" * 250) for offset in offsets]
    store, repaired = mended(tmp_path, messages, damaged)
    assert repaired.exit == 3
    assert sum(found["count"] for found in repaired.decisions if found["kind"] == "pending") == 2
    verified = local_verify(store, broker_version="5.3", **SMALL)
    told = "no differences, but 2 pending records at a queue's end have no unit: no consumer gets them"
    assert (verified.exit, verified.pending) == (0, 2)
    assert f"\nclean    {told}\n" in verified.to_text()
    (tmp_path / "report").write_text(verified.to_json())
    assert told.replace("'", "&#x27;") in make_page(str(tmp_path / "report"))
    started = rr.preflight(store, broker_version="5.3.3", **SMALL)
    (loss,) = started.losses
    assert (started.exit_status, loss["kind"], loss["count"]) == (4, "records-hidden", 2)


def test_a_stray_record_is_hidden(tmp_path: Path) -> None:
    """Fewer bytes are lost than explain it. Later records have lower offsets, but its queue does not begin again at 0."""
    messages = [Message(topic="T", queue_offset=offset, body=b"x" * 150) for offset in (*range(6), 8, 6, 7)]
    store, repaired = mended(tmp_path, messages, 5)
    assert repaired.exit == 3
    started = rr.preflight(store, broker_version="5.3.3", **SMALL)
    (loss,) = started.losses
    assert (started.exit_status, started.warnings, loss["kind"], loss["count"]) == (4, [], "records-hidden", 1)
    assert "have no place in their queue" in loss["advice"][1]
    (command,) = loss["commands"]
    assert command.startswith(f"rmq-reindex verify {store} ")
    verified = local_verify(store, broker_version="5.3", **SMALL)
    assert (verified.exit, [found["kind"] for found in verified.findings]) == (4, ["log-out-of-line"])
