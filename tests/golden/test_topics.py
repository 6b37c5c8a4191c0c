"""The draft of config/topics.json: which topics it names, with how many queues; the same bytes however the log is cut."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.topics import QUEUES_MAX, SYSTEM_TOPICS
from tests.golden.stores import NAMES, GoldenStore
from tests.tools.batch_log import MADE
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, PREPARED, ROLLBACK, Message
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.log_writer import LogWriter

Stores = Callable[[str], GoldenStore]


def draft(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "config" / "topics.json").read_text())
    return found


def queues(out: Path) -> dict[str, int]:
    return {name: entry["readQueueNums"] for name, entry in draft(out)["topicConfigTable"].items()}


def build(tmp_path: Path, records: list[Message], **settings: Any) -> BuildResult:
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 12) as writer:
        for record in records:
            writer.append(record)
    return local_build(tmp_path / "store", tmp_path / "out", write_topics=True, **(SMALL | settings))


@pytest.mark.parametrize("name", NAMES)
def test_a_stores_own_topics_come_back(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """Each entry as RocketMQ wrote it, but for the field that only 5.x has; the newest record's time for its version."""
    store, drafts = golden_store(name), set()
    for size, buckets, partitions in ((0, 1, 1), (100_000, 7, 3)):
        summary = local_build(
            store.path, tmp_path / "out", InlineEngine(buckets, partitions), range_size=size, write_topics=True, overwrite=True,
            **store.broker_settings(),
        )  # fmt: skip
        assert (summary.exit, summary.error) == (0, None)
        drafts.add((tmp_path / "out" / "config" / "topics.json").read_bytes())
    assert len(drafts) == 1
    there = json.loads((store.path / "config" / "topics.json").read_text())
    ours = draft(tmp_path / "out")
    assert [entry.pop("attributes") for entry in ours["topicConfigTable"].values()] == [{}] * len(ours["topicConfigTable"])
    own = {topic: entry for topic, entry in there["topicConfigTable"].items() if topic not in SYSTEM_TOPICS}
    assert ours["topicConfigTable"] == own
    assert ours["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": there["dataVersion"]["timestamp"]}


def test_what_is_no_topic_of_the_users(tmp_path: Path) -> None:
    """Topics of the broker's own and light queues are left out; retry and dead letter topics are not: somebody's messages
    wait there, and a broker that has none makes them only when their group comes back."""
    kept = ["A", "%RETRY%group", "%DLQ%group", "%RETRY%" + 240 * "g", "RMQ_SYS_OTHER"]
    own = [*SYSTEM_TOPICS, "rmq_sys_REVIVE_LOG_DefaultCluster", "%LMQ%a"]
    records = [Message(topic=topic, properties={"DELAY": "1"}) for topic in [*kept, *own]]
    summary = build(tmp_path, [*records, Message(topic="A", lmq=("%LMQ%b", "light"))], lmq=True)
    assert [warning for warning in summary.warnings if "delayOffset.json" not in warning] == []
    assert sorted(queues(tmp_path / "out")) == sorted(kept)
    assert (tmp_path / "out" / "consumequeue" / "light").exists()


def test_delayed_messages_are_told_of(tmp_path: Path) -> None:
    """Where deliveries stand is in no log: a broker without that file begins anew."""
    summary = build(tmp_path, [Message(topic="SCHEDULE_TOPIC_XXXX", queue_id=2)])
    assert any("delayOffset.json" in warning for warning in summary.warnings)
    shutil.rmtree(tmp_path / "out")
    shutil.rmtree(tmp_path / "store")
    assert not any("delayOffset.json" in warning for warning in build(tmp_path, [Message(topic="orders")]).warnings)


def test_names_that_a_broker_refuses(tmp_path: Path) -> None:
    """A broker's JSON parser takes @type and $ref for orders."""
    summary = build(tmp_path, [Message(topic=topic) for topic in ("A", "@type", "$ref", "a b", "T\N{SNOWMAN}")])
    assert queues(tmp_path / "out") == {"A": 1}
    assert (
        summary.warnings[-1]
        == r"config/topics.json: 4 topics left out, whose names RocketMQ's TopicValidator refuses: $ref, @type, T\u2603, a b"
    )


def test_queues_are_the_highest_id_and_one(tmp_path: Path) -> None:
    records = [Message(topic="A", queue_id=queue) for queue in (3, 1, QUEUES_MAX, 2**31 - 1)]
    records += [Message(topic="B", queue_id=QUEUES_MAX), Message(topic="C", queue_id=QUEUES_MAX - 1)]
    # Neither gets a unit.
    records += [Message(topic="A", queue_id=9, sysflag=PREPARED), Message(topic="D", sysflag=ROLLBACK)]
    for size in (0, 200):
        summary = build(tmp_path, records, range_size=size, overwrite=True)
        assert queues(tmp_path / "out") == {"A": 4, "C": QUEUES_MAX}
        assert [warning.split(":")[1] for warning in summary.warnings] == [" topic A", " topic B"]
    entry = draft(tmp_path / "out")["topicConfigTable"]["A"]
    assert (entry["writeQueueNums"], entry["perm"]) == (4, 6)


@pytest.mark.parametrize("only", [("index",), ("checkpoint",), ("consumequeue",)])
def test_whatever_else_is_built(only: tuple[str, ...], tmp_path: Path) -> None:
    build(tmp_path, [Message(topic="A", queue_id=k % 3) for k in range(9)], only=only)
    assert queues(tmp_path / "out") == {"A": 3}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([*only, "config", "reindex.json"])


def test_only_what_is_built_from(tmp_path: Path) -> None:
    """Topic filters, and the end of what is read."""
    records = [Message(topic=topic, store_timestamp=EPOCH + k) for k, topic in enumerate("ABCD")]
    build(tmp_path, records, exclude_topics=("B",), until_time=EPOCH + 2)
    assert queues(tmp_path / "out") == {"A": 1, "C": 1}
    assert draft(tmp_path / "out")["dataVersion"]["timestamp"] == EPOCH + 2


def test_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert local_build(tmp_path / "store", tmp_path / "out", write_topics=True).exit == 0
    assert draft(tmp_path / "out") == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 0},
        "topicConfigTable": {},
    }


def test_batch_topics_stay_batch_topics(golden_store: Stores, tmp_path: Path) -> None:
    local_build(golden_store("batch-5.3").path, tmp_path / "out", write_topics=True, **MADE)
    table = draft(tmp_path / "out")["topicConfigTable"]
    assert {name: entry["attributes"] for name, entry in table.items()} == {
        "BatchA": {"queue.type": "BatchCQ"},
        "BatchB": {"queue.type": "BatchCQ"},
        "Plain": {},
    }


def test_the_manifest_names_it(tmp_path: Path) -> None:
    build(tmp_path, [Message()])
    content = (tmp_path / "out" / "config" / "topics.json").read_bytes()
    entries = {entry["path"]: entry for entry in json.loads((tmp_path / "out" / "reindex.json").read_text())["files"]}
    entry = entries["config/topics.json"]
    assert (entry["size"], entry["digest"]) == (len(content), new_digest([content]).digest().hex())


def test_overwrite_takes_no_config_but_its_own(tmp_path: Path) -> None:
    """A draft is there to be edited: what somebody wrote is not thrown away."""
    config = tmp_path / "out" / "config"
    for _ in range(2):
        assert build(tmp_path, [Message()], overwrite=True).exit == 0
    (config / "consumerOffset.json").write_text("{}")
    summary = local_build(tmp_path / "store", tmp_path / "out", overwrite=True)
    assert (summary.exit, "holds config/consumerOffset.json" in str(summary.error)) == (1, True)
    (config / "consumerOffset.json").unlink()
    (config / "topics.json").write_text("{}")
    summary = local_build(tmp_path / "store", tmp_path / "out", overwrite=True)
    assert (summary.exit, "is not as a build drafted it" in str(summary.error)) == (1, True)
    assert (config / "topics.json").read_text() == "{}"
