"""``trace`` on stores that lack something, or lie: what is not known is not said, and nothing comes out as it stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools.encode import COMMIT, EPOCH, Message
from tests.tools.log_writer import LogWriter

SEGMENT = 1 << 16
SIZES = ("--cq-file-size", "4000", "--hash-slots", "100", "--index-items", "400")
HALF, OP, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
Make = Callable[..., Path]


pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a store with these messages, and what a broker derives from them."""

    def write(*messages: Message, name: str = "store") -> Path:
        store, out = tmp_path / name, tmp_path / f"{name}-out"
        with LogWriter(store / "commitlog", SEGMENT) as writer:
            for message in messages:
                writer.append(message)
        assert main(["build", str(store), "--out", str(out), "--engine", "local", *SIZES]) == 0
        for part in ("consumequeue", "index", "checkpoint"):
            shutil.move(out / part, store / part)
        return store

    return write


def half(key: str, time: int = 0) -> Message:
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    return Message(topic=HALF, properties=properties, store_timestamp=EPOCH + time)


def whats(store: Path, key: str, delay_levels: str | None = None) -> list[tuple[str, str]]:
    (found,) = rr.trace(store, id=key, delay_levels=delay_levels)
    return [(event.what, event.certainty) for event in found.events]


def test_transactions(make: Make) -> None:
    committed = Message(topic="Orders", properties={"UNIQ_KEY": "A"}, sysflag=COMMIT, prepared_offset=0)
    store = make(half("A"), half("B"), half("C"), committed, Message(topic=OP, properties={"TAGS": "d"}, body=b"0,1,"))
    assert whats(store, "A") == [("born", "seen"), ("half", "seen"), ("committed", "seen")]
    assert whats(store, "B") == [("born", "seen"), ("half", "seen"), ("rolled back", "follows")]
    assert whats(store, "C") == [("born", "seen"), ("half", "seen"), ("undecided", "follows")]
    shutil.rmtree(store / "consumequeue" / OP / "0")
    (store / "consumequeue" / OP / "0").mkdir()
    assert whats(store, "B") == [("born", "seen"), ("half", "seen"), ("undecided", "unknown")], "nobody knows"
    found = rr.trace(store, id="B")
    assert [OP in warning for warning in found.warnings] == [True]


def test_what_waits(make: Make) -> None:
    """Only where the log's end is known, and lies before it, a message still waits."""
    properties = {"UNIQ_KEY": "A", "REAL_TOPIC": "Orders", "REAL_QID": "0", "DELAY": "18"}
    waiting = Message(topic=SCHEDULE, queue_id=17, properties=properties, store_timestamp=EPOCH)
    store = make(waiting, Message(store_timestamp=EPOCH + 1000))
    assert whats(store, "A")[2:] == [("waits", "follows")]
    assert whats(store, "A", delay_levels="1s")[2:] == [("not delivered", "unknown")]
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    end = len(bytes(data).rstrip(b"\0"))
    data[end + 8 : end + 12] = b"junk"
    segment.write_bytes(data)
    assert whats(store, "A")[2:] == [("waits", "follows")], "zeros begin there"
    data[end : end + 4] = b"junk"
    segment.write_bytes(data)
    assert whats(store, "A")[2:] == [("not delivered", "unknown")], "the log may go on behind what is damaged"


def test_an_id_of_another_store(make: Make) -> None:
    """A broker's id says an offset: at the same offset of another store lies another message."""
    first = make(Message(properties={"UNIQ_KEY": "A"}), name="first")
    second = make(Message(properties={"UNIQ_KEY": "B"}, store_host=("10.0.0.77", 10911)), name="second")
    wanted = f"0A00004D{10911:08X}{0:016X}"
    found = rr.trace([f"a={first}", f"b={second}"], id=wanted)
    assert [message.message for message in found] == ["B"]
    assert rr.trace(first, id=wanted).exit_status == 4


def test_without_a_unique_key(make: Make) -> None:
    store = make(Message(properties={"KEYS": "k"}), Message(properties={"KEYS": "k"}))
    found = rr.trace(store, topic="TopicA", key="k")
    assert [[event.what for event in message.events] for message in found] == [["born", "stored"]] * 2
    assert len({message.message for message in found}) == 2


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"offsetTable": []}', '{"offsetTable": {"TopicA@g": 5}}', '{"offsetTable": {"TopicA@g": {"x": 1}}}',
     '{"offsetTable": {"TopicA@g": {"0": null}}}', "[" * 5000],
)  # fmt: skip
def test_files_of_offsets_that_are_none(make: Make, text: str) -> None:
    """A broken one is said; then the copy counts, as it does for a broker."""
    store = make(Message(properties={"UNIQ_KEY": "A"}))
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text(text)
    assert whats(store, "A") == [("born", "seen"), ("stored", "seen")]
    assert "is no file of consumer offsets" in rr.trace(store, id="A").warnings[0]
    (store / "config" / "consumerOffset.json.bak").write_text('{"offsetTable": {"TopicA@g": {0: 1}, "TopicA@h": {0: 0}}}')
    assert whats(store, "A")[2:] == [("passed", "follows"), ("not reached", "follows")]


def test_hostile_names(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences of a log reach no terminal."""
    evil = "\x1b[31mred\u202e"
    store = make(
        Message(topic="%RETRY%g", properties={"UNIQ_KEY": evil, "RETRY_TOPIC": evil, "KEYS": evil}, reconsume_times=1),
        Message(topic="%DLQ%g", properties={"UNIQ_KEY": evil, "INNER_MULTI_DISPATCH": evil}),
    )
    assert main(["trace", "--store", f"{evil}={store}", "--id", evil]) == 0
    shown = capsys.readouterr()
    assert "dead letter" in shown.out
    assert not {"\x1b", "\u202e"} & {*shown.out, *shown.err}
    assert main(["trace", "--store", str(store), "--id", evil, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"][0]["message"] == evil


def test_a_page(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The timeline as one HTML page, which runs nothing of what a log holds, and takes the place of no other file."""
    evil = "<script>alert(1)</script>\x1b"
    store, page = make(Message(properties={"UNIQ_KEY": "A", "KEYS": evil}), half("B")), tmp_path / "page.html"
    words = ["trace", "--store", str(store), "--html", str(page)]
    assert main([*words, "--id", "A"]) == 0
    assert f"wrote    {page}" in capsys.readouterr().out
    text = page.read_text()
    assert "stored in TopicA, queue 0, offset 0" in text
    assert "<script" not in text
    assert "\x1b" not in text
    assert main([*words, "--id", "B"]) == 0
    assert "undecided" in page.read_text()
    assert main([*words, "--id", "nobody"]) == 4
    assert "No store has the message." in page.read_text()
    page.write_text("something else")
    assert main([*words, "--id", "A"]) == 1
    assert page.read_text() == "something else"


def test_wrong_questions(make: Make) -> None:
    store = make(Message(properties={"UNIQ_KEY": "A"}))
    for keywords in ({}, {"id": "A", "key": "k"}, {"key": "k"}, {"topic": "T", "queue": 1}, {"id": ""}, {"id": "A", "max": 0}):
        with pytest.raises(UsageError):
            rr.trace(store, **keywords)
    with pytest.raises(UsageError, match="two stores have one name"):
        rr.trace([f"a={store}", f"a={store}"], id="A")
    with pytest.raises(InputError, match="is not there"):
        rr.trace(store.with_name("nowhere"), id="A")
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(InputError, match="add scan=True"):
        rr.trace(store, id="A")
    assert len(rr.trace(store, id="A", scan=True)) == 1
