"""Batch ConsumeQueues (``queue.type=BatchCQ``): the bytes of RocketMQ 5.3.3's own rebuild, and queues out of order.

batch-5.3 was put by the real store (``tests/oracle``: BatchStore --put 500 --seed 11), batch-odd-5.3 by ``random_batch_log``
with seed 3; both were rebuilt by the real store.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.repairing.options import repair_settings
from rocketmq_reindex.jobs.verifying.options import verify_settings
from rocketmq_reindex.jobs.verifying.work import take_sizes
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.topics import batch_topics
from tests.golden.stores import GoldenStore, index_in_order, read_files
from tests.golden.test_extended import extended
from tests.tools.batch_log import BATCH_TOPICS, MADE, SIZES, batch, batch_files, batch_queue, random_batch_log
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter
from tests.tools.no_override import bound_by_permissions
from tests.tools.seeds import cases

Stores = Callable[[str], GoldenStore]
STORES = ("batch-5.3", "batch-odd-5.3")


@pytest.mark.parametrize("name", STORES)
def test_equals_the_brokers_rebuild(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store, out, manifests = golden_store(name).path, tmp_path / "out", set()
    topics = batch_topics((store / "config" / "topics.json").read_text())
    settings = {**SIZES, "batch_topics": topics, "queue_order": "broker", "checkpoint": "broker", "overwrite": True}
    settings["broker_version"] = "5.3"
    for size, buckets, partitions in ((0, 1, 1), (700, 7, 3), (20_000, 4, 2)):
        summary = local_build(store, out, InlineEngine(buckets, partitions), range_size=size, **settings)
        assert (summary.exit, summary.error) == (0, None)
        ours, theirs = read_files(out), read_files(store / "rebuilt")
        assert batch_files(out) == batch_files(store / "rebuilt")
        assert {k: v for k, v in ours.items() if k[0] == "c"} == {k: v for k, v in theirs.items() if k[0] == "c"}
        assert index_in_order(ours) == index_in_order(theirs)
        assert (
            summary.units
            == sum(entry["used"] for entry in _files(out, "consumequeue/")) // 20
            + sum(entry["used"] for entry in _files(out, "batchconsumequeue/")) // 46
        )
        manifests.add((out / "reindex.json").read_bytes())
    assert len(manifests) == 1


def _files(out: Path, kind: str) -> list[dict[str, Any]]:
    manifest = json.loads((out / "reindex.json").read_text())
    return [entry for entry in manifest["files"] if entry["path"].startswith(kind)]


def test_the_manifest_names_them(golden_store: Stores, tmp_path: Path) -> None:
    summary = local_build(golden_store("batch-5.3").path, tmp_path / "out", **MADE)
    files, told = batch_files(tmp_path / "out"), _files(tmp_path / "out", "batchconsumequeue/")
    assert [entry["path"] for entry in told] == sorted(files)
    for entry in told:
        content = files[entry["path"]]
        assert (len(content), any(content[entry["used"] :])) == (entry["size"], False)
        assert entry["digest"] == new_digest([content[: entry["used"]]]).digest().hex()
    assert summary.files["consumequeue"] == len(told) + len(_files(tmp_path / "out", "consumequeue/"))


def test_without_a_topics_config_plain_units_and_a_warning(golden_store: Stores, tmp_path: Path) -> None:
    log = tmp_path / "log"
    shutil.copytree(golden_store("batch-5.3").path / "commitlog", log / "commitlog")
    for order, status in (("broker", 0), ("logical", 5), ("fail", 5)):
        out = tmp_path / order
        summary = local_build(log, out, **(MADE | {"batch_topics": (), "queue_order": order}))
        assert summary.exit == status
        assert not (out / "batchconsumequeue").exists()
        assert (out / "consumequeue" / "BatchA").exists() == (status == 0)
        assert "inner batches" in summary.warnings[0]
        assert summary.warnings[0].endswith("give --topics-config")
        assert order != "logical" or "batches may have them: give --topics-config" in (summary.error or "")
        # Each jump would be one.
        assert order != "logical" or len(summary.warnings) == 1


def test_the_topics_config_of_the_store_is_taken(golden_store: Stores, tmp_path: Path) -> None:
    """A broker does not start where it and the folders of queues disagree."""
    store = tmp_path / "store"
    for part in ("commitlog", "config"):
        shutil.copytree(golden_store("batch-5.3").path / part, store / part)
    taken = local_build(store, tmp_path / "taken", **(MADE | {"batch_topics": ()}))
    assert (taken.exit, taken.warnings) == (0, [])
    assert f"config/topics.json: {len(BATCH_TOPICS)} batch topics, taken from the store" in "\n".join(taken.notes)
    assert local_build(store, tmp_path / "named", **MADE).notes == [note for note in taken.notes if "topics.json" not in note]
    assert batch_files(tmp_path / "taken") == batch_files(tmp_path / "named")
    none = tmp_path / "topics.json"
    none.write_text('{"topicConfigTable":{}}')
    words = ["--out", str(tmp_path / "out"), "--topics-config", str(none), "--hash-slots", "50", "--index-items", "60"]
    settings = parse_settings([str(store), *words])
    assert look_at(settings).settings.batch_topics == ()
    old = parse_settings([str(store), "--out", str(tmp_path / "out"), "--broker-version", "4.9"])
    assert look_at(old).settings.batch_topics == ()
    (store / "config" / "topics.json").write_text("{")
    summary = local_build(store, tmp_path / "unread", **(MADE | {"batch_topics": ()}))
    assert summary.exit == 5
    assert f"{store}/config/topics.json: is no JSON" in "\n".join(summary.notes)


@pytest.mark.parametrize("left", [None, "", '{"topicConfigTable":{'], ids=["gone", "empty", "cut short"])
def test_the_older_topics_config_is_taken_where_a_kill_left_it(left: str | None, golden_store: Stores, tmp_path: Path) -> None:
    """A broker reads topics.json.bak then (``ConfigManager.load``)."""
    store, golden = tmp_path / "store", golden_store("batch-5.3")
    shutil.copytree(golden.path, store)
    config = store / "config" / "topics.json"
    config.rename(f"{config}.bak")
    if left is not None:
        config.write_text(left)
    taken = local_build(store, tmp_path / "taken", **(MADE | {"batch_topics": ()}))
    assert (taken.exit, taken.warnings) == (0, [])
    assert local_build(golden.path, tmp_path / "named", **MADE).exit == 0
    assert batch_files(tmp_path / "taken") == batch_files(tmp_path / "named") != {}
    log = (str(store / "commitlog"),)
    assert local_verify(tmp_path / "taken", commitlogs=log, **(MADE | {"batch_topics": ()})).exit == 0


def test_verify_of_a_build_takes_the_topics_of_the_logs_store(golden_store: Stores, tmp_path: Path) -> None:
    """The build was made by them, and has no config/topics.json of its own."""
    store, out = tmp_path / "store", tmp_path / "out"
    for part in ("commitlog", "config"):
        shutil.copytree(golden_store("batch-5.3").path / part, store / part)
    assert local_build(store, out, **(MADE | {"batch_topics": ()})).exit == 0
    found = local_verify(out, commitlogs=(str(store / "commitlog"),), **(MADE | {"batch_topics": ()}))
    assert found.exit == 0
    (store / "config").chmod(0)
    with bound_by_permissions():
        settings = verify_settings({"store": str(out), "commitlogs": [str(store / "commitlog")]})
        assert "config/topics.json cannot be read: batch queues are not known" in take_sizes(settings)[1]
    (store / "config").chmod(0o755)


def test_a_topics_config_without_batch_topics_stays(golden_store: Stores, tmp_path: Path) -> None:
    none = tmp_path / "topics.json"
    none.write_text('{"topicConfigTable":{}}')
    store = str(golden_store("batch-5.3").path)
    repaired = repair_settings({"store": store, "out": str(tmp_path / "out"), "topics_config": str(none)})
    verified = verify_settings({"store": store, "topics_config": str(none)})
    assert look_at(repaired).settings.batch_topics == take_sizes(verified)[0].batch_topics == ()


def test_parts(golden_store: Stores, tmp_path: Path) -> None:
    for only in (("index",), ("checkpoint",)):
        summary = local_build(golden_store("batch-5.3").path, tmp_path / only[0], only=only, **MADE)
        assert summary.exit == 0
        assert sorted(path.name for path in (tmp_path / only[0]).iterdir()) == sorted([*only, "reindex.json"])


# -- queues out of order ----------------------------------------------------------------------------------------------------


def build(tmp_path: Path, records: list[Message], **settings: Any) -> BuildResult:
    """The build of a log of these records into tmp_path/out, alike for all range sizes."""
    store, found = tmp_path / "store", []
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for record in records:
            writer.append(record)
    for size in (0, 300, 1000):
        found.append(local_build(store, tmp_path / "out", range_size=size, overwrite=True, **(MADE | settings)))
        found[-1].seconds = {}
        found[-1].bytes = 0
    assert found[0] == found[1] == found[2]
    return found[0]


def spans(out: Path, queue: int = 0) -> list[tuple[int, int]]:
    """(first queue offset, messages) of each unit of a queue."""
    return [unit[4:] for unit in batch_queue(out, queue=queue)]


def in_line(bases: list[int], count: int = 20) -> list[Message]:
    return [batch(base, count) for base in bases]


def decided(summary: BuildResult) -> list[tuple[str, int, int]]:
    return [(entry["kind"], entry["offset"], entry["count"]) for entry in summary.decisions]


def test_a_gap_repeats_the_next_record(tmp_path: Path) -> None:
    """Left open, a 5.3.3 broker answers whoever stands in it with the unit before it, for ever."""
    summary = build(tmp_path, in_line([0, 20, 100, 120, 140]))
    assert decided(summary) == [("fill", 40, 60)]
    assert spans(tmp_path / "out") == [(0, 20), (20, 20), (40, 60), (100, 20), (120, 20), (140, 20)]
    units = batch_queue(tmp_path / "out")
    assert units[2][:4] == units[3][:4]


def test_a_wide_gap_takes_several_units(tmp_path: Path) -> None:
    """A unit spans 32,767 messages at most."""
    summary = build(tmp_path, in_line([0, 20, 70_040, 70_060, 70_080]))
    assert decided(summary) == [("fill", 40, 70_000)]
    expected = [(0, 20), (20, 20), (40, 32767), (32807, 32767), (65574, 4466), (70_040, 20), (70_060, 20), (70_080, 20)]
    assert spans(tmp_path / "out") == expected


def test_more_than_may_be_filled(tmp_path: Path) -> None:
    records = in_line([0, 20, 100, 120, 140])
    assert build(tmp_path, records, max_fill=60).exit == 0
    summary = build(tmp_path, records, max_fill=59)
    assert (summary.exit, "60 missing offsets" in str(summary.error)) == (5, True)


def test_a_topic_made_again(tmp_path: Path) -> None:
    summary = build(tmp_path, in_line([0, 20, 40, 60, 0, 20]))
    assert decided(summary) == [("generation", 0, 80)]
    assert spans(tmp_path / "out") == [(0, 20), (20, 20)]
    assert [unit[0] for unit in batch_queue(tmp_path / "out")] == sorted(unit[0] for unit in batch_queue(tmp_path / "out"))


def test_a_later_life_begins_inside_a_batch(tmp_path: Path) -> None:
    """What of that batch comes before it is still served."""
    summary = build(tmp_path, in_line([0, 20, 40]) + in_line([25, 32, 39], 7))
    assert decided(summary) == [("generation", 25, 35)]
    assert spans(tmp_path / "out") == [(0, 20), (20, 5), (25, 7), (32, 7), (39, 7)]


def test_a_single_record_out_of_line_is_damage(tmp_path: Path) -> None:
    records = in_line([0, 20, 400, 40, 60])
    summary = build(tmp_path, records)
    assert (summary.exit, summary.damage[0]["reason"]) == (5, "queue offset out of line (queue BatchA/0)")
    assert build(tmp_path, records, on_damage="salvage").exit == 3
    assert spans(tmp_path / "out") == [(0, 20), (20, 20), (40, 20), (60, 20)]


def test_the_broker_appends_whatever_comes(tmp_path: Path) -> None:
    summary = build(tmp_path, in_line([0, 20, 100, 0, 20]), queue_order="broker")
    assert decided(summary) == [("appended", 100, 20), ("appended", 0, 40)]
    assert spans(tmp_path / "out") == [(0, 20), (20, 20), (100, 20), (0, 20), (20, 20)]


def test_fail_refuses(tmp_path: Path) -> None:
    assert build(tmp_path, in_line([0, 20, 40]), queue_order="fail").exit == 0
    summary = build(tmp_path, in_line([0, 20, 50]), queue_order="fail")
    assert (summary.exit, decided(summary)) == (5, [("gap", 40, 10)])


@pytest.mark.parametrize("order", ["logical", "broker"])
def test_units_without_a_message(order: str, tmp_path: Path) -> None:
    """A broker that starts again forgets what follows such a unit."""
    summary = build(tmp_path, [batch(0, 5), batch(5, 0), batch(5, 2), batch(7, -1), batch(-1, 3)], queue_order=order)
    assert spans(tmp_path / "out") == ([(0, 5), (5, 0), (5, 2)] if order == "broker" else [(0, 5), (5, 2)])
    assert [warning.split()[0] for warning in summary.warnings] == ["2", "1"]
    assert decided(summary) == []


def test_a_queue_of_nothing_but_empty_units(tmp_path: Path) -> None:
    assert build(tmp_path, [batch(0, 0), batch(3, 0)]).exit == 0
    assert batch_files(tmp_path / "out") == {}


def test_plain_messages_in_a_batch_topic(tmp_path: Path) -> None:
    """They are batches of one at their QUEUEOFFSET; so is a record with only one of the two properties."""
    plain = [Message(topic="BatchA", queue_offset=3 + k, properties=more) for k, more in enumerate(({}, {"INNER_NUM": "9"}))]
    build(tmp_path, [batch(0, 3), *plain, batch(5, 4)])
    assert spans(tmp_path / "out") == [(0, 3), (3, 1), (4, 1), (5, 4)]


def test_no_light_queues_of_a_batch_topic(tmp_path: Path) -> None:
    """BatchConsumeQueue dispatches to none; and units of a plain queue in a batch topic would keep a broker from starting."""
    to_batch = {"INNER_MULTI_DISPATCH": "BatchB,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "0,0"}
    records = [
        batch(0, 3, INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="0"),
        Message(topic="Plain", properties=to_batch),
    ]
    summary = build(tmp_path, records, lmq=True)
    assert sorted(path.name for path in (tmp_path / "out" / "consumequeue").iterdir()) == ["%LMQ%b", "Plain"]
    assert sorted(path.name for path in (tmp_path / "out" / "batchconsumequeue").iterdir()) == ["BatchA"]
    assert any("batch topics" in warning for warning in summary.warnings)


def test_units_of_consumequeue_ext_beside_batch_topics(tmp_path: Path) -> None:
    """Records of a batch topic have none, nor light queues: those around them have what they have in a build without these."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "{0},{0}"}

    def named(number: int) -> dict[str, Any]:
        return {name: value.format(number) for name, value in light.items()}

    plain = [Message(topic="Plain", queue_offset=k, properties={"TAGS": f"t{k}", **named(k)}) for k in range(3)]
    records = [plain[0], batch(0, 3, **named(9)), plain[1], batch(3, 2), plain[2]]
    build(tmp_path, records, lmq=True, cq_ext="plain")
    asked = {**MADE, "lmq": True, "cq_ext": "plain", "exclude_topics": ("BatchA",)}
    assert local_build(tmp_path / "store", tmp_path / "without", **asked).exit == 0
    made = extended(tmp_path / "out")
    assert made == extended(tmp_path / "without")
    assert sorted(name.split("/")[1] for name in made) == ["%LMQ%a", "%LMQ%b", "Plain", "Plain"]
    # Of light queues the tagsCode is that of the tag, of others an address.
    units = [made[f"consumequeue/{topic}/0/{0:020d}"][12:20] for topic in ("Plain", "%LMQ%a")]
    assert [int.from_bytes(unit, "big", signed=True) < 0 for unit in units] == [True, False]


@pytest.mark.parametrize("more", [0, 1])
def test_verify_fills_as_many_offsets_as_a_build_may(more: int, tmp_path: Path) -> None:
    """With one more a build refuses the queue, and what a broker's dispatcher makes of it is what stands there."""
    behind = 2 + 5 + more
    records = [batch(0, 2), *(batch(behind + 3 * number, 3) for number in range(4))]
    build(tmp_path, records, max_fill=5 + more)
    found = local_verify(tmp_path / "out", commitlogs=(str(tmp_path / "store" / "commitlog"),), max_fill=5, **MADE)
    assert (found.exit, found.queues_differing) == ((4, 1) if more else (0, 0))


def test_every_order_of_a_random_log_however_it_is_cut(seed: int, tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    settings: dict[str, Any] = {"on_damage": "salvage", "max_fill": 10**7, "overwrite": True, **MADE}
    random_batch_log(store / "commitlog", seed)
    for order in ("logical", "broker"):
        manifests = set()
        ways = ((0, InlineEngine(1, 1)), (800, InlineEngine(5, 3)), (5000, InlineEngine(3, 2)))
        for size, engine in random.Random(seed).sample(ways, cases(3, 2)):
            summary = local_build(store, out, engine, range_size=size, queue_order=order, **settings)
            assert summary.exit in (0, 3)
            manifests.add((out / "reindex.json").read_bytes())
        assert len(manifests) == 1
    local_build(store, out, **settings)
    for topic in BATCH_TOPICS:
        for queue in range(3):
            units = batch_queue(out, topic, queue)
            ends = [unit[4] + unit[5] for unit in units]
            assert [unit[4] for unit in units[1:]] == ends[:-1], "no offset is missing or there twice"


@pytest.mark.parametrize("part", ["consumequeue", "batchconsumequeue"])
def test_a_note_on_lost_segments_names_the_queues(part: str, golden_store: Stores, tmp_path: Path) -> None:
    """The log's last segment is lost, and queues of one kind alone tell of it."""
    store, golden = tmp_path / "store", golden_store("batch-5.3")
    for name in ("commitlog", "config"):
        shutil.copytree(golden.path / name, store / name)
    shutil.copytree(golden.path / "rebuilt" / part, store / part)
    max((store / "commitlog").iterdir()).unlink()
    notes = look_at(parse_settings([str(store), "--out", str(tmp_path / "out")])).notes
    assert [note.partition(": has units up to ")[0] for note in notes if "look first for segments" in note] == [
        str(store / part)
    ]
