"""``export --format store``: the log that a broker would have written of these messages alone, and what it derives from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.errors import InputError, RefusedError, UsageError
from tests.tools.encode import COMMIT, PREPARED, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter, overwrite

pytestmark = pytest.mark.usefixtures("inline_local")

SEGMENT = 1 << 12
SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}


def write(store: Path, messages: list[Message]) -> None:
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for message in messages:
            writer.append(message)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def messages() -> list[Message]:
    """Two topics, with the checksum of 5.x and without, IPv6 hosts, a half message and a committed one."""
    made = []
    for number in range(120):
        topic = ("Orders", "Other", "Bills")[number % 3]
        properties = {"KEYS": f"k{number} all", "TAGS": "paid", "UNIQ_KEY": f"{number:032X}"}
        made.append(Message(
            topic=topic, queue_id=number % 4, body=bytes([number]) * (number % 70), properties=properties,
            store_timestamp=1_700_000_000_000 + 1000 * number, crc_property=number % 2 == 0, flag=number,
            born_host=("2001:db8::1", 80) if number % 5 == 0 else ("10.0.0.1", 80), sysflag=COMMIT if number % 7 == 0 else 0,
        ))  # fmt: skip
    made.append(Message(topic="Orders", sysflag=PREPARED, queue_offset=0))
    made.append(Message(topic="Orders", queue_id=1, body=b"behind it"))
    return made


def test_as_if_nothing_else_had_been_sent(tmp_path: Path) -> None:
    write(tmp_path / "store", messages())
    local_build(tmp_path / "store", tmp_path / "derived", **SIZES)
    for part in ("consumequeue", "index", "checkpoint"):
        (tmp_path / "derived" / part).rename(tmp_path / "store" / part)
    wanted = [message for message in messages() if message.topic == "Orders"]
    write(tmp_path / "wanted", wanted)
    local_build(tmp_path / "wanted", tmp_path / "of_wanted", write_topics=True, **SIZES)

    result = rr.export(tmp_path / "store", topic="Orders", format="store", to=tmp_path / "new")
    assert (result.messages, result.exit_status) == (len(wanted), 0)
    new = contents(tmp_path / "new")
    table = pq.read_table(tmp_path / "new" / "offsets.parquet").to_pydict()
    del new["offsets.parquet"]
    due = {f"commitlog/{name}": data for name, data in contents(tmp_path / "wanted" / "commitlog").items()}
    due |= {name: data for name, data in contents(tmp_path / "of_wanted").items() if name != "reindex.json"}
    assert len(due) > 8
    assert new == due, "sizes are those that the store's files show"

    old = {row["commitLogOffset"]: row for row in rr.messages(tmp_path / "store").read_all().to_pylist()}
    for row in rr.messages(tmp_path / "new").read_all().to_pylist():
        at = table["commitLogOffset"].index(row["commitLogOffset"])
        origin = old[table["oldCommitLogOffset"][at]]
        assert (table["topic"][at], table["queueId"][at]) == (row["topic"], row["queueId"])
        assert table["consumeQueueOffset"][at] == row["consumeQueueOffset"]
        assert table["oldConsumeQueueOffset"][at] == origin["consumeQueueOffset"]
        assert (row["body"], row["keys"], row["storeTimestamp"]) == (origin["body"], origin["keys"], origin["storeTimestamp"])
    assert rr.verify(tmp_path / "new", engine="local").exit_status == 0
    assert rr.preflight(tmp_path / "new").exit_status == 0


@pytest.mark.parametrize("through", ["store", "jsonl"])
def test_batches_say_their_new_offset(through: Any, tmp_path: Path) -> None:
    """A batch takes an offset for each of its messages, and has its first one among its properties, too."""
    write(tmp_path / "store", [
        Message(topic="Batch" if number % 2 else "Other", sysflag=0x80 if number % 2 else 0, queue_offset=100 + 5 * number,
                crc_property=number % 4 == 1, properties={"INNER_NUM": "5", "INNER_BASE": f"{100 + 5 * number}"})
        for number in range(20)
    ])  # fmt: skip
    (tmp_path / "store" / "config").mkdir()
    entry = {"attributes": {"queue.type": "BatchCQ", "message.type": "NORMAL"}, "readQueueNums": 3, "topicName": "Batch"}
    (tmp_path / "store" / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"Batch": entry, "Gone": {}}}))
    rr.export(tmp_path / "store", topic="Batch", format=through, to=tmp_path / "new")
    if through == "jsonl":
        (tmp_path / "new").rename(tmp_path / "rows.jsonl")
        rr.import_messages(tmp_path / "rows.jsonl", to=tmp_path / "new", segment_size=SEGMENT)
    rows = rr.messages(tmp_path / "new").read_all().to_pylist()
    assert [row["consumeQueueOffset"] for row in rows] == [5 * number for number in range(10)]
    assert [row["msgBaseOffset"] for row in rows] == [5 * number for number in range(10)]
    assert len(list((tmp_path / "new" / "batchconsumequeue" / "Batch" / "0").iterdir())) == 1
    assert rr.verify(tmp_path / "new", engine="local").exit_status == 0
    ((name, config),) = json.loads((tmp_path / "new" / "config" / "topics.json").read_text())["topicConfigTable"].items()
    assert name == "Batch"
    assert config["attributes"]["queue.type"] == "BatchCQ"
    assert (config["readQueueNums"], "message.type" in config["attributes"]) == (
        (3, True) if through == "store" else (1, False)
    )


def numbered(**more: Any) -> list[Message]:
    properties = {"INNER_NUM": "3", "INNER_BASE": "000"}
    return [Message(topic="Batch", queue_offset=3 * number, properties=properties, **more) for number in range(5)]


def test_batches_of_a_store_without_its_topics(tmp_path: Path) -> None:
    write(tmp_path / "store", numbered(sysflag=0x80))
    rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    assert [row["consumeQueueOffset"] for row in rr.messages(tmp_path / "new").read_all().to_pylist()] == [0, 3, 6, 9, 12]
    assert (tmp_path / "new" / "batchconsumequeue" / "Batch" / "0").is_dir()
    assert rr.verify(tmp_path / "new", engine="local").exit_status == 0


def test_batches_in_a_queue_that_is_none_of_batches(tmp_path: Path) -> None:
    write(tmp_path / "store", [Message(topic="Batch"), *numbered(sysflag=0x80)])
    (tmp_path / "store" / "config").mkdir()
    table = {"Batch": {"topicName": "Batch", "readQueueNums": 1}}
    (tmp_path / "store" / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))
    told = (
        r"offset \d+ of the log: is a batch of 3 messages of topic Batch: config/topics\.json says that it has no batch queue"
    )
    with pytest.raises(InputError, match=told):
        rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_number_of_messages_without_a_batch_makes_no_gap(tmp_path: Path) -> None:
    """A broker takes one offset for it, whatever INNER_NUM says."""
    write(tmp_path / "store", numbered())
    rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    assert [row["consumeQueueOffset"] for row in rr.messages(tmp_path / "new").read_all().to_pylist()] == [0, 1, 2, 3, 4]


def test_what_a_build_refuses_is_told_without_its_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RefusedError("queues: 2 missing offsets would have to be filled: give --topics-config\n  repair the log first: x")

    write(tmp_path / "store", messages())
    monkeypatch.setattr("rocketmq_reindex.jobs.exporting.new_store.Build.run", refuse)
    with pytest.raises(InputError, match=r"as a log of their own: queues: 2 missing offsets would have to be filled$") as error:
        rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    assert error.value.exit_status == 1


def test_what_a_broker_would_act_on_stays_out(tmp_path: Path) -> None:
    write(tmp_path / "store", messages())
    half = "RMQ_SYS_TRANS_HALF_TOPIC"
    for chosen in ({"kind": "half"}, {"kind": "all"}, {"undecided": True}, {"topic": half}, {"topic": "SCHEDULE_TOPIC_XXXX"}):
        with pytest.raises(UsageError, match="takes messages of the kinds dead_letter, message and retry, not "):
            rr.export(tmp_path / "store", format="store", to=tmp_path / "new", **chosen)
    with pytest.raises(UsageError, match="a store has all bodies"):
        rr.export(tmp_path / "store", format="store", to=tmp_path / "new", body="none")
    assert rr.export(tmp_path / "store", format="store", kind="all", count=True).messages == 122, "to count writes no store"


def test_damage_is_left_out_and_told(tmp_path: Path) -> None:
    write(tmp_path / "store", messages())
    offsets = [row["commitLogOffset"] for row in rr.messages(tmp_path / "store").read_all().to_pylist()]
    overwrite(tmp_path / "store" / "commitlog", offsets[40] + 4, b"\0\0\0\0")
    result = rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    assert (result.messages, result.damaged, result.exit_status) == (121, 1, 3)
    assert rr.verify(tmp_path / "new", engine="local").exit_status == 0


def test_nothing_is_written_over(tmp_path: Path) -> None:
    write(tmp_path / "store", messages())
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("mine")
    with pytest.raises(InputError, match=r"new: is not empty: name another folder$"):
        rr.export(tmp_path / "store", format="store", to=tmp_path / "new")
    with pytest.raises(InputError, match="no message of the log"):
        rr.export(tmp_path / "store", topic="None*", format="store", to=tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "store"]
    empty = rr.export(tmp_path / "store", topic="None*", format="store", to=tmp_path / "other", allow_empty=True)
    assert (empty.messages, empty.exit_status) == (0, 0)
