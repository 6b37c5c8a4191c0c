"""Messages of a log, replayed into a real broker through a real proxy: each once, whole, in the order of its queue."""

from __future__ import annotations

import contextlib
import json
import random
import re
import signal
import socket
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer
from rocketmq.v5.exception import InternalErrorException

import rocketmq_reindex as rr
from tests.replay.cluster import IN_ORDER, VERSION, Cluster, config, origin, replay, start
from tests.serving.programs import PATIENCE, Program
from tests.tools.encode import EPOCH, Message
from tests.tools.log_writer import LogWriter, Put

TOPICS = {
    "Plain": "", "Renamed": "", "Fifo": "FIFO", "Queues": "FIFO", "Late": "DELAY", "Sold": "TRANSACTION", "Picky": "",
    "Stays": "", "InOrder": "FIFO",
    "Lite": "LITE", "Ranked": "PRIORITY", "Other": "", "Secret": "", "Exported": "FIFO", "ExportedLines": "FIFO",
    **{f"Killed{number}": "FIFO" for number in range(60)},
}  # fmt: skip
PACKED = 1
"""``MessageSysFlag.COMPRESSED_FLAG``, by zlib"""
HOUR = 3_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), TOPICS) as cluster:
        yield cluster


def write(store: Path, messages: list[Message]) -> list[Put]:
    with LogWriter(store / "commitlog", 1 << 22) as log:
        for message in messages:
            log.append(message)
    return log.puts


def numbered(topic: str, count: int, queues: int = 3, **more: str) -> list[Message]:
    """Messages that say their number, in turn in some queues."""
    return [
        Message(topic, number % queues, f"{topic} {number}".encode(), {"UNIQ_KEY": f"{topic}-{number}", **more})
        for number in range(count)
    ]


def by_origin(rows: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    found = {int(origin(row)["phy_offset"]): row for row in rows}
    assert len(found) == len(rows), "a message came twice"
    return found


def test_each_message_comes_once_as_it_was(tmp_path: Path, cluster: Cluster) -> None:
    messages = [
        Message(
            "Plain", number % 3, f"body {number} \N{SNOWMAN}".encode() * (number % 5 + 1),
            {"UNIQ_KEY": f"K{number}", "KEYS": f"zeta{number} all alpha", "TAGS": f"tag{number % 4}", "a": " ",
             "color": f"=\u00fc{number}",
             "WAIT": "true", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "c"},
            born_timestamp=EPOCH + number, store_timestamp=EPOCH + 2 * number,
        )
        for number in range(300)
    ]  # fmt: skip
    messages[7] = Message("Plain", 0, zlib.compress(b"packed" * 400), {}, sysflag=PACKED)
    puts = write(tmp_path / "store", messages)
    journal = tmp_path / "journal"
    words = (tmp_path / "store", "--to", cluster.address, "--journal", journal)
    status, found, said = replay(*words)
    assert (status, found["sent"], found["failures"], found["topics"]) == (0, 300, [], {"Plain": 300}), said
    rows = by_origin(cluster.stored("Plain"))
    for put in puts:
        row, message = rows[put.offset], put.message
        given = dict(message.properties)  # type: ignore[arg-type]
        body = b"packed" * 400 if message.sysflag else message.body
        assert (row["body"], row["keys"], row["tags"]) == (body, given.get("KEYS"), given.get("TAGS"))
        assert (row["properties"].get("a"), row["properties"].get("color")) == (given.get("a"), given.get("color"))
        assert "MSG_REGION" not in origin(row)
        assert origin(row) == {
            "broker": "10.0.0.9:10911", "topic": "Plain", "queue_id": str(message.queue_id),
            "queue_offset": str(put.queue_offset),
            "phy_offset": str(put.offset), "born_time": str(message.born_timestamp),
            "store_time": str(message.store_timestamp),
            **({"message_id": given["UNIQ_KEY"]} if "UNIQ_KEY" in given else {}),
        }  # fmt: skip
    # In the order of each queue, as they were stored one after another.
    for queue in range(3):
        mine = [rows[put.offset]["commitLogOffset"] for put in puts if put.message.queue_id == queue]
        assert mine == sorted(mine)
    again = replay(*words)
    assert (again[0], again[1]["sent"], again[1]["sent_before"]) == (0, 0, 300)
    assert len(cluster.stored("Plain")) == 300
    dry = rr.replay(tmp_path / "store", to=cluster.address, journal=journal, dry_run=True)
    assert (dry.sent, dry.sent_before, dry.exit_status) == (0, 300, 0)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows"])
def test_each_message_of_an_export_comes_once_as_it_was(tmp_path: Path, cluster: Cluster, name: str) -> None:
    topic = "Exported" if name == "rows" else "ExportedLines"
    more: Any = {"KEYS": "zeta all", "TAGS": "paid", "a": "=1"}
    puts = write(tmp_path / "store", numbered(topic, 200, **more))
    rr.export(tmp_path / "store", to=tmp_path / name, format="parquet" if name == "rows" else "jsonl")
    words = (tmp_path / name, "--to", cluster.address, "--journal", tmp_path / "journal", "--queue-groups")
    process = start(*words, "--rate", "20", "--json")
    while not _sent_some(tmp_path / "journal"):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    first = json.loads(process.communicate(timeout=PATIENCE)[0])
    assert 0 < first["sent"] < 200
    status, found, said = replay(*words, "--resend-doubtful")
    assert (status, found["sent"] + found["sent_before"], found["doubtful"]) == (0, 200, 0), said
    stored = cluster.stored(topic)
    assert 200 <= len(stored) <= 200 + first["doubtful"]
    rows = {int(origin(row)["phy_offset"]): row for row in stored}
    assert rows.keys() == {put.offset for put in puts}
    for put in puts:
        row = rows[put.offset]
        assert (row["body"], row["keys"], row["tags"], row["properties"]["a"]) == (put.message.body, "zeta all", "paid", "=1")
        assert origin(row)["queue_offset"] == str(put.queue_offset)
    for queue in range(3):
        mine = [rows[put.offset]["commitLogOffset"] for put in puts if put.message.queue_id == queue]
        assert first["doubtful"] or mine == sorted(mine)
    again = replay(*words)
    assert (again[0], again[1]["sent"], again[1]["sent_before"]) == (0, 0, 200)


def test_order_of_groups_and_of_queues(tmp_path: Path, cluster: Cluster) -> None:
    grouped = [
        Message("Fifo", number % 2, b"%d" % number, {"__SHARDINGKEY": f"group{number % 5}"}) for number in range(200)
    ]  # fmt: skip
    puts = write(tmp_path / "store", [*grouped, *numbered("Old", 90)])
    words = ("--topic-map", "Old=Queues", "--queue-groups")
    status, found, said = replay(tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal", *words)
    assert (status, found["topics"]) == (0, {"Fifo": 200, "Queues": 90}), said
    groups: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for row in cluster.stored("Fifo", "Queues"):
        groups[row["topic"], row["properties"]["__SHARDINGKEY"]].append((row["queueId"], int(origin(row)["phy_offset"])))
    assert len(groups) == 5 + 3
    for places in groups.values():
        assert len({queue for queue, _ in places}) == 1
        assert places == sorted(places)
    assert sum(map(len, groups.values())) == len(puts)


def test_a_topic_of_one_type_takes_what_has_come_to_its_end(tmp_path: Path, cluster: Cluster) -> None:
    write(tmp_path / "store", [*numbered("Late", 3), *numbered("Sold", 5)])
    status, found, said = replay(tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal")
    assert (status, found["topics"]) == (0, {"Late": 3, "Sold": 5}), said
    end = time.monotonic() + PATIENCE
    while len(cluster.stored("Late", "Sold")) < 8 and time.monotonic() < end:
        time.sleep(0.2)
    assert len(by_origin(cluster.stored("Late", "Sold"))) == 8


def test_lite_topics_priorities_and_light_queues(tmp_path: Path, cluster: Cluster) -> None:
    """A topic of that type takes the first two again; a gRPC client can give a message no light queue by its name."""

    def light(*names: str) -> dict[str, str]:
        return {"INNER_MULTI_DISPATCH": ",".join(names), "INNER_MULTI_QUEUE_OFFSET": ",".join("7" for _ in names)}

    lite, ranked = {"__LITE_TOPIC": "child", **light("%LMQ%$Lite$child")}, {"_SYS_MSG_PRIORITY_": "2"}
    messages = [
        *[Message("Lite", 0, b"lite", {"UNIQ_KEY": f"L{number}", **lite}) for number in range(2)],
        *[Message("Ranked", 0, b"ranked", {"UNIQ_KEY": f"R{number}", **ranked}) for number in range(2)],
        Message("Other", 0, b"light", {"UNIQ_KEY": "O", **light("%LMQ%a", "%LMQ%b")}),
    ]
    write(tmp_path / "store", messages)
    found = rr.replay(tmp_path / "store", to=cluster.address, journal=tmp_path / "journal")
    assert (found.exit_status, found.failures, found.topics) == (0, [], {"Lite": 2, "Other": 1, "Ranked": 2})
    assert found.warnings == ["1 message from light queues: no gRPC client can name these: sent to the topic alone"]
    for row in cluster.stored("Lite"):
        assert (row["properties"]["__LITE_TOPIC"], row["properties"]["INNER_MULTI_DISPATCH"]) == ("child", "%LMQ%$Lite$child")
    assert {row["properties"]["_SYS_MSG_PRIORITY_"] for row in cluster.stored("Ranked")} == {"2"}
    (row,) = cluster.stored("Other")
    assert origin(row)["light_queues"] == "%LMQ%a,%LMQ%b"
    # A topic of another type takes what they say, and says where it was.
    names = ("Lite=Other", "Ranked=Other")
    found = rr.replay(tmp_path / "store", to=cluster.address, journal=tmp_path / "other", topic_map=names)
    assert found.topics == {"Other": 5}
    told = [origin(row) for row in cluster.stored("Other") if "light_queues" not in origin(row)]
    assert (
        sorted((each.get("lite_topic", ""), each.get("priority")) for each in told) == [("", "2")] * 2 + [("child", None)] * 2
    )


@pytest.mark.slow
def test_a_proxy_in_local_mode(tmp_path: Path) -> None:
    """The broker beside it takes the messages. It registers itself some seconds late: what was refused is tried again."""
    write(tmp_path / "store", numbered("Plain", 5))
    target = tmp_path / "target"
    config(target, {"Plain": ""})
    with Program(VERSION, "Proxied", tmp_path, heap="1g") as program:
        address = f"127.0.0.1:{program.step('local', target)}"
        wait_for(lambda: not rr.replay(tmp_path / "store", to=address, journal=tmp_path / "journal").refused)
        found = [row["body"] for batch in rr.messages(target, topics=("Plain",), damage="skip") for row in batch.to_pylist()]
        assert sorted(found) == [f"Plain {number}".encode() for number in range(5)]


def test_what_a_proxy_refuses_is_listed(tmp_path: Path, cluster: Cluster) -> None:
    wrong = {
        "no such topic": Message("Missing", 0, b"x"),
        "illegal tag": Message("Picky", 0, b"x", {"TAGS": "a|b"}),
        "empty body": Message("Picky", 1, b""),
        "too large": Message("Picky", 2, bytes(5 << 19)),
        "group": Message("Picky", 0, b"x", {"__SHARDINGKEY": "g"}),
        "broken body": Message("Picky", 1, b"no zlib", sysflag=PACKED),
    }
    puts = write(tmp_path / "store", [*wrong.values(), *numbered("Picky", 3)])
    words = (tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal")
    status, found, said = replay(*words)
    assert (status, found["sent"], found["refused"], found["doubtful"]) == (1, 3, 6, 0), said
    assert "error: not all was sent: 6 messages refused" in said
    reasons = {failure["phy_offset"]: failure["reason"] for failure in found["failures"]}
    codes = (
        "TOPIC",
        "ILLEGAL_MESSAGE_TAG",
        "MESSAGE_BODY_EMPTY",
        "illegal, maybe msg body",
        "CONFLICT_WITH_TYPE",
        "does not unpack",
    )
    assert all(code in reasons[put.offset] for code, put in zip(codes, puts, strict=False)), reasons
    first = found["failures"][0]
    assert (first["kind"], first["topic"], first["queue_id"], first["queue_offset"]) == ("refused", "Missing", 0, 0)
    process = start(*words)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "refused: Missing queue 0 offset 0, offset 0 of the log: " in out
    assert "sent before: 3 messages" in out
    assert len(cluster.stored("Picky")) == 3


def test_tls(tmp_path: Path, cluster: Cluster) -> None:
    """The certificate is checked: against the system's authorities, or those of gRPC's own variable."""
    write(tmp_path / "store", numbered("Secret", 3))
    words = (tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal", "--tls")
    status, _, said = replay(*words)
    errors = [line for line in said.splitlines() if not line.startswith("count: ")]
    assert (status, len(errors)) == (1, 1), said
    named = "its certificate is of no authority that is known here; GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names a file of others: "
    assert errors[0].startswith(f"error: --to {cluster.address}: {named}")
    status, found, said = replay(*words, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(cluster.certificate))
    assert (status, found["sent"]) == (0, 3), said
    # The certificate is one for 127.0.0.1.
    other = ("--to", cluster.address.replace("127.0.0.1", "localhost"), "--journal", tmp_path / "other", "--tls")
    status, _, said = replay(tmp_path / "store", *other, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(cluster.certificate))
    assert status == 1
    assert "no TLS connection can be made: is its certificate one for this host?: " in said


@pytest.mark.parametrize("what", ["nothing", "name server", "silent"])
def test_no_proxy_is_told_in_one_line(tmp_path: Path, cluster: Cluster, what: str) -> None:
    write(tmp_path / "store", numbered("Plain", 3))
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if what == "nothing":
            server.close()
        address = cluster.name_server if what == "name server" else f"127.0.0.1:{port}"
        process = start(tmp_path / "store", "--to", address, "--journal", tmp_path / "journal")
        out, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    errors = [line for line in said.splitlines() if not line.startswith("count: ")]
    assert len(errors) == 1, said
    assert errors[0].startswith(f"error: --to {address}: does not answer as a RocketMQ 5 proxy does")
    assert not (tmp_path / "journal").exists()


def test_a_journal_is_of_one_log_choice_and_target(tmp_path: Path, cluster: Cluster) -> None:
    write(tmp_path / "store", numbered("Stays", 4))
    write(tmp_path / "other", numbered("Stays", 5))
    words = ("--to", cluster.address, "--journal", tmp_path / "journal")
    assert replay(tmp_path / "store", *words, "--topic", "Stays")[0] == 0
    for changed, what in (
        ((tmp_path / "other", *words, "--topic", "Stays"), "log"),
        ((tmp_path / "store", *words, "--topic", "Sta*"), "--topic"),
        ((tmp_path / "store", *words, "--topic", "Stays", "--topic-map", "Stays=Plain"), "--topic-map"),
    ):
        status, _, said = replay(*changed)
        assert status == 1
        assert f"is of a replay with another {what}: name a new file" in said
    assert len(cluster.stored("Stays")) == 4


def test_rate(tmp_path: Path, cluster: Cluster) -> None:
    write(tmp_path / "store", numbered("Renamed", 60))
    began = time.monotonic()
    assert replay(tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal", "--rate", "20")[0] == 0
    assert time.monotonic() - began > 2.5


def test_ctrl_c_leaves_a_journal_that_says_what_was_sent(tmp_path: Path, cluster: Cluster) -> None:
    topic = "Killed59"
    write(tmp_path / "store", numbered(topic, 200, __SHARDINGKEY="g"))
    words = (tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal")
    process = start(*words, "--rate", "20", "--json")
    while not _sent_some(tmp_path / "journal"):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE)
    found = json.loads(out)
    assert (process.returncode, found["error"]) == (130, "interrupted: what was sent stands in the journal")
    assert "Traceback" not in said
    assert 0 < found["sent"] < 200
    stored = len(cluster.stored(topic))
    # Of a doubtful one nobody knows: it may have been about to be sent.
    assert found["sent"] <= stored <= found["sent"] + found["doubtful"]
    status, rest, _ = replay(*words)
    assert (rest["sent"], rest["doubtful"]) == (200 - found["sent"] - found["doubtful"], found["doubtful"])
    assert status == (1 if found["doubtful"] else 0)
    assert len(by_origin(cluster.stored(topic))) == stored + rest["sent"]


class Cut:
    """Stands before a proxy, and cuts all connections once so many bytes of answers have passed."""

    def __init__(self, address: str, after: int) -> None:
        self._target, self._left = address.rpartition(":"), after
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                proxy = socket.create_connection((self._target[0], int(self._target[2])))
                threading.Thread(target=self._pass, args=(client, proxy, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(proxy, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                self._left -= len(data) if counted else 0
                if self._left < 0:
                    self._server.close()
                    # The other thread waits in recv, and close alone ends no connection that a system call holds.
                    for end in (source, target):
                        end.shutdown(socket.SHUT_RDWR)
                    return
                target.sendall(data)


def test_a_lost_answer_is_doubtful_and_ends_the_run(tmp_path: Path, cluster: Cluster) -> None:
    topic = "Killed58"
    puts = write(tmp_path / "store", numbered(topic, 300, 7, __SHARDINGKEY="g"))
    cut = Cut(cluster.address, 9000)
    words = (tmp_path / "store", "--to", cut.address, "--journal", tmp_path / "journal")
    status, found, said = replay(*words)
    assert status == 1
    # gRPC finds the cut, or the end of the time for an answer: whichever comes first on this machine.
    assert re.search(r"error: the answer to a message was lost: (UNAVAILABLE|DEADLINE_EXCEEDED): .*: run it again", said)
    assert 0 < found["sent"] < 300
    assert 1 <= found["doubtful"] <= 64
    doubtful = {failure["phy_offset"]: failure for failure in found["failures"]}
    rows = by_origin(cluster.stored(topic))
    assert found["sent"] <= len(rows) <= found["sent"] + found["doubtful"]
    assert {put.offset for put in puts if put.offset in rows} - set(doubtful) <= {put.offset for put in puts[: found["sent"]]}
    assert all(failure["topic"] == topic and failure["message_id"] for failure in doubtful.values())


def test_keys_are_never_shown(tmp_path: Path, cluster: Cluster) -> None:
    write(tmp_path / "store", numbered("Stays", 2))
    keys = tmp_path / "keys"
    keys.write_text("accessKey: admin\nsecretKey: very-secret\n")
    words = (tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal", "--credentials", keys)
    status, found, said = replay(*words)
    assert status == 0
    assert "very-secret" not in json.dumps(found) + said + (tmp_path / "journal").read_text()
    alone = replay(*words[:-2], RMQ_REINDEX_ACCESS_KEY="admin")
    assert (alone[0], "give both" in alone[2]) == (1, True)


def test_without_the_client_one_line_says_what_to_install(tmp_path: Path) -> None:
    write(tmp_path / "store", numbered("Stays", 2))
    (tmp_path / "lacks" / "rocketmq").mkdir(parents=True)
    (tmp_path / "lacks" / "rocketmq" / "__init__.py").write_text("raise ModuleNotFoundError('rocketmq')\n")
    words = (tmp_path / "store", "--to", "127.0.0.1:1", "--journal", tmp_path / "journal")
    status, _, said = replay(*words, PYTHONPATH=str(tmp_path / "lacks"))
    assert status == 1
    assert said.splitlines()[-1] == "error: the gRPC client is not installed: pip install 'rocketmq-reindex[replay]'"


def _sent_some(journal: Path, count: int = 1) -> bool:
    return journal.exists() and journal.read_bytes().count(b"\na ") >= count


def killed(tmp_path: Path, cluster: Cluster, seed: int, number: int) -> int:
    """Replay with kills at random moments. Return how many messages are doubtful in the end.

    Their bodies tell those of one seed from those that other seeds sent to the same topic.
    """
    dice, topic, mine = random.Random(seed + number), f"Killed{number}", b"%d " % seed
    store, journal = tmp_path / f"store{number}", tmp_path / f"journal{number}"
    messages = [
        Message(topic, n % 3, mine + b"%d" % n, {"__SHARDINGKEY": f"g{n % 7}", "UNIQ_KEY": f"{number}-{n}"}) for n in range(400)
    ]
    puts = write(store, messages)
    words = (store, "--to", cluster.address, "--journal", journal)
    for _ in range(dice.randint(1, 2)):
        process = start(*words)
        answers = journal.read_bytes().count(b"\na ") if journal.exists() else 0
        wanted = answers + dice.randint(1, 200)
        while process.poll() is None and not _sent_some(journal, wanted):
            time.sleep(0.002)
        time.sleep(dice.random() * 0.02)
        process.kill()
        process.communicate()
    status, found, said = replay(*words)
    doubtful = {failure["phy_offset"] for failure in found["failures"]}
    assert status == (1 if doubtful else 0), said
    assert {failure["kind"] for failure in found["failures"]} <= {"doubtful"}
    rows = by_origin([row for row in cluster.stored(topic) if row["body"].startswith(mine)])
    assert {put.offset for put in puts} - set(rows) <= doubtful, "neither sent nor doubtful"
    groups: dict[str, list[int]] = defaultdict(list)
    for offset, row in rows.items():
        groups[row["properties"]["__SHARDINGKEY"]].append(offset)
    by_place = {offset: (row["queueId"], row["consumeQueueOffset"]) for offset, row in rows.items()}
    for offsets in groups.values():
        places = [by_place[offset] for offset in sorted(offsets)]
        assert places == sorted(places), "out of order"
    ids = {failure["phy_offset"]: failure["message_id"] for failure in found["failures"]}
    assert all(rows[offset]["uniqKey"] == ids[offset] for offset in doubtful & set(rows))
    if doubtful and number == 0:
        status, found, said = replay(*words, "--resend-doubtful")
        assert (status, found["sent"], found["doubtful"]) == (0, len(doubtful), 0), said
    return len(doubtful)


def test_killed_at_random_moments(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    """`make slow` has fifty more."""
    for number in range(3):
        killed(tmp_path, cluster, seed, number)


@pytest.mark.slow
def test_killed_at_many_random_moments(tmp_path: Path, cluster: Cluster, seed: int) -> None:
    doubtful = [killed(tmp_path, cluster, seed, number) for number in range(3, 53)]
    print(f"50 replays killed: {sum(doubtful)} messages doubtful, in {sum(map(bool, doubtful))} replays")


# ------------------------------------------------------------------------------------------------------------- taken in order
# What is replayed is consumed there, too: in order by a client of gRPC, as the timeline of each message says.


def test_what_a_group_took_in_order(tmp_path: Path, cluster: Cluster) -> None:
    topic, hidden = "InOrder", 10
    write(tmp_path / "store", numbered(topic, 8, 1, __SHARDINGKEY="g"))
    assert replay(tmp_path / "store", "--to", cluster.address, "--journal", tmp_path / "journal")[0] == 0
    keys = [row["uniqKey"] for row in cluster.stored(topic)]
    consumer = SimpleConsumer(ClientConfiguration(cluster.address, Credentials()), IN_ORDER, {topic: FilterExpression("*")})
    consumer.startup()
    try:
        got = received(consumer, hidden)
        taken = [message.message_id for message in got]
        assert taken == keys[: len(taken)]
        assert len(taken) >= 2
        done, left = taken[: len(taken) // 2], taken[len(taken) // 2 :]
        for message in got[: len(done)]:
            consumer.ack(message)
        wait_for(lambda: steps(cluster.store, done[-1]) == ["popped", "acknowledged"])
        assert [steps(cluster.store, key) for key in left] == [["popped", "open"]] * len(left)
        assert [steps(cluster.store, key) for key in keys[len(taken) :]] == [[]] * (len(keys) - len(taken))
        popped, unknown = in_order(cluster.store, left[0])
        assert ", attempt " not in popped.text
        assert unknown.time is not None
        assert popped.time is not None
        assert unknown.time - popped.time == hidden * 1000
        # What was not acknowledged comes again when its time is over, before what is behind it.
        again = [message.message_id for message in received(consumer, 60)]
        assert again == keys[len(done) : len(done) + len(again)]
        wait_for(lambda: ", attempt 2, and has until " in in_order(cluster.store, left[0])[0].text)
        assert [key for key in again if ", attempt " in in_order(cluster.store, key)[0].text] == [k for k in again if k in left]
        assert steps(cluster.store, done[0]) == []
    finally:
        consumer.shutdown()


def received(consumer: SimpleConsumer, hidden: int) -> list[Any]:
    """What a consumer gets in one go, as soon as it gets anything."""
    end = time.monotonic() + PATIENCE
    while True:
        # A proxy that has not yet the settings of a new client answers with an error of its own.
        with contextlib.suppress(InternalErrorException):
            if got := consumer.receive(4, hidden):
                return list(got)
        assert time.monotonic() < end
        time.sleep(0.1)


def in_order(store: Path, unique_key: str) -> list[rr.TraceEvent]:
    (found,) = rr.trace(store, unique_key=unique_key, scan=True)
    return [event for event in found.events if event.evidence == "config/consumerOrderInfo.json" and event.group == IN_ORDER]


def steps(store: Path, unique_key: str) -> list[str]:
    return sorted((event.what for event in in_order(store, unique_key)), key=["popped", "acknowledged", "open"].index)


def wait_for(done: Callable[[], bool]) -> None:
    """The broker writes the file each second, from its tenth on."""
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end
        time.sleep(0.2)
