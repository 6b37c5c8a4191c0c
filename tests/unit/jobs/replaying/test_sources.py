"""An export as what a replay reads: the same messages are sent as of the store, and what its rows do not say is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.exporting.options import ExportResult
from rocketmq_reindex.jobs.exporting.run import Export
from rocketmq_reindex.jobs.replaying.journal import Journal
from rocketmq_reindex.jobs.replaying.options import ReplayResult, replay_settings
from rocketmq_reindex.jobs.replaying.run import Sender
from rocketmq_reindex.jobs.replaying.sending import Answer
from rocketmq_reindex.jobs.replaying.sources import ExportSource, Outgoing, Source, StoreSource, source_of
from rocketmq_reindex.storage_format.errors import InputError, NoListener
from tests.tools.encode import COMMIT, EPOCH, PREPARED, Message
from tests.tools.log_writer import LogWriter

FORMS: dict[str, Any] = {"a.jsonl": "jsonl", "a.csv": "csv", "a": "parquet", "table": "delta", "ice": "iceberg"}
LATE = EPOCH + 10**12


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Returns a store with messages of three topics and groups, half messages, and delayed ones, of which one was delivered."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 15) as log:
        for number in range(90):
            properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} all", "TAGS": f"t{number % 2}", "a": "=1"}
            properties |= {"__SHARDINGKEY": f"g{number % 3}"} if number % 4 == 0 else {}
            log.append(Message(
                ("A", "B", "%DLQ%g")[number % 3], number % 2, b"\xff\0" if number % 7 == 0 else b"body %d" % number, properties,
                sysflag=COMMIT if number % 5 == 0 else 0, store_timestamp=EPOCH + number * 3_600_000,
            ))  # fmt: skip
        log.append(Message("RMQ_SYS_TRANS_HALF_TOPIC", 0, b"half", {"REAL_TOPIC": "A", "REAL_QID": "0"}, sysflag=PREPARED))
        for key in ("waits", "came"):
            delayed = {"REAL_TOPIC": "A", "REAL_QID": "1", "DELAY": "3", "UNIQ_KEY": key}
            log.append(Message("SCHEDULE_TOPIC_XXXX", 2, b"later", delayed, store_timestamp=LATE))
        log.append(Message("A", 1, b"later", {"UNIQ_KEY": "came"}, store_timestamp=LATE))
    return tmp_path / "store"


class _Taking:
    """A proxy that takes all."""

    def __init__(self) -> None:
        self.sent = list[Outgoing]()

    def types_of(self, _topic: str) -> frozenset[int]:
        return frozenset({1, 2, 3})

    def send(self, message: Outgoing, _kind: int, done: Callable[[Answer], None]) -> None:
        self.sent.append(message)
        done(Answer("sent", "x"))


def replayed(place: Path, journal: Path, **given: Any) -> tuple[list[Outgoing], ReplayResult]:
    """What is sent of a store or an export, and the result."""
    settings = replay_settings({"store": str(place), "to": "h:1", "journal": str(journal), **given})
    export = Export(settings.source, ExportResult(), NoListener())
    source: Source = source_of(export)
    proxy: Any = _Taking()
    opened, result = Journal(str(journal), {"log": source.bound()}), ReplayResult()
    sender = Sender(settings, result, opened, proxy)
    try:
        export.take(source.chosen(), sender, "replay", source.extent)
        sender.finish()
    finally:
        sender.close()
        opened.close()
    return [message._replace(id="") for message in proxy.sent], result


@pytest.mark.parametrize("name", FORMS)
def test_the_same_is_sent_as_of_the_store(name: str, store: Path, tmp_path: Path) -> None:
    """Of all kinds what a replay of the store takes, in its order; delayed messages that wait are among it."""
    rr.export(store, kind="all", to=tmp_path / name, format=FORMS[name])
    choices: list[dict[str, Any]] = [
        {}, {"topics": ["A"]}, {"topics": ["A"], "queue": 1, "begin_offset": 3, "end_offset": 9}, {"dlq": "g"},
        {"tags": ["t1"], "sql": "TAGS = 't1' AND a IS NOT NULL"}, {"keys": ["k3", "U7", "k"]}, {"text": "body 1"},
        {"since": EPOCH + 5 * 3_600_000, "until": EPOCH + 9 * 3_600_000}, {"queue_groups": True, "topic_map": ["A=New"]},
    ]  # fmt: skip
    for number, chosen in enumerate(choices):
        of_store, counted = replayed(store, tmp_path / f"s{number}", **chosen)
        of_export, found = replayed(tmp_path / name, tmp_path / f"e{number}", **chosen)
        assert of_export == of_store, chosen
        assert len(of_store) > 1
        assert found.topics == counted.topics
    waiting = [message for message in replayed(tmp_path / name, tmp_path / "j")[0] if message.deliver_time is not None]
    assert [message.properties["reindex_origin_message_id"] for message in waiting] == ["waits"]
    again, result = replayed(tmp_path / name, tmp_path / "j")
    assert (again, result.sent_before) == ([], 62), "a second run sends nothing"


def test_a_dry_run_counts_what_the_rows_say(store: Path, tmp_path: Path) -> None:
    rr.export(store, kind="all", to=tmp_path / "a", format="parquet")
    wanted = rr.replay(store, dry_run=True)
    found = rr.replay(tmp_path / "a", dry_run=True)
    assert (found.sent, found.topics, found.left_out, found.messages) == (
        wanted.sent, wanted.topics, wanted.left_out, wanted.messages,
    )  # fmt: skip
    assert found.left_out["half"] == 1


def test_a_topic_of_the_map_that_no_message_has(store: Path, tmp_path: Path) -> None:
    rr.export(store, kind="all", to=tmp_path / "a.jsonl")
    for place in (store, tmp_path / "a.jsonl"):
        assert rr.replay(place, dry_run=True, topic_map="A=New").warnings == []
        told = rr.replay(place, dry_run=True, topic_map=["a=New", "zz\x1bz=Other"]).warnings
        assert told[0].startswith("--topic-map a=New: no chosen message is of topic a (near it: A")
        assert told[1].startswith("--topic-map zz\\x1bz=Other: no chosen message is of topic zz\\x1bz")
        assert len(told) == 2
        (told_b,) = rr.replay(place, dry_run=True, topic="B", topic_map="A=New").warnings
        assert "of topic A" in told_b


def test_delayed_messages_without_what_was_delivered(store: Path, tmp_path: Path) -> None:
    rr.export(store, kind="scheduled", to=tmp_path / "a.jsonl")
    with pytest.raises(InputError, match="has delayed messages, and none that was delivered: export with kind all"):
        rr.replay(tmp_path / "a.jsonl", dry_run=True)


def test_what_the_rows_do_not_say(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]

    def refused(changed: list[dict[str, Any]], told: str) -> None:
        (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, changed)))
        with pytest.raises(InputError, match=told):
            rr.replay(tmp_path / "b.jsonl", dry_run=True)

    def without(name: str) -> dict[str, Any]:
        return {other: value for other, value in lines[2].items() if other != name}

    for name in ("kind", "realTopic", "deliverTimestamp", "tags"):
        refused([*lines[:2], without(name)], f"b.jsonl line 3: {name}: there is no such column: replay needs all columns")
    refused([{**lines[0], "kind": None}], "line 1: kind: is missing")
    refused([lines[0], lines[2], lines[1]], "line 3: commitLogOffset: is not above that of the row before")
    refused([lines[0], lines[0]], "line 2: commitLogOffset: is not above")
    with pytest.raises(InputError, match="name files of consumer offsets by"):
        rr.replay(tmp_path / "a.jsonl", dry_run=True, unconsumed_by="g")


def test_a_journal_is_of_one_export(store: Path, tmp_path: Path) -> None:
    """A body that was changed makes another one, and so does a file more."""
    rr.export(store, topic="A", to=tmp_path / "a.jsonl")
    text = (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    given = {"store": str(tmp_path / "a.jsonl"), "dry_run": True}
    export = Export(replay_settings(given).source, ExportResult(), NoListener())
    before = ExportSource(export).bound()
    assert ExportSource(export).bound() == before
    (tmp_path / "a.jsonl").write_text(text.replace("body 3", "body 4"), encoding="utf-8")
    assert ExportSource(export).bound() != before


def test_what_is_a_store_and_what_an_export(store: Path, tmp_path: Path) -> None:
    rr.export(store, to=tmp_path / "a", format="parquet")

    def kind(place: Path) -> type:
        return type(
            source_of(Export(replay_settings({"store": str(place), "dry_run": True}).source, ExportResult(), NoListener()))
        )

    assert (kind(store), kind(tmp_path / "a")) == (StoreSource, ExportSource)
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(InputError, match=r"b\.txt"):
        rr.replay(tmp_path / "b.txt", dry_run=True)
    with pytest.raises(InputError, match=r"b\.jsonl: there is no such file or folder"):
        rr.replay(tmp_path / "b.jsonl", dry_run=True)
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="commitlog"):
        rr.replay(tmp_path / "none", dry_run=True)
    with pytest.raises(InputError, match="lies inside"):
        rr.replay(tmp_path / "a", to="127.0.0.1:1", journal=tmp_path / "a" / "j")
