"""``query --tag``: by tag items where the IndexFiles have them, by the log elsewhere, and exactly in any mixture of both."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.api.looking import query
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.querying import search
from rocketmq_reindex.jobs.querying.scan import scan_keys
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store import tag_items
from rocketmq_reindex.jobs.store.contents import StoreLog
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import NoListener
from rocketmq_reindex.storage_format.index.layout import HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from tests.reference import java
from tests.reference.index_file import IndexService
from tests.reference.log import read_segments, walk
from tests.reference.records import ROLLBACK, Record
from tests.reference.settings import Settings
from tests.tools.encode import COMMIT, EPOCH, PREPARED, Message
from tests.tools.log_writer import LogWriter, Put
from tests.tools.seeds import cases
from tests.unit.jobs.querying.test_query import build

SEGMENT = 1 << 12
SLOTS, ITEMS = 7, 40


def write(store: Path, messages: Sequence[Message]) -> list[Put]:
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        return [writer.append(message) for message in messages]


def records_of(store: Path) -> list[Record]:
    return list(walk(*read_segments([store / "commitlog"], None), Settings()).records)


def index(store: Path, new: Callable[[Record], bool], items: int = ITEMS) -> None:
    """The index that brokers leave, of which one from 5.4 on indexed the records that ``new`` says."""
    service = IndexService(SLOTS, items)
    for record in records_of(store):
        given = record.properties
        texts = [given.get("UNIQ_KEY", ""), *given.get("KEYS", "").split(" ")]
        texts += [f"T#{given['TAGS']}"] if "TAGS" in given and new(record) else []
        for text in filter(None, [] if record.transaction == ROLLBACK else texts):
            service._last(record).put(f"{record.topic}#{text}", record.offset, record.store_timestamp)
    shutil.rmtree(store / "index", ignore_errors=True)
    for path, content in service.contents("5.3").items():
        (store / path).parent.mkdir(exist_ok=True)
        (store / path).write_bytes(content)


def tagged(count: int, rng: random.Random, bare: float = 0.2) -> list[Message]:
    """Messages of two topics with one of three tags, some without tags, keys or both, and transactions among them.

    The last one has a tag: of a last IndexFile with a few items of others nobody can tell who wrote it.
    """
    messages = []
    for k in range(count):
        properties = {"UNIQ_KEY": f"u{k}"} if rng.random() > bare else {}
        properties |= {"KEYS": rng.choice(("all", "all T#a", "T#b"))} if rng.random() < 0.3 else {}
        properties |= {"TAGS": rng.choice("abc")} if rng.random() > bare else {}
        kind = rng.choice((0, 0, 0, 0, PREPARED, COMMIT, ROLLBACK))
        messages.append(Message(topic=rng.choice("TU"), properties=properties, sysflag=kind, store_timestamp=EPOCH + 1000 * k))
    messages[-1].properties, messages[-1].sysflag = {"UNIQ_KEY": "last", "TAGS": "a"}, 0
    return messages


def truth(store: Path) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], list[int]] = {(topic, tag): [] for topic in "TU" for tag in "abcd"}
    for record in records_of(store):
        if record.transaction != ROLLBACK and "TAGS" in record.properties:
            found[java.python_text(record.topic), java.python_text(record.properties["TAGS"])].append(record.offset)
    return found


class Asked:
    """A store that is asked for tags: what was found, and what was said of the search."""

    def __init__(self, store: Path, scan: bool = False) -> None:
        self.said: list[str] = []
        self.warned: list[str] = []
        self._notes = Notes(self.warned.append, self.said.append)
        self._search = Search(str(store), (str(store / "commitlog"),), self._notes, scan=scan)

    def tag(self, topic: str, tag: str, most: int | None = None) -> list[int]:
        return [message.phy_offset for message in self._search.by_tag(topic, tag, count_max=most)]


def check(store: Path, scan: bool = False) -> str:
    """Every tag is found, whole and the newest two of it. Returns what was said of the way."""
    asked = Asked(store, scan)
    for (topic, tag), places in truth(store).items():
        assert asked.tag(topic, tag) == places, (topic, tag, asked.said)
        assert asked.tag(topic, tag, 2) == places[-2:]
    (said,) = set(asked.said)
    return said


def test_by_tag_items(seed: int, tmp_path: Path) -> None:
    write(tmp_path, tagged(150, random.Random(seed)))
    index(tmp_path, lambda _: True)
    count = len(list((tmp_path / "index").iterdir()))
    assert check(tmp_path).startswith(f"searched: the tag items of {count} of {count} IndexFiles")
    assert check(tmp_path, scan=True).startswith("searched: ")


def test_without_tag_items(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of 4.9 and 5.3, and without an index: all of the log is read, record by record or by a scan."""
    write(tmp_path, tagged(150, random.Random(seed)))
    index(tmp_path, lambda _: False)
    for most in (search.RECORDS_MAX, 3):
        monkeypatch.setattr(search, "RECORDS_MAX", most)
        assert check(tmp_path).endswith(" bytes of the log: the index has no tag items")
    shutil.rmtree(tmp_path / "index")
    assert check(tmp_path).endswith(" bytes of the log: the index has no tag items")


@pytest.mark.parametrize("items", [ITEMS, 5000])
def test_after_upgrades_and_downgrades(seed: int, items: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever indexed a part of the log, nothing is missed; an upgraded store reads the old part of the log alone."""
    rng = random.Random(seed)
    puts = write(tmp_path, tagged(240, rng))
    for spells in ((True, False), (False, True), (False, True, False), (True, False, True)):
        # Between two of the records that are looked at a file may hide what an older broker indexed: SAMPLES is small.
        places = [rng.randrange(20, 120), rng.randrange(160, 220)] if len(spells) > 2 else [rng.randrange(20, 220)]
        edges = [puts[place].offset for place in places]

        def is_new(record: Record, edges: list[int] = edges, spells: tuple[bool, ...] = spells) -> bool:
            return spells[sum(record.offset >= edge for edge in edges)]

        index(tmp_path, is_new, items)
        monkeypatch.setattr(search, "RECORDS_MAX", rng.choice((0, 7, 4096)))
        said = check(tmp_path)
        if spells == (False, True):
            assert "the tag items of" in said
            read = int(said.split(", and ")[1].split()[0].replace(",", ""))
            assert read < 0.9 * puts[-1].offset or edges[0] > 0.8 * puts[-1].offset


def _from(edge: int, record: Record) -> bool:
    return record.offset >= edge


def test_a_file_ends_between_the_items_of_a_record(tmp_path: Path) -> None:
    """The tag item of a file's last record stands in the next file; the one who wrote it may be another broker."""
    messages = [
        Message(topic="T", properties={"UNIQ_KEY": f"u{k}", "KEYS": "x" if k % 4 else "x y", "TAGS": "abc"[k % 3]})
        for k in range(60)
    ]
    puts = write(tmp_path, messages)
    for edge in (0, puts[13].offset, puts[14].offset, puts[27].offset):
        for items in range(38, 44):
            index(tmp_path, functools.partial(_from, edge), items)
            assert "the tag items of" in check(tmp_path)


def test_what_is_not_dispatched_yet(seed: int, tmp_path: Path) -> None:
    """A crashed store: the index ends before the log does, and begins behind its start."""
    rng = random.Random(seed)
    puts = write(tmp_path, tagged(150, rng))
    index(tmp_path, lambda _: True)
    files = sorted((tmp_path / "index").iterdir())
    for gone in (files[-1], files[0], files[len(files) // 2]):
        content = gone.read_bytes()
        gone.unlink()
        assert check(tmp_path).startswith(f"searched: the tag items of {len(files) - 1} of {len(files) - 1} IndexFiles, and ")
        gone.write_bytes(content)
    assert puts


def test_what_a_build_leaves(seed: int, tmp_path: Path) -> None:
    """A build seals its last IndexFile, which says that it is full. One of 5.3 has no tag items."""
    write(tmp_path, tagged(100, random.Random(seed)))
    for version in ("5.5", "5.4", "5.3"):
        build(tmp_path, broker_version=version)
        said = check(tmp_path)
        assert ("the tag items of" in said) == (version != "5.3")
        shutil.rmtree(tmp_path / "index")
        shutil.rmtree(tmp_path / "consumequeue")


def test_records_without_items_and_tags(tmp_path: Path) -> None:
    """A store in which nobody tags: the index cannot say who wrote it, and the log is read."""
    write(tmp_path, [Message(topic="T", properties={"KEYS": "k"}) for _ in range(30)])
    index(tmp_path, lambda _: True)
    assert check(tmp_path).endswith("the index has no tag items")


def test_rare_tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first and last many records have no tags, nobody can tell: the log is read."""
    monkeypatch.setattr(tag_items, "RECORDS_MAX", 10)
    messages = [Message(topic="T", properties={"KEYS": "k"} | ({"TAGS": "a"} if k == 50 else {})) for k in range(100)]
    write(tmp_path, messages)
    index(tmp_path, lambda _: True)
    check(tmp_path)


def test_a_key_is_no_tag(tmp_path: Path) -> None:
    """Topic ``A`` with key ``T#x`` has the text, and so the item, of tag ``x``; ``Aa`` and ``BB`` have one hash."""
    messages = [
        Message(topic="A", properties={"UNIQ_KEY": "u0", "TAGS": "x"}),
        Message(topic="A", properties={"KEYS": "T#x", "TAGS": "y"}),
        Message(topic="A", properties={"UNIQ_KEY": "T#x"}),
        Message(topic="A", properties={"KEYS": "k", "TAGS": "Aa"}),
        Message(topic="A", properties={"KEYS": "k", "TAGS": "BB"}),
        Message(topic="A#T", properties={"KEYS": "x"}),
        Message(topic="A", properties={"KEYS": "x", "TAGS": "x y"}),
    ]
    at = [put.offset for put in write(tmp_path, messages)]
    index(tmp_path, lambda _: True)
    for scan in (False, True):
        asked = Asked(tmp_path, scan)
        assert asked.tag("A", "x") == at[:1]
        assert asked.tag("A", "Aa") == at[3:4]
        assert asked.tag("A", "BB") == at[4:5]
        assert asked.tag("A", "x y") == at[6:]
        assert asked.tag("A#T", "x") == asked.tag("A", "T#x") == []
        with Search(str(tmp_path), (str(tmp_path / "commitlog"),), Notes(), scan=scan) as search:
            assert [message.phy_offset for message in search.by_key("A", "T#x")] == at[1:3]
            assert [message.phy_offset for message in search.by_key("A", "T#Aa")] == []
            assert [message.phy_offset for message in search.by_key("A#T", "x")] == at[5:6]


def test_an_expired_log(seed: int, tmp_path: Path) -> None:
    write(tmp_path, tagged(200, random.Random(seed)))
    index(tmp_path, lambda record: record.offset >= 3 * SEGMENT, 5000)
    whole = truth(tmp_path)
    for number in range(2):
        (tmp_path / "commitlog" / f"{number * SEGMENT:020d}").unlink()
        asked = Asked(tmp_path)
        for (topic, tag), places in whole.items():
            assert asked.tag(topic, tag) == [place for place in places if place >= (number + 1) * SEGMENT]


def test_damage(seed: int, tmp_path: Path) -> None:
    """Zeros over some records: with or without tag items, every record that is left is found."""
    rng = random.Random(seed)
    puts = write(tmp_path, tagged(200, rng))
    index(tmp_path, lambda record: record.offset >= puts[100].offset)
    lost = set()
    for k in rng.sample(range(200), 8):
        path = tmp_path / "commitlog" / f"{puts[k].offset // SEGMENT * SEGMENT:020d}"
        data = bytearray(path.read_bytes())
        at = puts[k].offset % SEGMENT
        data[at : at + puts[k].size] = bytes(puts[k].size)
        path.write_bytes(data)
        lost.add(puts[k].offset)
    wanted: dict[tuple[str, str], list[int]] = defaultdict(list)
    for put in puts:
        message = put.message
        assert isinstance(message.properties, dict)
        if "TAGS" in message.properties and message.sysflag != ROLLBACK and put.offset not in lost:
            wanted[str(message.topic), message.properties["TAGS"]].append(put.offset)
    asked = Asked(tmp_path)
    for (topic, tag), places in wanted.items():
        assert asked.tag(topic, tag) == places


def test_spoilt_index(seed: int, tmp_path: Path) -> None:
    """Random bytes in the IndexFiles: what is found is right, and the search comes to an end."""
    rng = random.Random(seed)
    write(tmp_path, tagged(100, rng))
    index(tmp_path, lambda _: True)
    whole = {path: path.read_bytes() for path in (tmp_path / "index").iterdir()}
    for _ in range(cases(15, 4)):
        for path, content in whole.items():
            spoilt = bytearray(content)
            for _ in range(rng.randrange(4)):
                at = rng.randrange(len(spoilt))
                spoilt[at : at + 4] = rng.choice((rng.randbytes(4), bytes([0, 0, 0, rng.randrange(60)])))[: len(spoilt) - at]
            path.write_bytes(spoilt)
        asked = Asked(tmp_path)
        for (topic, tag), places in truth(tmp_path).items():
            assert set(asked.tag(topic, tag)) <= set(places)


# -- the command ------------------------------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    puts = write(
        tmp_path,
        [Message(topic="T", properties={"KEYS": "k", "TAGS": "a"}, store_timestamp=EPOCH + 1000 * k) for k in range(9)],
    )
    index(tmp_path, lambda _: True)

    def ask(words: str, status: int = 0) -> tuple[list[int], str]:
        assert main(["query", str(tmp_path), "--topic", "T", "--tag", *words.split()]) == status
        told = capsys.readouterr()
        return [int(line.split()[0]) for line in told.out.splitlines()[2:]], told.err

    at = [put.offset for put in puts]
    assert ask("a") == (at, "searched: the tag items of 1 of 1 IndexFile\n")
    assert ask("a --max 2")[0] == at[-2:]
    assert ask(f"a --begin {EPOCH + 2000} --end {EPOCH + 4000}")[0] == at[2:5]
    assert ask(f"a --begin {EPOCH + 2000} --end {EPOCH + 4000} --max 2")[0] == at[3:5]
    assert ask("nobody") == ([], "searched: the tag items of 1 of 1 IndexFile\nnothing found\n")
    hint = "only consumers take || for several tags: ask for each of them by itself"
    told = f"warning: tag a||b: was searched for as one text: {hint}\n"
    assert ask("a||b")[1] == f"searched: the tag items of 1 of 1 IndexFile\n{told}nothing found\n"
    # Whether a message outside of the times has it is not known.
    assert told in ask(f"a||b --begin {EPOCH + 10**6}")[1]
    assert ask("a --scan")[0] == at
    found = query(tmp_path, topic="T", tag="a", max=2)
    assert [message.phy_offset for message in found] == at[-2:]
    assert (found.searched, found.warnings) == ("searched: the tag items of 1 of 1 IndexFile", ())
    assert (found.to_dict()["searched"], len(found.to_dict()["messages"])) == (found.searched, len(found))
    assert capsys.readouterr() == ("", "")


def test_an_item_that_points_at_a_rollback(tmp_path: Path) -> None:
    """A spoilt index: what no broker indexes is not found, by whatever way."""
    puts = write(tmp_path, [Message(topic="T", properties={"TAGS": "a"}, sysflag=kind) for kind in (ROLLBACK, 0, 0)])
    index(tmp_path, lambda _: True)
    (path,) = (tmp_path / "index").iterdir()
    spoilt = bytearray(path.read_bytes())
    first = HEADER_SIZE + SLOT_SIZE * SLOTS + ITEM_SIZE
    assert spoilt[first + 4 : first + 12] == puts[1].offset.to_bytes(8, "big")
    spoilt[first + 4 : first + 12] = puts[0].offset.to_bytes(8, "big")
    path.write_bytes(spoilt)
    for scan in (False, True):
        assert puts[0].offset not in Asked(tmp_path, scan).tag("T", "a")


@pytest.mark.parametrize(
    "words", ["--tag a", "--topic T --tag a --key k", "--topic T --tag a --queue 0 --offset 1", "--tag a --physical 0",
              "--topic T --tag a --id x"],
)  # fmt: skip
def test_usage(words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(tmp_path), *words.split()]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert "--tag" in told.err


def test_no_empty_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", str(tmp_path), "--topic", "T", "--tag", ""]) == 2
    assert "at least one character" in capsys.readouterr().err


def test_many_keys_in_many_topics_at_once(tmp_path: Path) -> None:
    """One pass finds each; what is held for a key and a topic is a few bytes."""
    rng = random.Random(7)
    topics, keys = ([f"{rng.getrandbits(64):016X}" for _ in range(count)] for count in (100, 250))
    puts = write(tmp_path, [Message(topic, 0, properties={"KEYS": f"{keys[k]} x"}) for k, topic in enumerate(topics)])

    def scan(some: list[str]) -> None:
        with contextlib.closing(StoreLog([str(tmp_path / "commitlog")], Notes.silent())) as log:
            found, met = scan_keys(log, some, Notes.silent(), NoListener())
        assert met == set(topics)
        assert [found[key] for key in some] == [{put.offset} for put in puts][: len(some)] + [set()] * (len(some) - len(puts))

    def held(some: list[str]) -> int:
        """How many bytes at most."""
        tracemalloc.start()
        try:
            scan(some)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # The first one loads what is compiled.
    scan(keys)
    few, many = held(keys[:1]), held(keys)
    assert many - few < 4 << 20
