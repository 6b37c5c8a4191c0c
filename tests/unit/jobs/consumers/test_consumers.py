"""``consumers``: where groups stand, by files that may be broken or differ; a new file; and what the log alone shows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.consumers import bounds as consumer_bounds
from rocketmq_reindex.jobs.store import consumer_offsets
from rocketmq_reindex.jobs.store.queue import FileUnits
from tests.golden.stores import GoldenStore
from tests.tools.derived_store import write_store
from tests.tools.encode import EPOCH, Message, encode

SEGMENT = 1 << 16
SCHEDULE, REVIVE, TRACE = "SCHEDULE_TOPIC_XXXX", "rmq_sys_REVIVE_LOG_cluster", "RMQ_SYS_TRACE_TOPIC"
Make = Callable[..., Path]

pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a store with these messages, what a broker derives from them, and a file of consumer offsets."""

    def write(*messages: Message, offsets: Mapping[str, Any] | None = None, segment: int = SEGMENT) -> Path:
        store = write_store(tmp_path / "store", messages, segment)
        (store / "config").mkdir()
        if offsets is not None:
            write_offsets(store / "config" / "consumerOffset.json", offsets)
        return store

    return write


def write_offsets(path: Path, offsets: Mapping[str, Any], **more: Any) -> Path:
    """As fastjson writes it: queue ids have no quotes."""
    tables = ",".join(
        f"{json.dumps(name)}:{{{','.join(f'{queue}:{offset}' for queue, offset in table.items())}}}"
        for name, table in offsets.items()
    )
    others = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in more.items())
    path.write_text(f'{{"offsetTable":{{{tables}}}{others}}}')
    return path


def orders(count: int, queue_id: int = 0, topic: str = "Orders") -> list[Message]:
    return [
        Message(topic=topic, queue_id=queue_id, properties={"UNIQ_KEY": f"K{queue_id}{n}"}, store_timestamp=EPOCH + 1000 * n)
        for n in range(count)
    ]


def rows(found: rr.ConsumersResult) -> list[tuple[Any, ...]]:
    return [(row.group, row.topic, row.queue_id, row.state, row.offset, row.left) for row in found]


def test_where_each_group_stands(make: Make) -> None:
    offsets = {"Orders@ahead": {0: 9}, "Orders@billing": {0: 2, 1: 3, 7: 0}, "Gone@billing": {0: 5}, "Orders@new": {}}
    store = make(*orders(5), *orders(3, 1), *orders(2, 2), offsets=offsets)
    found = rr.consumers(store)
    assert rows(found) == [
        ("ahead", "Orders", 0, "behind the end", 9, 0),
        ("ahead", "Orders", 1, "no offset", None, None),
        ("ahead", "Orders", 2, "no offset", None, None),
        ("billing", "Gone", 0, "no such queue", 5, 0),
        ("billing", "Orders", 0, "in the queue", 2, 3),
        ("billing", "Orders", 1, "in the queue", 3, 0),
        ("billing", "Orders", 2, "no offset", None, None),
        ("billing", "Orders", 7, "in the queue", 0, 0),
    ]
    assert [row.next_time for row in found if row.group == "billing"] == [None, EPOCH + 2000, None, EPOCH, None]
    assert found.exit_status == 4, "two of them miss what is sent next"
    only = rr.consumers(store, group="billing", topic="Orders")
    assert (len(only), only.exit_status) == (4, 0)
    assert rr.consumers(store, group="nobody").exit_status == 4
    assert next(row.to_dict()["nextTime"] for row in only) == "2023-11-14T22:13:22.000Z"


def test_what_has_expired(make: Make) -> None:
    """A broker begins a queue where its log begins (ConsumeQueue.correctMinOffset)."""
    size = len(encode(orders(1)[0], 0))
    store = make(*orders(60), offsets={"Orders@slow": {0: 3}, "Orders@fast": {0: 50}}, segment=(size + 8) * 20)
    segments = sorted((store / "commitlog").iterdir())
    first = int(segments[1].name) // size
    segments[0].unlink()
    slow, fast = rr.consumers(store, group="slow")[0], rr.consumers(store, group="fast")[0]
    assert (slow.state, slow.offset, slow.first, slow.end) == ("expired", 3, slow.first, 60)
    assert slow.first is not None
    assert abs(slow.first - first) <= 1
    assert (slow.expired, slow.left) == (slow.first - 3, 60 - slow.first)
    assert slow.next_time == EPOCH + 1000 * slow.first
    assert (fast.state, fast.expired, fast.left) == ("in the queue", 0, 10)
    out = store.parent / "new.json"
    assert rr.consumers(store, out=out).exit_status == 0
    assert json.loads(out.read_text())["offsetTable"]["Orders@slow"] == {"0": slow.first}


def test_the_copy_of_a_broken_file(make: Make, tmp_path: Path) -> None:
    """As ConfigManager.load does; that it was read is said."""
    store = make(*orders(5))
    config = store / "config" / "consumerOffset.json"
    write_offsets(Path(f"{config}.bak"), {"Orders@billing": {0: 1}})
    assert rows(rr.consumers(store)) == [("billing", "Orders", 0, "in the queue", 1, 4)]
    for broken in (b"", b'{"offsetTable":{"Orders', b"[]", b'{"offsetTable":[]}'):
        config.write_bytes(broken)
        found = rr.consumers(store)
        assert [row.source for row in found] == [f"{config}.bak"]
        assert "is no file of consumer offsets" in found.warnings[0]
    named = rr.consumers(store, consumer_offsets=config)
    assert "is read instead" in named.warnings[0]
    Path(f"{config}.bak").write_text("{")
    with pytest.raises(rr.InputError, match="name a copy, or a replica's, by consumer_offsets=FILE"):
        rr.consumers(store)
    with pytest.raises(rr.InputError, match="is no file of consumer offsets"):
        rr.consumers(store, consumer_offsets=config)
    with pytest.raises(rr.InputError, match="is not there"):
        rr.consumers(store, consumer_offsets=tmp_path / "none.json")


def test_replicas_that_differ(make: Make, tmp_path: Path) -> None:
    store = make(*orders(5), *orders(5, 1), offsets={})
    a = write_offsets(tmp_path / "a.json", {"Orders@billing": {0: 2, 1: 4}, "Orders@audit": {0: 5}})
    b = write_offsets(tmp_path / "b.json", {"Orders@billing": {0: 3, 1: 4}})
    highest, lowest = (rr.consumers(store, consumer_offsets=[a, b], merge=merge) for merge in ("highest", "lowest"))
    assert [(row.offset, row.source) for row in highest if row.group == "billing"] == [(3, str(b)), (4, str(a))]
    assert [row.offset for row in lowest if row.group == "billing"] == [2, 4]
    assert [row.offset for row in lowest if row.group == "audit"] == [5, None], "a file without it says nothing of it"
    (difference,) = highest.differences
    assert (difference.queue_id, difference.offsets, difference.taken) == (0, {str(a): 2, str(b): 3}, 3)
    assert "1 offset differs between the files: the highest is taken" in str(highest)


def test_a_new_file(make: Make, tmp_path: Path) -> None:
    store = make(*orders(5), *orders(3, 1))
    light = {"%LMQ%a@%LMQ%a": 4, "%LMQ%b@%LMQ%b": 0}
    old = write_offsets(
        tmp_path / "old.json", {"Orders@billing": {0: 9, 1: 2}, "Gone@audit": {0: 7}}, dataVersion={"counter": 7},
        lmqOffsetTable=light,
    )  # fmt: skip
    out, before = tmp_path / "new.json", old.read_bytes()
    found = rr.consumers(store, consumer_offsets=old, group="billing", out=out)
    assert (found.exit_status, found.out, old.read_bytes()) == (0, str(out), before)
    assert json.loads(out.read_text()) == {
        "offsetTable": {"Orders@billing": {"0": 5, "1": 2}, "Gone@audit": {"0": 0}},
        "dataVersion": {"counter": 7},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%a": 0, "%LMQ%b@%LMQ%b": 0},
    }, "groups that were not asked for are in it, too"
    assert [(change.group, change.before, change.after) for change in found.changes] == [
        ("%LMQ%a", 4, 0), ("audit", 7, 0), ("billing", 9, 5),
    ]  # fmt: skip
    again = tmp_path / "again.json"
    assert rr.consumers(store, consumer_offsets=out, out=again).changes == [], "a new file of a new file is the same"
    assert json.loads(again.read_text()) == json.loads(out.read_text())
    for taken in (out, old):
        with pytest.raises(rr.InputError, match="is there already, and is not written over"):
            rr.consumers(store, consumer_offsets=old, out=taken)
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(rr.InputError, match="is there already"):
        rr.consumers(store, consumer_offsets=old, out=link)


def test_set_to_a_time(make: Make, tmp_path: Path) -> None:
    again = Message(topic="%RETRY%billing", properties={"RETRY_TOPIC": "Orders"}, store_timestamp=EPOCH)
    offsets = {"Orders@billing": {0: 5}, "Orders@audit": {0: 9, 1: 1}, "%RETRY%billing@billing": {0: 1}}
    store = make(*orders(5), *orders(3, 1), again, offsets=offsets)
    out = tmp_path / "new.json"
    found = rr.consumers(store, group="billing", to_time=EPOCH + 1500, out=out)
    assert json.loads(out.read_text())["offsetTable"] == {
        "Orders@billing": {"0": 2, "1": 2}, "Orders@audit": {"0": 5, "1": 1}, "%RETRY%billing@billing": {"0": 1},
    }, "what came again to it is not a message of that time"  # fmt: skip
    assert [(change.group, change.queue_id, change.before, change.after) for change in found.changes] == [
        ("audit", 0, 9, 5), ("billing", 0, 5, 2), ("billing", 1, None, 2),
    ]  # fmt: skip
    named = tmp_path / "named.json"
    rr.consumers(store, group="billing", topic="%RETRY%billing", to_time=EPOCH, out=named)
    assert json.loads(named.read_text())["offsetTable"]["%RETRY%billing@billing"] == {"0": 0}
    late = rr.consumers(store, group="billing", to_time=EPOCH + 10**6, out=tmp_path / "late.json")
    assert [(change.after, change.why) for change in late.changes if change.group == "billing"] == [
        (3, "no message is stored at --to-time or later: the end of the queue"),
    ]  # fmt: skip
    (store / "config" / "consumerOffset.json").unlink()
    lost = tmp_path / "lost.json"
    rr.consumers(store, group="billing", topic="Orders", to_time=EPOCH, out=lost)
    assert json.loads(lost.read_text()) == {"offsetTable": {"Orders@billing": {"0": 0, "1": 0}}}
    with pytest.raises(rr.UsageError, match="to_time goes with out and group"):
        rr.consumers(store, to_time=EPOCH, out=tmp_path / "none.json")
    for topic in (None, "Typo"):
        with pytest.raises(rr.InputError, match="nothing is written: set a group to a time by group, topic and to_time"):
            rr.consumers(store, group="billing", topic=topic, to_time=EPOCH, out=tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_a_new_file_takes_no_name_that_somebody_took_meanwhile(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = make(*orders(2), offsets={"Orders@billing": {0: 1}}), tmp_path / "new.json"
    made = consumer_offsets.made

    def slowly(*given: Any) -> dict[str, Any]:
        out.write_text("somebody's")
        return made(*given)

    monkeypatch.setattr(consumer_offsets, "made", slowly)
    with pytest.raises(rr.InputError, match="is there already"):
        rr.consumers(store, out=out)
    assert out.read_text() == "somebody's"


def test_a_log_that_lost_its_end(make: Make, tmp_path: Path) -> None:
    """A start cuts the queues there: a group is behind their end then."""
    size = len(encode(orders(1)[0], 0))
    store = make(*orders(60), offsets={"Orders@g": {0: 55}}, segment=(size + 8) * 20)
    max((store / "commitlog").iterdir()).unlink()
    (row,) = rr.consumers(store)
    assert row.end is not None
    assert (row.state, row.end < 55) == ("behind the end", True)
    out = tmp_path / "new.json"
    rr.consumers(store, out=out)
    assert json.loads(out.read_text())["offsetTable"]["Orders@g"] == {"0": row.end}


def test_queues_that_end_before_the_log(make: Make) -> None:
    """As after a crash: a start adds the units, and the group is not behind the end."""
    store = make(*orders(60), offsets={"Orders@g": {0: 55}})
    assert rr.consumers(store).warnings == []
    (file,) = (store / "consumequeue" / "Orders" / "0").iterdir()
    data = file.read_bytes()
    file.write_bytes(data[: 50 * 20] + bytes(len(data) - 50 * 20))
    (warning,) = rr.consumers(store).warnings
    assert "Orders/0: has no unit for the log's last record" in warning


def test_a_queue_that_cannot_be_read(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of it, and nothing is set there."""
    store = make(*orders(5), offsets={"Orders@billing": {0: 3}})
    monkeypatch.setattr(FileUnits, "_open", lambda queue, path: queue._unread(path, OSError(5, "Input/output error")))
    found = rr.consumers(store)
    assert [(row.state, row.end, row.left) for row in found] == [("unknown", None, None)]
    assert (found.exit_status, "Input/output error" in found.warnings[-1]) == (4, True)
    kept = tmp_path / "kept.json"
    rr.consumers(store, out=kept)
    assert json.loads(kept.read_text())["offsetTable"] == {"Orders@billing": {"0": 3}}
    with pytest.raises(rr.InputError, match="cannot be read"):
        rr.consumers(store, group="billing", to_time=EPOCH, out=tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()


def test_both_files_of_a_store(make: Make) -> None:
    """A broker reads one of them, by a setting that is not in the store."""
    store = make(*orders(5), offsets={"Orders@billing": {0: 3}})
    light = write_offsets(store / "config" / "lmqConsumerOffset.json", {"Orders@billing": {0: 1}})
    with pytest.raises(rr.InputError, match="are both there: a broker with enableLmq=true reads the second"):
        rr.consumers(store)
    assert [row.offset for row in rr.consumers(store, consumer_offsets=light)] == [1]


def test_batch_queues(golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    """A unit of a batch queue stands for several messages."""
    store = golden_store("batch-5.3").path
    shutil.copytree(store / "rebuilt" / "batchconsumequeue", store / "batchconsumequeue")
    offsets = write_offsets(tmp_path / "offsets.json", {"BatchA@g": {0: 1}})
    row = rr.consumers(store, consumer_offsets=offsets, topic="BatchA")[0]
    last = list(rr.query(store, topic="BatchA", queue=0, offset=0, max=10**6))[-1]
    assert (row.state, row.first) == ("in the queue", 0)
    assert row.end is not None
    assert row.end > last.queue_offset, "the last batch has several messages"
    assert row.left == row.end - 1


def test_a_store_without_queues(make: Make) -> None:
    store = make(*orders(2), offsets={"Orders@billing": {0: 1}})
    shutil.rmtree(store / "consumequeue")
    with pytest.raises(rr.InputError, match=r"build the queues first: rmq-reindex build .*, then rmq-reindex fetch DIR"):
        rr.consumers(store)


def test_names_that_are_written_wrong(make: Make, tmp_path: Path) -> None:
    store = make(*orders(3), offsets={"Orders@GID_orders": {0: 1}})
    by_group = rr.consumers(store, group="gid_order")
    assert (by_group.groups, by_group.warnings) == ([], ["group gid_order: is not known (near it: GID_orders)"])
    assert rr.consumers(store, topic="orders").warnings == ["topic orders: no group reads it (near it: Orders)"]
    assert not rr.consumers(store, group="payments").warnings
    # It may be a new group: the file is written.
    for number, (group, near) in enumerate({"gid_order": True, "payments": False, "GID_orders": False}.items()):
        written = rr.consumers(store, group=group, topic="Orders", to_time=EPOCH, out=tmp_path / f"{number}.json")
        assert written.warnings == (["group gid_order: is not known (near it: GID_orders)"] if near else [])


def test_hostile_names(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name never leaves the store's folder, and no escape sequence reaches the terminal."""
    (tmp_path / "x" / "0").mkdir(parents=True)
    (tmp_path / "x" / "0" / f"{0:020d}").write_bytes(bytes(range(1, 21)))
    names = {"../../x@g\x1b[31m": {0: 1}, "Orders\n@g": {0: 1}, "/etc@g": {0: 1}, "Orders@": {0: 2}, "..@g": {0: 2}}
    store = make(*orders(2), offsets=names)
    assert main(["consumers", str(store)]) == 4
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert {row.state for row in rr.consumers(store)} == {"no such queue"}
    odd = {"Orders@g": {0: 10**30, "x": 1, "-1": 2, 1: "3"}, "Orders@h": 5, "Orders@i": {0: 1}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": odd, "lmqOffsetTable": {"a@b": "c"}}))
    found = rr.consumers(store)
    # fastjson reads a Long of a text.
    assert rows(found) == [
        ("g", "Orders", 0, "no offset", None, None), ("g", "Orders", 1, "no such queue", 3, 0),
        ("i", "Orders", 0, "in the queue", 1, 1),
    ]  # fmt: skip
    assert len(found.warnings) == 3
    odd = {"Orders@g": {0: -1, 9999999999: 1}, "noat": {0: 1}, "Orders@": {0: 2}, "Orders@i": {0: 1}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": odd}))
    out = tmp_path / "new.json"
    assert [row.state for row in rr.consumers(store, out=out) if row.group == "g"] == []
    table = json.loads(out.read_text())["offsetTable"]
    assert table == {"noat": {"0": 1}, "Orders@": {"0": 2}, "Orders@i": {"0": 1}}, "no queue has that number"


# ----------------------------------------------------------------------------------------------------------------------- bounds


def given(found: rr.ConsumersResult) -> dict[tuple[str, str, int], tuple[int | None, str]]:
    return {
        (row.group, row.topic, row.queue_id): (row.at_least, row.evidence.what) for row in found if row.evidence is not None
    }


def offset_id(phy_offset: int) -> str:
    return f"0A00000100002A9F{phy_offset:016X}"


def retry(of: Message, phy_offset: int, times: int, group: str = "billing", **more: Any) -> Message:
    key = {"UNIQ_KEY": dict(of.properties)["UNIQ_KEY"]} if isinstance(of.properties, dict) else {}
    properties = {**key, "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": offset_id(phy_offset)}
    return Message(**{"topic": f"%RETRY%{group}", "properties": properties, "reconsume_times": times, **more})


def test_bounds_of_retries(make: Make) -> None:
    sent = orders(6)
    size = len(encode(sent[0], 0))
    waits = retry(sent[4], 4 * size, 1, "slow")
    waits = Message(
        topic=SCHEDULE, queue_id=2, reconsume_times=1,
        properties={**dict(waits.properties), "REAL_TOPIC": "%RETRY%slow", "REAL_QID": "0", "DELAY": "3"},  # type: ignore[arg-type]
    )  # fmt: skip
    dead = retry(sent[2], 2 * size, 3, "audit", topic="%DLQ%audit")
    elsewhere = retry(sent[5], 1 * size, 1, "other")
    store = make(
        *sent, retry(sent[1], size, 1), retry(sent[3], 3 * size, 1), retry(sent[3], 3 * size, 2), waits, dead, elsewhere
    )
    found = rr.consumers(store, bounds=True)
    assert given(found) == {
        ("billing", "Orders", 0): (4, "retry"),
        ("billing", "%RETRY%billing", 0): (2, "retry"),
        ("slow", "Orders", 0): (5, "retry"),
        ("audit", "Orders", 0): (3, "dead letter"),
    }, "what another broker's id says, another message of this one has"
    assert [row.to_dict()["atMost"] for row in found if row.evidence and row.group == "audit"] == [6]
    assert "read at least to 3, at most to 6: dead letter %DLQ%audit/0/0" in str(found)


def test_bounds_of_pop_and_traces(make: Make) -> None:
    check_point = {"t": "Orders", "c": "popping", "q": 0, "so": 1, "n": 3, "pt": EPOCH, "it": 60000, "bn": "b"}
    traces = [("K02", 0), ("K03", 0), ("twice", 0), ("unknown", 0), ("K04", 1)]
    body = "\x02".join(
        "\x01".join(("SubBefore", str(EPOCH + 5000 + n), "region", "tracing", "r", key, str(times), "keys"))
        for n, (key, times) in enumerate(traces)
    )
    twice = [Message(topic="Orders", queue_id=queue, properties={"UNIQ_KEY": "twice"}) for queue in (0, 1)]
    store = make(
        *orders(5), *twice,
        Message(topic=REVIVE, properties={"TAGS": "ck"}, body=json.dumps(check_point).encode()),
        Message(topic=REVIVE, properties={"TAGS": "ck"}, body=b"{junk"),
        Message(topic=TRACE, body=body.encode()),
        Message(topic=TRACE, body=b"\xff\x01\x02junk"),
    )  # fmt: skip
    found = rr.consumers(store, bounds=True)
    assert given(found) == {("popping", "Orders", 0): (4, "pop"), ("tracing", "Orders", 0): (4, "trace")}
    by_group = {row.group: row.evidence for row in found if row.evidence}
    assert (by_group["popping"].time, by_group["tracing"].time) == (EPOCH, EPOCH + 5001)


def test_so_many_clues_that_the_oldest_are_let_go(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is left out, or lower, still holds: also where the first of two copies with one name was let go."""
    sent = orders(9)
    body = "\x02".join(
        "\x01".join(("SubBefore", str(EPOCH + 60_000 + n), "region", "tracing", "r", f"K{n:02d}", "0", "keys"))
        for n in range(9)
    )
    copies = [Message(topic="%RETRY%again", reconsume_times=1, properties={"UNIQ_KEY": f"K{n:02d}"}) for n in (0, *range(7))]
    given_back = "\x02".join(
        "\x01".join(("SubBefore", str(EPOCH + 60_000), "region", "again", "r", f"K{n:02d}", "1", "keys")) for n in (6, 0)
    )
    later = Message(topic="%RETRY%again", reconsume_times=1, properties={"UNIQ_KEY": "K00"})
    traces = [Message(topic=TRACE, body=text.encode()) for text in (body, given_back)]
    store = make(*sent, *traces, *copies, later)
    all_shown = {("tracing", "Orders", 0): (9, "trace"), ("again", "%RETRY%again", 0): (8, "trace")}
    found = rr.consumers(store, bounds=True)
    assert given(found) == all_shown
    assert not [line for line in found.warnings if "traces or retries" in line]
    for held in (1, 2, 3, 8):
        monkeypatch.setattr(consumer_bounds, "CLUES_MAX", held)
        found = rr.consumers(store, bounds=True)
        # Only the second copy of K00 may be held by then: it is not known which of them a trace means.
        shown = dict(all_shown) if held >= 2 else {("tracing", "Orders", 0): (9, "trace")}
        assert given(found) == shown, held
        assert [line for line in found.warnings if f"more than {held} traces or retries" in line], held


def test_what_shows_nothing(make: Make) -> None:
    """What may speak of another message, or of another broker's, shows nothing of this one."""
    late = Message(topic="Orders", properties={"UNIQ_KEY": "late"}, store_timestamp=EPOCH + 99_000)
    traced = f"SubBefore\x01{EPOCH}\x01region\x01tracing\x01r\x01late\x010\x01keys"
    bare = Message(topic="Orders", properties={}, store_timestamp=EPOCH)
    sent = [*orders(2), late, bare]
    places = [sum(len(encode(message, 0)) for message in sent[:number]) for number in range(4)]
    elsewhere = Message(
        topic="%RETRY%other", reconsume_times=1, properties={"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": offset_id(places[3])}
    )
    by_pop = [Message(topic="%RETRY%billing_Orders", properties={"UNIQ_KEY": "K00"}, reconsume_times=times) for times in (1, 2)]
    beyond = json.dumps({"t": "Orders", "c": "popping", "q": 0, "so": 1000, "n": 3, "pt": EPOCH, "it": 60000, "bn": "b"})
    store = make(
        *sent, Message(topic=TRACE, body=traced.encode()), elsewhere, *by_pop,
        Message(topic=REVIVE, properties={"TAGS": "ck"}, body=beyond.encode()),
    )  # fmt: skip
    found = rr.consumers(store, bounds=True)
    assert given(found) == {}
    assert any("ends at 4, but group popping was given offset 1002" in warning for warning in found.warnings)


def test_bounds_beside_a_file(make: Make) -> None:
    """Who has an old copy sees how far the log shows the group to be beyond it."""
    sent = orders(3)
    store = make(*sent, retry(sent[2], 2 * len(encode(sent[0], 0)), 1), offsets={"Orders@billing": {0: 1}})
    row = next(row for row in rr.consumers(store, bounds=True, topic="Orders"))
    assert (row.offset, row.at_least, row.to_dict()["atMost"]) == (1, 3, 3)


def test_no_bounds(make: Make) -> None:
    found = rr.consumers(make(*orders(2)), bounds=True)
    assert (len(found), found.exit_status, str(found)) == (0, 4, "no group found")
