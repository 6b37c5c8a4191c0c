"""How a queue begins, and begins again: what the real RocketMQ gives a consumer, and what preflight says."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.bases import complete
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.preflight.sweep import VERSIONS
from tests.reference.records import COMMIT, TRANSACTION_MASK
from tests.repair.odd_judge import lay_out
from tests.tools import spoil
from tests.tools.encode import Message
from tests.tools.local_engine import local_build, local_repair
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter, Put, overwrite
from tests.tools.tiers import ends

CONF = Conf(Sizes(1 << 14, 400, 50, 400))
LINES = ends(["4.9.8", "5.3.3", "5.5.0"])
NEWEST = ends(["4.9.8", "5.3.3", "5.5.1"])
CASES = ((1 << 14, 400, 5, 300, 100), (1 << 16, 20_000, 5, 300, 0), (1 << 18, 40_000, 5, 3000, 0), (1 << 14, 4000, 0, 300, 100))
"""bytes of a segment, of a ConsumeQueue file, the first queue offset, records, bytes of a body"""


def _sizes(version: str) -> dict[str, Any]:
    """The options of commands for the stores here: those of CONF."""
    return {"cq_file_size": 400, "hash_slots": 50, "index_items": 400, "broker_version": version[:3]}


def _started(real: RealStores, store: Path, version: str, scratch: Path) -> tuple[dict[str, Any], list[int]]:
    """What preflight says of a start, and where the messages lie that a consumer is given behind it. The store is left open."""
    said = predict(store, version, CONF, scratch)
    assert isinstance(said, dict), said
    assert real.start(store, CONF).loads
    return said, real.read(store).get(("TopicA", 0), [])


def _write(store: Path, segment: int, first: int, count: int, body: int) -> list[Put]:
    with LogWriter(store / "commitlog", segment) as writer:
        return [writer.append(Message(queue_offset=first + number, body=bytes(body))) for number in range(count)]


@pytest.mark.parametrize("version", NEWEST)
def test_what_a_consumer_is_given(version: str, tmp_path: Path) -> None:
    with RealStores(version, tmp_path) as real:
        for number, (segment, cq_file, first, count, body) in enumerate(CASES):
            log, store, out = tmp_path / f"log-{number}", tmp_path / f"store-{number}", tmp_path / f"out-{number}"
            puts = _write(log, segment, first, count, body)
            sizes = Sizes(segment, cq_file, 50, 400)
            settings: dict[str, Any] = {
                "cq_file_size": cq_file,
                "hash_slots": 50,
                "index_items": 400,
                "broker_version": version[:3],
            }
            assert local_build(log, out, **settings).exit == 0
            lay_out(out, log / "commitlog", store)
            said = predict(store, version, Conf(sizes), tmp_path)
            assert isinstance(said, dict), said
            passed = sum(queue["passed_over"] for queue in said["queues"])
            assert real.start(store, Conf(sizes)).loads
            given = real.read(store)["TopicA", 0]
            real.leave(store)
            assert len(puts) - len(set(given)) == passed
            assert (said["exit"], passed > 0) == ((4, True) if first else (0, False))
            assert [loss["kind"] for loss in said["losses"]] == (["messages-passed-over"] if first else [])


def _jumping(rng: random.Random) -> list[int]:
    """Offsets of a queue that begins anywhere, and goes on with a jump or below its end."""
    offsets, following = list[int](), rng.choice((0, 0, 3, 8, 30, 100))
    for _ in range(rng.randint(1, 5)):
        offsets += range(following, following + rng.randint(1, 25))
        following = max(0, offsets[-1] + 1 + rng.choice((0, -1, -2, -5, -30, 1, 2, 7, 40)))
    return offsets


@pytest.mark.parametrize("version", LINES)
def test_queues_that_jump(version: str, seed: int, tmp_path: Path) -> None:
    """A bare log, whose queues the start makes, and a built one: as many messages are not given as preflight says."""
    with RealStores(version, tmp_path / "real") as real:
        for number in range(seed, seed + 8):
            rng, folder = random.Random(number), tmp_path / f"{number}"
            conf = Conf(Sizes(rng.choice((1 << 12, 1 << 14)), rng.choice((200, 400, 4000)), 50, 400))
            with LogWriter(folder / "bare" / "commitlog", conf.sizes.segment) as writer:
                bodies = ((offset, bytes(rng.randint(10, 300))) for offset in _jumping(rng))
                puts = [writer.append(Message(queue_offset=offset, body=body)) for offset, body in bodies]
            settings: dict[str, Any] = {"cq_file_size": conf.sizes.cq_file, "hash_slots": 50, "index_items": 400}
            settings |= {"broker_version": version[:3], "on_damage": "salvage"}
            assert local_build(folder / "bare", folder / "out", **settings).exit in (0, 3)
            lay_out(folder / "out", folder / "bare" / "commitlog", folder / "built")
            for store in (folder / "built", folder / "bare"):
                said = predict(store, version, conf, tmp_path)
                assert isinstance(said, dict), said
                loads = real.start(store, conf).loads
                assert loads == (not said["refusals"])
                if not loads:
                    continue
                given = set(real.read(store)["TopicA", 0])
                real.leave(store)
                told = {one["kind"]: one["count"] for one in (*said["losses"], *said["warnings"])}
                lost = sum(told.get(kind, 0) for kind in ("records-hidden", "messages-passed-over", "earlier-lives"))
                assert len(puts) - len(given & {put.offset for put in puts}) == lost, f"seed {number}, {store.name}: {told}"


@pytest.mark.parametrize("version", NEWEST)
def test_a_damaged_first_record_hides_none(version: str, tmp_path: Path) -> None:
    """One bit of the log's first record, in a build that goes on behind damage, and after a repair."""
    store = tmp_path / "store"
    puts = _write(store, 1 << 14, 0, 300, 100)
    overwrite(store / "commitlog", puts[0].offset + 100, b"\1")
    sizes = Sizes(1 << 14, 4000, 50, 400)
    settings: dict[str, Any] = {"cq_file_size": 4000, "hash_slots": 50, "index_items": 400, "broker_version": version[:3]}
    with RealStores(version, tmp_path) as real:
        for tombstones in (False, True):
            out, started = tmp_path / f"out-{tombstones}", tmp_path / f"started-{tombstones}"
            assert local_repair(store, out, tombstones=tombstones, **settings).exit == 3
            lay_out(out, out / "commitlog", started)
            said = predict(started, version, Conf(sizes), tmp_path)
            assert isinstance(said, dict), said
            assert (said["exit"], said["losses"]) == (0, [])
            assert real.start(started, Conf(sizes)).loads
            given = real.read(started)["TopicA", 0]
            real.leave(started)
            assert given == [puts[0 if tombstones else 1].offset, *(put.offset for put in puts[1:])]
            shutil.rmtree(started)
    built = tmp_path / "built"
    assert local_build(store, built, on_damage="salvage", **settings).exit == 3
    first = next((built / "consumequeue/TopicA/0").iterdir()).read_bytes()
    assert first[:20] == first[20:40]


@pytest.mark.parametrize("version", ends(VERSIONS))
@pytest.mark.parametrize("crashed", [False, True])
def test_a_topic_that_was_made_again(crashed: bool, version: str, tmp_path: Path) -> None:
    """Its queue holds the later records, and they are served. A broker that makes the queue anew serves the earlier ones."""
    with LogWriter(tmp_path / "log" / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=number)) for number in (*range(10), *range(5))]
    places = [put.offset for put in puts]
    assert local_build(tmp_path / "log", tmp_path / "out", **_sizes(version)).exit == 0
    lay_out(tmp_path / "out", tmp_path / "log" / "commitlog", tmp_path / "whole")
    shutil.copytree(tmp_path / "log", tmp_path / "bare")
    given = {}
    with RealStores(version, tmp_path / "real") as real:
        for name in ("whole", "bare"):
            store = tmp_path / name
            if crashed:
                (store / "abort").touch()
            said, there = _started(real, store, version, tmp_path)
            real.leave(store)
            told = [(one["kind"], one["count"]) for one in (*said["losses"], *said["warnings"])]
            given[name] = (said["exit"], told, there)
    assert given["whole"] == (0, [("earlier-lives", 10)], places[10:])
    # A record with the queue offset 0 gets the next unit, whatever stands there (ConsumeQueue.putMessagePositionInfo).
    assert given["bare"] == (4, [("records-hidden", 4)], places[:11])


@pytest.mark.parametrize("version", LINES)
def test_a_record_out_of_line(version: str, tmp_path: Path) -> None:
    """Its queue goes on below it. Each broker serves all but one record of a repaired log, and preflight says so; or it serves
    all, some of them at other offsets."""
    offsets = (*range(6), 8, 6, 7)
    with LogWriter(tmp_path / "own" / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=offset, body=bytes(150))) for offset in offsets]
    shutil.copytree(tmp_path / "own", tmp_path / "damaged")
    spoil.bad_magic(tmp_path / "damaged", 5)
    assert local_repair(tmp_path / "damaged", tmp_path / "repaired", **_sizes(version)).exit == 3
    lay_out(tmp_path / "repaired", tmp_path / "repaired" / "commitlog", tmp_path / "built")
    shutil.copytree(tmp_path / "repaired" / "commitlog", tmp_path / "bare" / "commitlog")
    found = {}
    with RealStores(version, tmp_path / "real") as real:
        complete(real, tmp_path / "own", CONF.sizes)
        shutil.rmtree(tmp_path / "own" / "commitlog")
        shutil.copytree(tmp_path / "repaired" / "commitlog", tmp_path / "own" / "commitlog")
        for name in ("own", "built", "bare"):
            store = tmp_path / name
            said, given = _started(real, store, version, tmp_path)
            real.leave(store)
            missing = [put.queue_offset for put in puts if put.queue_offset != 5 and put.offset not in given]
            told = [(loss["kind"], loss["count"]) for loss in (*said["losses"], *said["warnings"])]
            found[name] = (missing, said["exit"], told)
            assert said["dispatch"]["hidden_records"] == len(missing)
            assert ("each of its records has a unit" in said["losses"][0]["text"]) == (not missing)
    assert found == {
        # The broker put 8 at position 6, and left 6 out.
        "own": ([6], 4, [("records-hidden", 1)]),
        "built": ([8], 4, [("records-hidden", 1)]),
        # A broker that makes the queue anew puts 8 at position 5.
        "bare": ([], 4, [("queue-short", 1)]),
    }


@pytest.mark.parametrize("version", LINES)
def test_a_record_at_a_lower_offset(version: str, tmp_path: Path) -> None:
    """A broker that makes the queue anew gives record 8 at position 5, and the queue ends where the log does. A group that has
    had 5 and 6 before misses it. Whoever finds the broker's files at the next start, misses no more."""
    store, repaired = tmp_path / "store", tmp_path / "repaired"
    with LogWriter(tmp_path / "damaged" / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=offset, body=bytes(150))) for offset in (*range(6), 8, 6, 7, 8, 9, 10)]
    spoil.bad_magic(tmp_path / "damaged", 5)
    assert local_repair(tmp_path / "damaged", repaired, **_sizes(version)).exit == 3
    shutil.copytree(repaired / "commitlog", store / "commitlog")
    with RealStores(version, tmp_path / "real") as real:
        said, given = _started(real, store, version, tmp_path)
        real.close(store)
        again = predict(store, version, CONF, tmp_path)
        # 4.9 makes the units from there on anew, as they were. 5.x leaves out the first of them: the others move by one.
        overwrite(store / "consumequeue/TopicA/0", 4 * 20, bytes(20))
        anew, given_anew = _started(real, store, version, tmp_path)
        real.leave(store)
    assert given == [put.offset for put in (*puts[:5], *puts[6:])]
    assert given[5] == puts[6].offset
    assert (said["exit"], [(loss["kind"], loss["count"]) for loss in said["losses"]]) == (4, [("records-moved", 1)])
    assert isinstance(again, dict), again
    assert (again["losses"], again["exit"]) == ([], 0)
    told = {loss["kind"]: loss["count"] for loss in anew["losses"]}
    if version.startswith("4.9"):
        assert (given_anew, told) == (given, {})
    else:
        # 5.5 gives the last one twice: its old unit stands behind the new ones.
        assert (list(dict.fromkeys(given_anew)), told) == (given[:4] + given[5:], {"records-hidden": 1, "records-moved": 6})


@pytest.mark.parametrize("version", LINES)
def test_a_record_at_a_lower_offset_that_lies_elsewhere(version: str, tmp_path: Path) -> None:
    """It is counted once: its unit leads to other bytes, and some brokers cut it off at once."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=offset)) for offset in (*range(5), 8)]
    overwrite(store / "commitlog", puts[-1].offset + 28, (1 << 20).to_bytes(8, "big"))
    with RealStores(version, tmp_path / "real") as real:
        said, given = _started(real, store, version, tmp_path)
        real.leave(store)
    assert given[:5] == [put.offset for put in puts[:5]]
    assert puts[-1].offset not in given
    assert said["queues"][0]["moved"] == 0
    assert "records-moved" not in {loss["kind"] for loss in said["losses"]}


@pytest.mark.parametrize("version", LINES)
def test_a_topic_that_a_broker_made_again(version: str, tmp_path: Path) -> None:
    """Its own files begin at the later record with offset 0. All of them are served, and preflight names no command for that.
    Of what else is missing it says what it says of any other store."""
    store = tmp_path / "store"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=number, properties={"KEYS": "k"})) for number in (8, 9, *range(9))]
    log = tmp_path / "log"
    with LogWriter(log / "commitlog", 1 << 14) as writer:
        # The broker knows of the topic what it has been told since it was made again.
        for put in puts:
            topic = "TopicA" if put in puts[2:] else "TopicB"
            writer.append(Message(topic, queue_offset=put.queue_offset, properties={"KEYS": "k"}))
    with RealStores(version, tmp_path / "real") as real:
        complete(real, log, CONF.sizes)
        for name in ("consumequeue/TopicA", "index", "checkpoint"):
            shutil.copytree(log / name, store / name) if (log / name).is_dir() else shutil.copy(log / name, store / name)
        for without_index in (False, True):
            if without_index:
                shutil.rmtree(store / "index")
            said, given = _started(real, store, version, tmp_path)
            real.close(store)
            (warned,) = said["warnings"]
            assert (warned["kind"], warned["count"], warned["advice"], warned["commands"]) == ("earlier-lives", 2, [], [])
            assert [loss["kind"] for loss in said["losses"]] == (["index-items-missing"] if without_index else [])
            assert all("rmq-reindex verify" not in command for loss in said["losses"] for command in loss["commands"])
            assert given == [put.offset for put in puts[2:]]


@pytest.mark.parametrize("version", LINES)
def test_a_queue_that_began_again_above_zero(version: str, tmp_path: Path) -> None:
    """A build puts the queue in order, names what it drops and ends with 0. No consumer gets that, and preflight says so."""
    with LogWriter(tmp_path / "log" / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(queue_offset=offset)) for offset in (*range(9), *range(3, 7))]
    built, store = local_build(tmp_path / "log", tmp_path / "out", **_sizes(version)), tmp_path / "store"
    assert built.exit == 0
    assert [text for _, text, _ in built.events()] == [
        "queue TopicA/0: begun again below its end, older units from there on dropped: offset 3, units 6"
    ]
    lay_out(tmp_path / "out", tmp_path / "log" / "commitlog", store)
    with RealStores(version, tmp_path / "real") as real:
        said, given = _started(real, store, version, tmp_path)
        real.leave(store)
    assert given == [put.offset for put in (*puts[:3], *puts[9:])]
    assert local_verify(tmp_path / "out", commitlogs=(str(tmp_path / "log" / "commitlog"),), **_sizes(version)).exit == 0
    assert (said["exit"], [(loss["kind"], loss["count"]) for loss in said["losses"]]) == (4, [("records-hidden", 6)])


@pytest.mark.parametrize("version", LINES)
def test_a_broker_gives_offsets_a_second_time(version: str, tmp_path: Path) -> None:
    """Where a ConsumeQueue has lost its end, and another goes up to the end of the log: nothing is dispatched again."""
    conf = Conf(Sizes(1 << 16, 400, 50, 400))
    log, store = tmp_path / "log", tmp_path / "store"
    with LogWriter(log / "commitlog", conf.sizes.segment) as writer:
        for queue, offset in (*((0, number) for number in range(10)), (1, 0)):
            writer.append(Message(queue_id=queue, queue_offset=offset))
    assert local_build(log, tmp_path / "out", **_sizes(version)).exit == 0
    lay_out(tmp_path / "out", log / "commitlog", store)
    overwrite(store / "consumequeue/TopicA/0", 7 * 20, bytes(3 * 20))
    with RealStores(version, tmp_path / "real") as real:
        assert real.start(store, conf).loads
        puts = real.put(store, 1, 12, [("TopicA", 0)])
        real.close(store)
    again = [put.queue_offset for put in puts if put.topic == "TopicA" and put.sysflag & TRANSACTION_MASK in (0, COMMIT)]
    assert again == list(range(7, 7 + len(again)))
    assert len(again) > 3
    built = local_build(store, tmp_path / "again", **_sizes(version))
    assert (built.exit, [text for _, text, _ in built.events()]) == (
        0, ["queue TopicA/0: begun again below its end, older units from there on dropped: offset 7, units 3"]
    )  # fmt: skip
