"""``query`` and the real store answer alike: every key, every queue offset and every store time of the golden stores.

One JVM (``tests/oracle``: Ask) opens a copy of each store and is asked for queryMessage, getMessage and getOffsetInQueueByTime.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from rocketmq_reindex.jobs.querying.scan import scan_queue
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.queue import StoreQueue
from rocketmq_reindex.storage_format.errors import NoListener
from tests.golden.stores import NAMES, GoldenStore
from tests.oracle.scenarios import FOLDER, java_home
from tests.reference import java
from tests.reference.log import read_segments, walk
from tests.reference.records import Record
from tests.reference.settings import Settings
from tests.tools.browsing import Pages

BATCH_STORES = ("batch-5.3", "batch-odd-5.3")
STORES = (*NAMES, *BATCH_STORES)
NOWHERE = ("no such key", "Aa", "BB", "")


@dataclass(frozen=True)
class Asked:
    """A store, its good records by place, and what the real store answered."""

    path: Path
    records: dict[int, Record]
    keys: dict[tuple[str, str], list[int]]
    queues: dict[tuple[str, int], tuple[int, list[int], list[tuple[int, int]]]]

    def search(self, notes: Notes) -> Search:
        return Search(str(self.path / "rebuilt"), (str(self.path / "commitlog"),), notes)


def _sizes(path: Path) -> list[int]:
    opened = json.loads((path / "scenario.json").read_text())["store"]
    segment = next((path / "commitlog").iterdir()).stat().st_size
    return [segment, opened["cqSize"], opened.get("batchCqSize", 300_000 * 46), opened["slots"], opened["indexNum"]]


def _records(path: Path) -> dict[int, Record]:
    segments, size = read_segments([path / "commitlog"], None)
    return {record.offset: record for record in walk(segments, size, Settings()).records}


def _keys(records: dict[int, Record]) -> list[tuple[str, str]]:
    """(topic, key) of all records, and some that none has."""
    found = {(record.topic, key) for record in records.values() for key in record.properties.get("KEYS", "").split(" ") if key}
    found |= {(record.topic, record.properties["UNIQ_KEY"]) for record in records.values() if "UNIQ_KEY" in record.properties}
    found |= {(record.topic, key) for record in records.values() for key in NOWHERE if key}
    return sorted((java.python_text(topic), java.python_text(key)) for topic, key in found)


def _queues(path: Path, batch: bool) -> list[tuple[str, int]]:
    kinds = ["consumequeue", "batchconsumequeue"] if batch else ["consumequeue"]
    folders = [folder for kind in kinds for folder in (path / "rebuilt" / kind).glob("*/*")]
    return sorted((folder.parent.name, int(folder.name)) for folder in folders)


def _hex(text: str) -> str:
    return text.encode().hex()


@pytest.fixture(scope="module")
def asked(golden_store: Callable[[str], GoldenStore], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Asked]:
    folder = tmp_path_factory.mktemp("asked")
    lines, found = [], {}
    for name in STORES:
        path, copy = golden_store(name).path, folder / name
        shutil.copytree(path / "rebuilt", copy)
        shutil.copytree(path / "commitlog", copy / "commitlog")
        topics = [str(path / "config" / "topics.json")] if name in BATCH_STORES else []
        lines.append(" ".join(["store", str(copy), *map(str, _sizes(path)), *topics]))
        records = _records(path)
        # Odd batch queues jump by so many offsets that nobody can ask for each.
        queues = _queues(path, name == "batch-5.3") if name != "batch-odd-5.3" else []
        found[name] = Asked(path, records, {key: [] for key in _keys(records)}, {queue: (0, [], []) for queue in queues})
        lines += [f"key {_hex(topic)} {_hex(key)}" for topic, key in found[name].keys]
        lines += [f"queue {_hex(topic)} {queue}" for topic, queue in found[name].queues]
    (folder / "questions").write_text("\n".join(lines))
    done = subprocess.run(
        [FOLDER / "run", "5.5.0", "Ask", folder / "questions"], env=java_home(), capture_output=True, text=True, timeout=900,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines) - len(STORES)
    answer = iter(answers)
    for one in found.values():
        for question in one.keys:
            one.keys[question] = next(answer)
        for queue in one.queues:
            first, places, times = next(answer)
            one.queues[queue] = first, places, [(time, offset) for time, offset in times]
    shutil.rmtree(folder)
    return found


def _has(record: Record | None, topic: str, key: str) -> bool:
    return (
        record is not None and java.java_text(f"{topic}#{key}") in record.index_keys() and record.topic == java.java_text(topic)
    )


@pytest.mark.parametrize("name", STORES)
def test_keys(name: str, asked: dict[str, Asked], capsys: pytest.CaptureFixture[str]) -> None:
    """What queryMessage gives, less the messages of other keys with the same hash; and no other message has the key."""
    store, notes = asked[name], Notes()
    search = store.search(notes)
    wanted: dict[tuple[str, str], list[int]] = {}
    for place, record in store.records.items():
        for text in dict.fromkeys(record.index_keys()):
            topic = java.python_text(record.topic)
            wanted.setdefault((topic, java.python_text(text)[len(topic) + 1 :]), []).append(place)
    collisions = 0
    for (topic, key), places in store.keys.items():
        mine = [message.phy_offset for message in search.by_key(topic, key)]
        theirs = sorted({place for place in places if _has(store.records.get(place), topic, key)})
        collisions += len(set(places)) - len(theirs)
        assert mine == theirs == sorted(wanted.get((topic, key), [])), (topic, key)
    assert (collisions > 0) == (name == "wide-keys")
    assert capsys.readouterr().err == ""
    assert not notes.lost


ORDERLY = [name for name in STORES if name != "batch-odd-5.3"]


@pytest.mark.parametrize("name", ORDERLY)
def test_offsets(name: str, asked: dict[str, Asked]) -> None:
    store = asked[name]
    search = store.search(Notes())
    total = 0
    for (topic, number), (first, places, _) in store.queues.items():
        queue = search.queue(topic, number)
        for offset, place in enumerate(places, first):
            assert [served.message.phy_offset for served in search.in_queue(queue, offset)] == [place], (topic, number, offset)
        for outside in (first - 1, first + len(places), first + len(places) + 1000):
            assert outside < 0 or list(search.in_queue(queue, outside)) == []
        assert queue.span() == ((first, first + len(places)) if places else None)
        total += len(places)
        queue.close()
    assert total > 500
    for (topic, number), (first, places, _) in list(store.queues.items())[:4]:
        found = scan_queue(search.log, topic, number, first, None, len(places), Notes(), NoListener())
        assert [served.message.phy_offset for served in found] == sorted(set(places))


@pytest.mark.parametrize("name", ORDERLY)
def test_times(name: str, asked: dict[str, Asked]) -> None:
    """Where the times of a queue rise, the offset that getOffsetInQueueByTime gives; with every unit read, the first in any."""
    store = asked[name]
    search = store.search(Notes())
    risen = 0
    for (topic, number), (first, places, times) in store.queues.items():
        queue = search.queue(topic, number)
        stored = [store.records[place].store_timestamp for place in places]
        for time, offset in times if stored == sorted(stored) else []:
            exact = first + bisect_left(stored, time)
            assert _offset(queue, time, False) == exact, (topic, number, time)
            # Of a batch queue the broker gives the last offset before, between two batches.
            assert queue.batch or offset == exact
            risen += 1
        for time, _ in times[:: max(1, len(times) // 3)]:
            first_of_all = next((k for k, at in enumerate(stored, first) if at >= time), first + len(stored))
            assert _offset(queue, time, True) == first_of_all
        queue.close()
    assert (risen == 0) == (name == "wide-keys")


PAGED = 120
"""units of a queue, and questions for keys, that are looked up in the pages of a store"""


@pytest.mark.parametrize("name", ORDERLY)
def test_pages(name: str, asked: dict[str, Asked]) -> None:
    """The pages of ``browse``: getMessage's offsets unit by unit, getOffsetInQueueByTime's, queryMessage's."""
    store = asked[name]
    pages = Pages(f"s={store.path / 'rebuilt'}", commitlogs=[str(store.path / "commitlog")])
    for (topic, number), (first, places, times) in list(store.queues.items())[:4]:
        question: dict[str, Any] = {"store": "s", "topic": topic, "queue": number}
        seen, at = dict[int, int](), cast("int | None", first)
        while at is not None and len(seen) < PAGED:
            page = pages.json("queue", **question, from_=at)
            units = [row for row in page["units"] if row["what"] != "gap"]
            seen |= {offset: row["physicalOffset"] for row in units for offset in range(row["offset"], row["last"] + 1)}
            at = page["next"]
        assert [seen[offset] for offset in sorted(seen)] == places[: len(seen)], (topic, number)
        assert (page["first"], page["end"]) == ((first, first + len(places)) if places else (None, None))
        stored = [store.records[place].store_timestamp for place in places]
        rises = stored == sorted(stored) and not any(unit["offset"] < unit["last"] for unit in units)
        for time, offset in times[:: max(1, len(times) // 3)] if rises else []:
            found = pages.json("queue", **question, time=time)["units"]
            assert (found[0]["offset"] if found else first + len(places)) == offset
        for offset, place in list(seen.items())[:: max(1, len(seen) // 3)]:
            told = pages.json("message", **question, offset=offset)["message"]
            record = store.records[place]
            assert (told["physicalOffset"], told["topic"], told["size"]) == (place, java.python_text(record.topic), record.size)
    questions = list(store.keys.items())
    for (topic, key), places in questions[:: max(1, len(questions) // PAGED)]:
        (result,) = pages.json("search", store="s", topic=topic, key=key)["results"]
        mine = sorted(row["physicalOffset"] for row in result["messages"])
        assert mine == sorted({place for place in places if _has(store.records.get(place), topic, key)}), (topic, key)


def _offset(queue: StoreQueue, time: int, every: bool) -> int:
    position = queue.position_at_time(time, every)
    if position < queue.units.end:
        return queue.units.at(position).base
    span = queue.span()
    return span[1] if span else 0
