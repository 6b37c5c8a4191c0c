"""``trace`` on stores that lack something, or lie: what is not known is not said, and nothing comes out as it stands."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rocksdict

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.querying import scan as querying_scan
from rocketmq_reindex.jobs.tracing import finding
from rocketmq_reindex.jobs.tracing.timeline import TraceEvent, in_order
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from tests.tools.derived_store import write_store
from tests.tools.encode import COMMIT, EPOCH, Message, encode

SEGMENT = 1 << 16
HALF, OP, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
Make = Callable[..., Path]


pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a store with these messages, and what a broker derives from them."""

    def write(*messages: Message, name: str = "store") -> Path:
        return write_store(tmp_path / name, messages, SEGMENT)

    return write


def half(key: str, time: int = 0) -> Message:
    properties = {"UNIQ_KEY": key, "REAL_TOPIC": "Orders", "REAL_QID": "0"}
    return Message(topic=HALF, properties=properties, store_timestamp=EPOCH + time)


def whats(store: Path, key: str, delay_levels: str | None = None) -> list[tuple[str, str]]:
    (found,) = rr.trace(store, id=key, delay_levels=delay_levels)
    return [(event.what, event.certainty) for event in found.events]


def test_a_replayed_message_says_where_it_comes_from(make: Make) -> None:
    origin = {"topic": "Old\x1b[31m", "queue_id": "3", "queue_offset": "17", "phy_offset": "4096", "broker": "10.0.0.9:10911"}
    named = {f"reindex_origin_{name}": value for name, value in origin.items()}
    store = make(
        Message(topic="Orders", properties={"UNIQ_KEY": "A", **named}), Message("Orders", properties={"UNIQ_KEY": "B"})
    )
    (found,) = rr.trace(store, id="A")
    assert [event.what for event in found.events] == ["born", "replayed", "stored"]
    assert found.events[1].text.endswith("31m, queue 3, offset 17, at offset 4096 of the log of 10.0.0.9:10911")
    assert "\x1b" not in rr.trace(store, id="A").text
    assert whats(store, "B") == [("born", "seen"), ("stored", "seen")]


def test_a_message_that_is_of_another_topic(make: Make) -> None:
    """It is not traced for a topic that it is not of; one that waits for the topic, or comes again, is."""
    store = make(Message(topic="Orders", properties={"UNIQ_KEY": "A"}), half("B"))
    offset_id = rr.query(store, id="A")[0].to_dict()["msgId"]
    questions: tuple[dict[str, Any], ...] = ({"physical": 0}, {"id": "A"}, {"unique_key": "A"}, {"id": offset_id})
    for asked in questions:
        assert len(rr.trace(store, topic="Orders", **asked)) == 1
        found = rr.trace(store, topic="Paid", **asked)
        assert [*found] == []
        assert "offset 0: the message there is of topic Orders, not of Paid" in found.warnings
        assert found.exit_status == 4
    assert len(rr.trace(store, id="B", topic="Orders")) == 1


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
    assert [warning for warning in found.warnings if OP in warning]


def test_what_waits(make: Make) -> None:
    """Only where the log's end is known, and lies before it, a message still waits."""
    properties = {"UNIQ_KEY": "A", "REAL_TOPIC": "Orders", "REAL_QID": "0", "DELAY": "18"}
    waiting = Message(topic=SCHEDULE, queue_id=17, properties=properties, store_timestamp=EPOCH)
    store = make(waiting, Message(store_timestamp=EPOCH + 1000))
    assert whats(store, "A")[2:] == [("waits", "follows")]
    assert whats(store, "A", delay_levels="1s")[2:] == [("waits", "follows")], "the unit has the broker's own time"
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    end = place(waiting) + place(Message())
    data[end + 8 : end + 12] = b"junk"
    segment.write_bytes(data)
    assert whats(store, "A")[2:] == [("waits", "follows")], "zeros begin there"
    data[end : end + 4] = b"junk"
    segment.write_bytes(data)
    assert whats(store, "A")[2:] == [("not delivered", "unknown")], "the log may go on behind what is damaged"


def test_a_key_of_what_waits_or_comes_again(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic's message is found by its key also where it lies in another one."""
    key = {"KEYS": "k"}
    store = make(
        Message(topic=HALF, properties={"UNIQ_KEY": "A", "REAL_TOPIC": "Orders", "REAL_QID": "0", **key}),
        Message(topic="%DLQ%g", properties={"UNIQ_KEY": "B", "RETRY_TOPIC": "Orders", **key}),
        Message(topic="%RETRY%g_Orders", properties={"UNIQ_KEY": "C", **key}),
        Message(topic="Other", properties={"UNIQ_KEY": "D", **key}),
    )
    assert [message.message for message in rr.trace(store, topic="Orders", key="k")] == ["A", "B", "C"]
    assert [message.message for message in rr.trace(store, topic="Orders", key="k", scan=True)] == ["A", "B", "C"]
    # Once for the question and the topics, and once for all that was found.
    passes = list[int]()
    read_on = querying_scan._blocks

    def counted(*words: Any) -> Any:
        passes.append(1)
        return read_on(*words)

    monkeypatch.setattr(querying_scan, "_blocks", counted)
    assert rr.trace(store, topic="Orders", key="k", scan=True).messages
    assert len(passes) == 2
    assert rr.trace(store, unique_key="B", scan=True).messages
    assert len(passes) == 3
    newest = rr.trace(store, topic="Orders", key="k", max=1)
    assert [message.message for message in newest] == ["C"]
    assert [warning for warning in newest.warnings if "2 older messages with that key" in warning]


def test_what_no_index_covers(make: Make) -> None:
    """A few records behind the index are read; a record that the index lacks is traced as the one that was named."""
    store = make(half("A"), Message(store_timestamp=EPOCH + 1))
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    end = place(half("A")) + place(Message())
    later = Message(topic="Orders", properties={"UNIQ_KEY": "A"}, sysflag=COMMIT, prepared_offset=0)
    record = encode(replace(later, queue_offset=0), end)
    data[end : end + len(record)] = record
    segment.write_bytes(data)
    assert whats(store, "A") == [("born", "seen"), ("half", "seen"), ("committed", "seen")]
    (named,) = rr.trace(store, physical=end)
    assert "committed" in [event.what for event in named.events]
    for path in (store / "index").iterdir():
        path.unlink()
    assert whats(store, "A") == [("born", "seen"), ("half", "seen"), ("committed", "seen")], "so few are read"


def test_more_than_is_read_without_an_index(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where records were not looked at nobody says that a message is not there, or what follows from that."""
    op = Message(topic=OP, properties={"TAGS": "d"}, body=b"7,")
    store = make(half("A"), op, *(Message(properties={"UNIQ_KEY": f"{number}"}) for number in range(5)))
    assert whats(store, "A")[2:] == [("undecided", "follows")]
    assert rr.trace(store, id="nobody").exit_status == 4
    for path in (store / "index").iterdir():
        path.unlink()
    monkeypatch.setattr(finding, "RECORDS_MAX", 3)
    with pytest.raises(InputError, match="the index does not cover the whole log"):
        rr.trace(store, id="nobody")
    (named,) = rr.trace(store, physical=0)
    assert [(event.what, event.certainty) for event in named.events][2:] == [("undecided", "unknown")]
    assert rr.trace(store, id="nobody", scan=True).exit_status == 4


def test_half_messages_that_were_put_back(make: Make) -> None:
    """One that a broker put back stands for the first one; an op message without its tag decides nothing."""
    again = half("A")
    again.properties["TRAN_PREPARED_QUEUE_OFFSET"] = "0"  # type: ignore[index]
    op = {"TAGS": "d"}
    store = make(half("A"), again, half("B"), Message(topic=OP, body=b"2,"), Message(topic=OP, properties=op, body=b"0,"))
    assert whats(store, "A")[2:] == [("checked", "seen"), ("rolled back", "follows")]
    assert whats(store, "B")[2:] == [("undecided", "follows")]


def test_committed_into_a_delay(make: Make) -> None:
    timer = {"UNIQ_KEY": "A", "REAL_TOPIC": "Orders", "REAL_QID": "0", "TIMER_OUT_MS": str(EPOCH + 5)}
    delivered = {"UNIQ_KEY": "A", "TIMER_OUT_MS": str(EPOCH + 5)}
    store = make(
        half("A"),
        Message(topic="rmq_sys_wheel_timer", properties=timer, sysflag=COMMIT, prepared_offset=0, store_timestamp=EPOCH),
        half("B"),
    )
    assert "rolled back" not in [what for what, _ in whats(store, "A")]
    other = make(
        half("Z"),
        half("A"),
        Message(topic="rmq_sys_wheel_timer", properties=timer, sysflag=COMMIT, prepared_offset=place(half("Z"))),
        Message(topic="Orders", properties=delivered, sysflag=COMMIT),
        name="other",
    )
    assert whats(other, "A") == [("born", "seen"), ("half", "seen"), ("committed", "seen"), ("delivered", "seen")]


def place(first: Message) -> int:
    return len(encode(first, 0))


def check_point(offsets: list[int], time: int, **more: object) -> Message:
    said = {"so": offsets[0], "t": "T", "c": "g", "q": 0, "pt": time, "it": 10, "n": len(offsets), "bn": "b", **more}
    said["d"] = [offset - offsets[0] for offset in offsets]
    return pop_message(said, "ck", time)


def pop_message(said: dict[str, object], tag: str, time: int) -> Message:
    key = f"{said['t']}@{said['so']}@{said['pt']}@{tag}@{said.get('rp', '')}{said.get('ao', '')}"
    body = json.dumps(said).encode()
    return Message(topic="rmq_sys_REVIVE_LOG_c", properties={"TAGS": tag, "UNIQ_KEY": key}, body=body, store_timestamp=time)


def ack(offset: int, time: int, stored: int) -> Message:
    return pop_message({"ao": offset, "so": offset, "t": "T", "c": "g", "q": 0, "pt": time, "bn": "b"}, "ack", stored)


def test_pop(make: Make) -> None:
    """Taken, put off, taken anew after the offsets were reset, acknowledged in time or too late, and come again."""
    messages = [Message(topic="T", properties={"UNIQ_KEY": f"{number}"}) for number in range(6)]
    again = Message(topic="%RETRY%g_T", properties={"UNIQ_KEY": "4"}, reconsume_times=1)
    others = Message(topic="%RETRY%gg_T", properties={"UNIQ_KEY": "5"}, reconsume_times=1)
    store = make(
        *messages, check_point([0, 1, 2, 3, 4, 5], EPOCH), ack(0, EPOCH, EPOCH + 5),
        check_point([1], EPOCH + 2), ack(1, EPOCH, EPOCH + 3), ack(1, EPOCH + 2, EPOCH + 6),
        check_point([2], EPOCH, rp="1"), ack(2, EPOCH, EPOCH + 20),
        ack(3, EPOCH, EPOCH + 4), check_point([3], EPOCH + 100), again, others,
    )  # fmt: skip

    def steps(number: int) -> list[str]:
        (found,) = rr.trace(store, id=str(number))
        return [event.what for event in found.events if event.group == "g"]

    assert steps(0) == ["popped", "acknowledged"]
    assert steps(1) == ["popped", "put off", "acknowledged"]
    assert steps(2) == ["popped", "acknowledged"]
    (late,) = rr.trace(store, id="2")
    assert [event for event in late.events if "when its time was over" in event.text]
    assert steps(3) == ["popped", "acknowledged", "popped", "open"]
    assert steps(4) == ["retried", "popped"] or steps(4) == ["popped", "retried"]
    assert steps(5) == ["popped", "open"], "another group got it again"


def test_recalls(make: Make) -> None:
    """A recall has the unique key of what it takes back; one that names another topic takes nothing back."""
    timer = {"UNIQ_KEY": "A", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(EPOCH + 5)}

    def store_with(mark: str, name: str) -> Path:
        recall = Message(topic="rmq_sys_wheel_timer", properties=timer | {"TIMER_DEL_UNIQKEY": mark}, born_timestamp=EPOCH + 1)
        return make(Message(topic="rmq_sys_wheel_timer", properties=timer), recall, name=name)

    for name, mark in (("newer", "A"), ("older", "T+A")):
        assert [what for what, _ in whats(store_with(mark, name), "A")] == ["born", "timer", "recalled", "not delivered"]
    assert "recalled" not in [what for what, _ in whats(store_with("Other+A", "other"), "A")]
    alone = Message(topic="rmq_sys_wheel_timer", properties=timer | {"UNIQ_KEY": "M", "TIMER_DEL_UNIQKEY": "A"})
    assert whats(make(alone, name="alone"), "M") == [("born", "seen"), ("timer", "seen")]


def test_a_topic_made_anew(make: Make) -> None:
    """What stands in the queue at the message's offset is another message: groups and POP speak of that one."""
    first = Message(topic="T", properties={"UNIQ_KEY": "A"}, queue_offset=0)
    store = make(first, replace(first, properties={"UNIQ_KEY": "B"}), check_point([0], EPOCH))
    queue = store / "consumequeue" / "T" / "0" / f"{0:020d}"
    unit = bytearray(queue.read_bytes())
    unit[:8] = place(first).to_bytes(8, "big")
    queue.write_bytes(unit)
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable": {"T@g": {0: 1}}}')
    assert [what for what, _ in whats(store, "A")] == ["born", "stored", "not served"]
    assert [what for what, _ in whats(store, "B")][2:] == ["popped", "open", "passed"]


def test_topics_that_lead_elsewhere(make: Make) -> None:
    """A record may name any topic: none leads out of the store."""
    store = make(Message(properties={"UNIQ_KEY": "A"}))
    outside = store.parent / "elsewhere" / "0"
    outside.mkdir(parents=True)
    (outside / f"{0:020d}").write_bytes((7).to_bytes(8, "big") + (1).to_bytes(4, "big") + bytes(8))
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    end = place(Message(properties={"UNIQ_KEY": "A"}))
    record = encode(Message(topic="../../elsewhere", properties={"UNIQ_KEY": "B"}, queue_offset=0), end)
    data[end : end + len(record)] = record
    segment.write_bytes(data)
    for scan in (False, True):
        (found,) = rr.trace(store, physical=end, scan=scan)
        assert "not served" not in [event.what for event in found.events]


def test_batch_acknowledgements(make: Make) -> None:
    """Several of one check point have one unique key (``AckMessageProcessor`` of 5.x): each counts."""
    messages = [Message(topic="T", properties={"UNIQ_KEY": f"{number}"}) for number in range(2)]
    acks = [
        pop_message({"aol": [number], "so": 0, "t": "T", "c": "g", "q": 0, "pt": EPOCH, "bn": "b"}, "bAck", EPOCH + 1)
        for number in range(2)
    ]
    store = make(*messages, check_point([0, 1], EPOCH), *acks)
    for number in range(2):
        assert [what for what, _ in whats(store, f"{number}")][2:] == ["popped", "acknowledged"]


def test_folders_that_are_no_queues(make: Make) -> None:
    store = make(Message(properties={"UNIQ_KEY": "A"}))
    for name in ("\u00b2", "\u0663", "007", "x"):
        (store / "consumequeue" / "rmq_sys_REVIVE_LOG_c" / name).mkdir(parents=True)
    assert whats(store, "A") == [("born", "seen"), ("stored", "seen")]


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
    assert "consumerOffset.json: " in rr.trace(store, id="A").warnings[0]
    (store / "config" / "consumerOffset.json").write_text("nothing of JSON")
    (store / "config" / "consumerOffset.json.bak").write_text('{"offsetTable": {"TopicA@g": {0: 1}, "TopicA@h": {0: 0}}}')
    assert whats(store, "A")[2:] == [("passed", "follows"), ("not reached", "follows")]


def test_a_group_that_broadcasts(make: Make) -> None:
    """A broker notes how far its slowest client has asked, as ``BroadcastOffsetManager`` does: not what it consumed."""
    store = make(Message(properties={"UNIQ_KEY": "A"}), Message(queue_offset=1, properties={"UNIQ_KEY": "B"}))
    (store / "config").mkdir()
    (store / "config" / "consumerOffset.json").write_text('{"offsetTable": {"TopicA@g@broadcast": {"0": 1}}}')
    stands = "group g@broadcast is at 1 of TopicA, queue 0: "
    for key, what, text in (
        ("A", "passed", "each client of g, which broadcasts, was given the message, or began behind it"),
        ("B", "not reached", "a client of g, which broadcasts, was not given the message, or it is not noted yet"),
    ):
        (found,) = rr.trace(store, id=key)
        event = found.events[-1]
        assert (event.what, event.text, event.certainty, event.group) == (what, stands + text, "follows", "g@broadcast")


def test_a_store_without_a_message(make: Make, tmp_path: Path) -> None:
    """As that of one master of a cluster, to which nobody has sent: the others are asked all the same."""
    store, empty = make(Message(properties={"UNIQ_KEY": "A"})), tmp_path / "empty"
    (empty / "commitlog").mkdir(parents=True)
    (empty / "commitlog" / f"{0:020}").write_bytes(bytes(SEGMENT))
    found = rr.trace([f"a={empty}", f"b={store}"], unique_key="A")
    assert [(event.store, event.what) for event in found[0].events] == [("b", "born"), ("b", "stored")]
    assert "empty" not in "".join(found.warnings)
    assert rr.trace(empty, unique_key="A").exit_status == 4
    assert rr.trace(empty, unique_key="A", scan=True).exit_status == 4


@pytest.mark.parametrize("part", ["index", "consumequeue"])
def test_a_store_that_lacks_files_beside_another(make: Make, part: str) -> None:
    """It is named, and the other one tells what it knows, in whatever order they are asked."""
    store, broken = make(Message(properties={"UNIQ_KEY": "A"})), make(Message(), name="broken")
    shutil.rmtree(broken / part)
    for stores in ([f"a={broken}", f"b={store}"], [f"b={store}", f"a={broken}"]):
        found = rr.trace(stores, unique_key="A")
        assert [(event.store, event.what) for event in found[0].events] == [("b", "born"), ("b", "stored")]
        assert [warning for warning in found.warnings if f"{broken}/{part}: " in warning]
        with pytest.raises(InputError, match="nothing found"):
            rr.trace(stores, unique_key="B")
    with pytest.raises(InputError, match="to read the whole log"):
        rr.trace(broken, unique_key="A")
    (found_there,) = rr.trace([f"a={broken}", f"b={store}"], unique_key="A", scan=True)
    assert {event.store for event in found_there.events} == {"b"}


@pytest.mark.parametrize("scan", [False, True])
def test_a_log_that_lost_both_ends(make: Make, *, scan: bool) -> None:
    """It begins with zeros, as an empty one does, and ends within a record."""
    messages = [Message(queue_offset=number, properties={"UNIQ_KEY": "ABC"[number]}, body=b"x" * 6000) for number in range(3)]
    store = make(*messages)
    segment = store / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    data[: place(messages[0])] = bytes(place(messages[0]))
    end = sum(map(place, messages))
    data[end - 3000 :] = bytes(len(data) - end + 3000)
    segment.write_bytes(data)
    (found,) = rr.trace(store, unique_key="B", scan=scan)
    assert ("stored", "TopicA/0/1") in [(event.what, event.evidence) for event in found.events]


def test_a_light_queue_that_has_another_message(make: Make) -> None:
    """A broker of 5.5 adds a dead letter to the light queues of its message, and passes over the message behind it."""
    light = {"INNER_MULTI_DISPATCH": "%LMQ%one", "INNER_MULTI_QUEUE_OFFSET": "0"}
    store = make(*[Message(topic="Orders", properties={"UNIQ_KEY": name, **light}) for name in "AB"])
    queue = store / "consumequeue" / "%LMQ%one"
    shutil.rmtree(queue, ignore_errors=True)
    shutil.copytree(store / "consumequeue" / "Orders", queue)
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "lmqConsumerOffset.json").write_text(json.dumps({"offsetTable": {"%LMQ%one@g": {"0": 2}}}))
    told = {name: {event.what: event.text for event in rr.trace(store, unique_key=name)[0].events} for name in "AB"}
    assert [*told["A"]] == ["born", "stored", "passed"]
    assert [*told["B"]] == ["born", "stored", "not served"]
    assert told["B"]["not served"] == "the light queue %LMQ%one has another message at its offset 0"


def test_what_a_group_took_by_rocksdb(make: Make) -> None:
    """As ``PopConsumerRecord`` has it: a record of each message that was taken and not acknowledged."""
    store = make(Message(topic="Orders", properties={"UNIQ_KEY": "A"}), Message(topic="Orders", properties={"UNIQ_KEY": "B"}))
    record = {
        "attemptTimes": 1, "groupId": "g", "invisibleTime": 60_000, "offset": 1, "popTime": 5000, "queueId": 0, "retryFlag": 0,
        "suspend": False, "topicId": "Orders",
    }  # fmt: skip
    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(store / "kvStore"), options)
    family = database.create_column_family("popState", rocksdict.Options(raw_mode=True))
    for number, value in enumerate((record, record | {"topicId": "Other"}, record | {"offset": "x"}, {}, [])):
        family[b"key%d" % number] = json.dumps(value).encode()
    family[b"junk"] = b"{\xff"
    database.close()
    (store / "kvStore" / "rocksdict-config.json").unlink(missing_ok=True)
    found = rr.trace(store, unique_key="B")
    told = [event for event in found[0].events if event.evidence == "kvStore"]
    assert [(event.what, event.time, event.group, event.certainty) for event in told] == [
        ("popped", 5000, "g", "seen"), ("open", 65_000, "g", "unknown"),
    ]  # fmt: skip
    assert told[0].text.startswith(
        "group g took Orders, queue 0, offset 1 by POP, attempt 2, and has until 1970-01-01T00:01:05"
    )
    assert not [event for event in rr.trace(store, unique_key="A")[0].events if event.evidence == "kvStore"]
    assert [line for line in found.warnings if "kvStore: 6b657932" in line]
    (row,) = [row for row in rr.consumers(store, bounds=True) if row.evidence]
    assert (row.group, row.topic, row.at_least, row.evidence.record) == ("g", "Orders", 2, "kvStore")  # type: ignore[union-attr]
    (store / "kvStore" / "CURRENT").unlink()
    (told_once,) = [line for line in rr.trace(store, unique_key="B").warnings if "kvStore" in line]
    assert told_once.startswith(f"{store}/kvStore: RocksDB cannot read it: ")
    assert told_once.count("kvStore") == 1


ORDERED = {"popTime": 5000, "i": 60_000, "o": [7, 1, 2], "ot": {"8": 9000}, "oc": {"8": 2}, "cm": 5}
"""of messages 7 and 9 of a queue, which are acknowledged, and 8, which is taken the third time, and put off"""


def test_what_a_group_took_in_order(make: Make) -> None:
    """As ``ConsumerOrderInfoManager.OrderInfo`` has it: distances to the first offset, and a bit for each acknowledgement."""
    store = make(*(Message(queue_offset=7 + number, properties={"UNIQ_KEY": f"A{number}"}) for number in range(4)))
    (store / "config").mkdir()
    path = store / "config" / "consumerOrderInfo.json"
    path.write_text(json.dumps({"table": {"TopicA@g": {"0": ORDERED}, "TopicA@h": {"1": ORDERED}}}))

    def told(number: int) -> list[tuple[int | None, str, str, str]]:
        (found,) = rr.trace(store, id=f"A{number}")
        events = [event for event in found.events if event.evidence == "config/consumerOrderInfo.json"]
        assert len(events) == len(found.events) - 2
        assert {event.group for event in events} <= {"g"}
        return [(event.time, event.what, event.text, event.certainty) for event in events]

    at = "TopicA, queue 0, offset"
    assert told(0) == [
        (5000, "popped", f"group g took {at} 7 by POP, in order, and has until 1970-01-01T00:01:05.000Z", "seen"),
        (None, "acknowledged", f"group g acknowledged {at} 7", "seen"),
    ]
    assert told(1) == [
        (5000, "popped", f"group g took {at} 8 by POP, in order, attempt 3, and has until 1970-01-01T00:00:09.000Z", "seen"),
        (9000, "open", "group g had not acknowledged it when the broker wrote this file", "unknown"),
    ]
    assert [what for _, what, _, _ in told(2)] == ["popped", "acknowledged"]
    assert told(3) == []
    assert rr.trace(store, id="A3").warnings == [missing(store)]
    path.rename(f"{path}.bak")
    assert {event.evidence for event in rr.trace(store, id="A1")[0].events} > {"config/consumerOrderInfo.json.bak"}


def missing(store: Path) -> str:
    return f"{store}/config/consumerOffset.json: is not there: where groups stand is not known"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"table": 5}', '{"table": {"TopicA@g": 5}}', '{"table": {"TopicA": {"0": {"o": [0], "popTime": 1}}}}',
     '{"table": {"TopicA@g": {"0": {"o": [null], "popTime": 1}}}}', '{"table": {"TopicA@g": {"0": {"o": [0]}}}}', "[" * 5000],
)  # fmt: skip
def test_files_of_what_was_taken_in_order_that_are_none(make: Make, text: str) -> None:
    store = make(Message(properties={"UNIQ_KEY": "A"}))
    (store / "config").mkdir()
    (store / "config" / "consumerOrderInfo.json").write_text(text)
    assert whats(store, "A") == [("born", "seen"), ("stored", "seen")]
    (told,) = [warning for warning in rr.trace(store, id="A").warnings if warning != missing(store)]
    assert "consumerOrderInfo.json: " in told


def test_where_a_group_stands_in_a_light_queue(make: Make) -> None:
    """By the offset that the message has there (``LmqConsumerOffsetManager``)."""
    properties = {"UNIQ_KEY": "A", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,3"}
    store = make(Message(topic="Orders", properties=properties))
    (store / "config").mkdir()
    table = {"%LMQ%a@%LMQ%a": 8, "%LMQ%b@%LMQ%b": 3}
    (store / "config" / "lmqConsumerOffset.json").write_text(json.dumps({"offsetTable": {}, "lmqOffsetTable": table}))
    (found,) = rr.trace(store, id="A")
    stands = [(event.what, event.group, event.evidence) for event in found.events[2:]]
    assert stands == [
        ("passed", "%LMQ%a", "config/lmqConsumerOffset.json"), ("not reached", "%LMQ%b", "config/lmqConsumerOffset.json"),
    ]  # fmt: skip


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
    stores = [f"a={store}", f"b={make(Message(), name='other')}"]
    (told,) = rr.trace(stores, id="nonsense").warnings
    assert "id nonsense: no message has it as its unique id" in told
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(InputError, match="add scan=True"):
        rr.trace(store, id="A")
    assert len(rr.trace(store, id="A", scan=True)) == 1


def test_events_of_one_millisecond() -> None:
    """A message is made, sent and stored in that order, though the record of a client's trace lies behind the message."""
    told = [("stored", 5, 100), ("sent", 5, 300), ("born", 5, 100), ("scheduled", 4, 50), ("passed", None, None)]
    events = [TraceEvent(time, "a", what, "", "", phy_offset=offset) for what, time, offset in told]
    expected = ["born", "scheduled", "sent", "stored", "passed"]
    assert [[event.what for event in in_order(order)] for order in (events, events[::-1])] == [expected] * 2
