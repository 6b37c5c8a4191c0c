"""A broker's topics.json, read and drafted; and the options that name it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.topics import batch_topics, is_own, topic_entry
from tests.tools.batch_log import BATCH_TOPICS, topics_json


def config(**topics: object) -> str:
    return json.dumps({"topicConfigTable": topics})


def test_batch_topics() -> None:
    attributes = {"queue.type": "BatchCQ", "message.type": "NORMAL"}
    told = config(
        Z={"attributes": attributes}, A={"attributes": attributes}, Simple={"attributes": {"queue.type": "SimpleCQ"}},
        None_={"attributes": None}, Old={"perm": 6}, Odd=7, Changed={"attributes": {"+queue.type": "BatchCQ"}},
    )  # fmt: skip
    assert batch_topics(told) == ("A", "Z")
    assert batch_topics(config()) == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"topicConfigTable": []}', config(A={"attributes": {"queue.type": "RocksDBCQ"}}), 3000 * "["]
)
def test_what_is_no_topics_config(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "topics.json"
    path.write_text(text)
    assert main(["build", "/store", "--out", "/out", "--topics-config", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: --topics-config {path}: ")
    assert error.endswith(": name a broker's config/topics.json\n")
    assert error.count("\n") == 1


def test_no_file_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in ("absent", "fifo", "."):
        with pytest.raises(UsageError, match="cannot be read"):
            parse_settings(["/s", "--out", "/o", "--topics-config", str(tmp_path / path)])


def test_the_options(tmp_path: Path) -> None:
    words = ["/s", "--out", "/o", "--topics-config", str(topics_json(tmp_path / "topics.json"))]
    settings = parse_settings([*words, "--write-topics", "--batch-cq-file-size", "460"])
    assert (settings.batch_topics, settings.write_topics, settings.batch_cq_file_size) == (BATCH_TOPICS, True, 460)
    told = settings.for_manifest()
    assert (told["batch_topics"], told["write_topics"], told["batch_cq_file_size"]) == (list(BATCH_TOPICS), True, 460)
    with pytest.raises(UsageError, match=r"RocketMQ 4\.9"):
        parse_settings([*words, "--broker-version", "4.9"])
    for size in ("0", "47", "-46", str(46 << 26)):
        with pytest.raises(UsageError, match="--batch-cq-file-size"):
            parse_settings([*words, "--batch-cq-file-size", size])


def test_an_entry() -> None:
    """As RocketMQ's own file has it; 4.9 passes over ``attributes``."""
    name = 'A"\N{SNOWMAN}'
    entry = json.loads("{" + topic_entry(name, 8, batch=True) + "}")
    assert entry == {
        name: {
            "attributes": {"queue.type": "BatchCQ"}, "order": False, "perm": 6, "readQueueNums": 8,
            "topicFilterType": "SINGLE_TAG", "topicName": name, "topicSysFlag": 0, "writeQueueNums": 8,
        }
    }  # fmt: skip
    assert topic_entry(name, 8, batch=True).isascii()


def test_topics_of_the_brokers_own() -> None:
    own = ("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "%LMQ%a")
    assert [name for name in (*own, "A", "%RETRY%g", "%DLQ%g", "TBW1020", "RMQ_SYS_X") if is_own(name)] == list(own)
