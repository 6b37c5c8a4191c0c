"""Light queues and batch queues of stores that real stores start: what consumers see of them is what preflight says."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.preflight.bases import complete
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.tools.batch_log import SIZES as BATCH_SIZES, random_batch_log, topics_json
from tests.tools.log_writer import LogWriter, overwrite
from tests.tools.make_log import Message
from tests.tools.spoil import record_offsets

SEGMENT = 1 << 14
RECORDS = 900
SMALL = Sizes(SEGMENT, 400, 50, 400)
LIGHT = Conf(SMALL, {"enableLmq": "true", "enableMultiDispatch": "true"})
BATCH = Conf(SMALL, {"mapperFileSizeBatchConsumeQueue": str(BATCH_SIZES["batch_cq_file_size"])})
Deed = Callable[[Path], object]


def write_light(folder: Path) -> Counter[str]:
    """A log with three light queues, two of which most records name; returns how many units each has."""
    units = Counter[str]()
    with LogWriter(folder, SEGMENT) as writer:
        for number in range(RECORDS):
            names = ["%LMQ%a"] * (number % 3 > 0) + ["%LMQ%b"] + ["%LMQ%c"] * (number % 50 == 49)
            properties = {
                "KEYS": f"k{number}",
                "INNER_MULTI_DISPATCH": ",".join(names),
                "INNER_MULTI_QUEUE_OFFSET": ",".join(str(units[name]) for name in names),
            }
            writer.append(Message(topic="T", queue_id=number % 2, properties=properties, body=bytes(60)))
            units.update(names)
    return units


def gone(place: str) -> Deed:
    return lambda store: shutil.rmtree(store / place)


def crashed(store: Path) -> None:
    (store / "abort").touch()


def log_cut(store: Path) -> None:
    """Noise in the middle of the segment before the last."""
    path = sorted((store / "commitlog").iterdir())[-2]
    data = bytearray(path.read_bytes())
    data[SEGMENT // 2 : SEGMENT // 2 + 300] = b"\x07" * 300
    path.write_bytes(data)


def moved(store: Path) -> None:
    """A record says that it lies far behind the log's end: units behind its own are of records that seem to have units."""
    offset, _ = record_offsets(store)[-20]
    overwrite(store / "commitlog", offset + 28, (offset + (1 << 40)).to_bytes(8, "big"))


def expired(store: Path) -> None:
    """The two oldest segments."""
    for path in sorted((store / "commitlog").iterdir())[:2]:
        path.unlink()


def last_units_gone(folder: str) -> Deed:
    """The last file of each queue was never written."""

    def remove(store: Path) -> None:
        for queue in (store / folder).glob("*/*"):
            max(queue.iterdir()).unlink()

    return remove


def wrong(real: RealStores, base: Path, conf: Conf, deeds: tuple[Deed, ...], store: Path) -> list[str]:
    """What does not hold of min offset, max offset and hidden messages of each queue of a spoilt copy, ``store``."""
    shutil.copytree(base, store)
    for deed in deeds:
        deed(store)
    said = predict(store, real.release, conf, store.parent)
    told = real.start(store, conf)
    if told.loads:
        real.leave(store)
    shutil.rmtree(store, ignore_errors=True)
    assert isinstance(said, dict), said
    if not told.loads or not said["loads"]:
        return [] if told.loads == said["loads"] else [f"loads: {told.reason or told.loads}, said {said['refusals']}"]
    assert told.queues is not None
    found = []
    predicted = {(queue["topic"], queue["queue"]): queue for queue in said["queues"]}
    for name in sorted(told.queues.keys() | predicted.keys()):
        queue, served = predicted.get(name), told.queues.get(name)
        ends = (served.min_offset, served.max_offset) if served else (0, 0)
        if (queue["min_offset"], queue["max_offset"]) != ends if queue else ends != (0, 0):
            found.append(f"{name}: {ends}, said {queue}")
        elif served and queue and queue["hidden"] == 0 and name[0].startswith("%LMQ%"):
            # A unit behind them that leads nowhere is no message.
            in_log = served.served[: max(0, queue["log_max"] - served.min_offset)]
            if -1 in in_log:
                found.append(f"{name}: {in_log.count(-1)} are not served, said {queue}")
    return found


LIGHT_DEEDS: dict[str, tuple[Deed, ...]] = {
    "whole": (),
    "crashed": (crashed,),
    "bare": (gone("consumequeue"),),
    "bare, crashed": (gone("consumequeue"), crashed),
    "one gone": (gone("consumequeue/%LMQ%a"),),
    "all light ones gone": (gone("consumequeue/%LMQ%a"), gone("consumequeue/%LMQ%b"), gone("consumequeue/%LMQ%c"), crashed),
    "short": (last_units_gone("consumequeue"),),
    "short, crashed": (last_units_gone("consumequeue"), crashed),
    "cut": (log_cut,),
    "cut, crashed": (log_cut, crashed),
    "moved": (moved,),
    "moved, crashed": (moved, crashed),
    "moved, bare, crashed": (moved, gone("consumequeue"), crashed),
}


@pytest.mark.parametrize("version", ["4.9.8", pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def test_light_queues(version: str, tmp_path: Path) -> None:
    base = tmp_path / "base"
    units = write_light(base / "commitlog")
    assert len(list((base / "commitlog").iterdir())) > 10
    with RealStores(version, tmp_path) as real:
        complete(real, base, SMALL, LIGHT.more)
        found = {name: wrong(real, base, LIGHT, LIGHT_DEEDS[name], tmp_path / str(n)) for n, name in enumerate(LIGHT_DEEDS)}
    assert {name: lines for name, lines in found.items() if lines} == {}
    said = predict(base, version, LIGHT, tmp_path)
    assert isinstance(said, dict), said
    assert {q["topic"]: q["log_max"] for q in said["queues"] if q["topic"] in units} == dict(units)
    assert (said["losses"], said["dispatch"]["hidden_records"]) == ([], 0)
    for deed in LIGHT_DEEDS["moved, bare, crashed"]:
        deed(base)
    said = predict(base, version, LIGHT, tmp_path)
    assert isinstance(said, dict), said
    assert {loss["kind"]: loss["count"] for loss in said["losses"]}["records-misplaced"] == 1, "whatever queues it names"


BATCH_DEEDS: dict[str, tuple[Deed, ...]] = {
    "whole": (),
    "crashed": (crashed,),
    "bare": (gone("batchconsumequeue"),),
    "bare, crashed": (gone("batchconsumequeue"), gone("consumequeue"), crashed),
    "one gone": (gone("batchconsumequeue/BatchA/1"),),
    "short": (last_units_gone("batchconsumequeue"),),
    "short, crashed": (last_units_gone("batchconsumequeue"), crashed),
    "cut": (log_cut,),
    "cut, crashed": (log_cut, crashed),
    "first segments gone": (expired,),
    "topics forgotten": (gone("config"),),
}


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def test_batch_queues(version: str, seed: int, tmp_path: Path) -> None:
    base = tmp_path / "base"
    random_batch_log(base / "commitlog", seed, odd=False, records=RECORDS)
    (base / "config").mkdir()
    topics_json(base / "config" / "topics.json")
    with RealStores(version, tmp_path) as real:
        complete(real, base, SMALL, BATCH.more)
        assert list((base / "batchconsumequeue").iterdir())
        found = {name: wrong(real, base, BATCH, BATCH_DEEDS[name], tmp_path / str(n)) for n, name in enumerate(BATCH_DEEDS)}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(("version", "deeds"), [("4.9.8", (crashed,)), ("5.5.1", ())])
def test_a_light_queue_offset_that_is_no_number(version: str, deeds: tuple[Deed, ...], tmp_path: Path) -> None:
    """As a broker of 5.x writes it for a queue without the prefix: the start ends with it."""
    properties = {"INNER_MULTI_DISPATCH": "plain,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": ",0"}
    with LogWriter(tmp_path / "base" / "commitlog", SEGMENT) as writer:
        writer.append(Message(topic="T"))
        at = writer.append(Message(topic="T", properties=properties)).offset
    with RealStores(version, tmp_path) as real:
        assert wrong(real, tmp_path / "base", LIGHT, deeds, tmp_path / "bad") == []
        assert wrong(real, tmp_path / "base", Conf(SMALL), deeds, tmp_path / "off") == []
    said = predict(tmp_path / "base", version, LIGHT, tmp_path)
    assert isinstance(said, dict), said
    assert [refusal["kind"] for refusal in said["refusals"]] == ["light-queue-offset"]
    assert f"record at offset {at:,} " in said["losses"][0]["text"]
