"""A log with fillers of a repair gives the queues and the index that a salvage of the damaged log gave."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.inspecting.segment import segment
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.storage_format.errors import NoListener
from rocketmq_reindex.storage_format.repair import Demands, fillers, lost_pieces
from tests.golden.stores import read_files
from tests.preflight.disk import read_disk
from tests.preflight.log_walk import Item
from tests.tools.compare import SMALL, project_settings
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message

SEGMENT = 1 << 12
FILLERS = "of the log are fillers of a repair"


def write_log(folder: Path, seed: int) -> list[Put]:
    """Four queues, whose offsets go on, jump, are repeated or begin anew."""
    rng = random.Random(seed)
    offsets = [0] * 4
    with LogWriter(folder, SEGMENT) as writer:
        for number in range(300):
            queue = rng.randrange(4)
            offsets[queue] += rng.choice((0, 0, 0, 0, 0, 0, 0, 3, -2)) if offsets[queue] > 2 else 0
            message = Message(queue_id=queue, queue_offset=offsets[queue], body=bytes(rng.randrange(80)))
            writer.append(Message(**{**vars(message), "properties": {"KEYS": f"k{number}"}}))
            offsets[queue] = 0 if rng.random() < 0.01 else offsets[queue] + 1
        return writer.puts


def lose(puts: list[Put], damaged: Path, filled: Path, seed: int) -> list[tuple[int, int]]:
    """Damage one log, and put fillers into the other: the same stretches of records, and one whole segment."""
    rng, lost = random.Random(seed), list[tuple[int, int]]()
    whole = (puts[-1].offset // SEGMENT - rng.randrange(1, 4)) * SEGMENT
    at = rng.randrange(10)
    while at < len(puts) - 10:
        some = puts[at : at + rng.choice((1, 2, 3, 6, 12))]
        low, start = some[0].offset, some[0].offset // SEGMENT * SEGMENT
        mine = [put for put in some if put.offset < start + SEGMENT]
        high = mine[-1].offset + mine[-1].size
        if len(mine) < len(some):
            high = start + SEGMENT
        at += len(some) + rng.randrange(1, 25)
        if start != whole:
            lost.append((low, high))
    for low, high in [*lost, (whole, whole + SEGMENT)]:
        start = low // SEGMENT * SEGMENT
        pieces = lost_pieces(low, high, (start, start + SEGMENT), puts[0].message.store_timestamp, Demands())
        assert pieces
        with (filled / f"{start:020d}").open("r+b") as file:
            for piece in pieces:
                file.seek(piece.low - start)
                file.write(b"".join(piece.made()).ljust(piece.size, b"\0"))
        with (damaged / f"{start:020d}").open("r+b") as file:
            file.seek(low - start)
            file.write(b"\xff" * (high - low))
    (damaged / f"{whole:020d}").unlink()
    return [*lost, (whole, whole + SEGMENT)]


def build(store: Path, out: Path, size: int, **more: Any) -> Any:
    settings = project_settings({**SMALL, "on_damage": "salvage", **more})
    return local_build(store, out, InlineEngine(3, 2), range_size=size, **settings)


def derived(out: Path) -> tuple[dict[str, bytes], list[Item]]:
    """The ConsumeQueue files, and the items in their order: a filler may be what makes a broker begin an IndexFile."""
    queues = {name: data for name, data in read_files(out).items() if name.startswith("consumequeue/")}
    items = read_disk(out, int(SMALL["hash_slots"])).items
    return queues, [item for name in sorted(items) for item in items[name]]


@pytest.mark.parametrize("size", [0, 700])
def test_queues_are_decided_alike(size: int, seed: int, tmp_path: Path) -> None:
    damaged, filled = tmp_path / "damaged", tmp_path / "filled"
    puts = write_log(damaged / "commitlog", seed)
    write_log(filled / "commitlog", seed)
    lost = lose(puts, damaged / "commitlog", filled / "commitlog", seed)
    before, after = build(damaged, tmp_path / "before", size), build(filled, tmp_path / "after", size)
    assert (before.error, after.error) == (None, None)
    assert after.decisions == before.decisions
    assert derived(tmp_path / "after") == derived(tmp_path / "before")
    told = f"{sum(high - low for low, high in lost):,} bytes {FILLERS}: what was there is lost"
    assert [text for text in after.warnings if FILLERS in text] == [told]
    assert not any(FILLERS in text for text in before.warnings)
    assert all(entry["reason"].startswith("queue offset out of line") for entry in after.damage)
    # What the build made of it is in order to a verify, which knows the fillers, too.
    found = local_verify(
        tmp_path / "after", InlineEngine(3, 2), commitlogs=(str(filled / "commitlog"),), range_size=size,
        **{name: value for name, value in project_settings(SMALL).items() if name in SIZES},
    )  # fmt: skip
    assert (found.error, kinds(found).keys() - {"log-out-of-line"}) == (None, set())
    assert told in found.notes
    tables = str(tmp_path / "tables")
    for _ in range(2):
        again = build(filled, tmp_path / "again", size, tables=tables, incremental=True, overwrite=True)
        assert again.error is None
        assert (again.decisions, derived(tmp_path / "again")) == (after.decisions, derived(tmp_path / "after"))


def test_what_a_filler_is_said_to_be(tmp_path: Path) -> None:
    """It is no message to query, and its topic is none of the store."""
    with LogWriter(tmp_path / "commitlog", 1 << 14) as writer:
        puts = [writer.append(Message(body=bytes(50), properties={"KEYS": f"k{number}"})) for number in range(10)]
    path = tmp_path / "commitlog" / f"{0:020d}"
    low, high = puts[3].offset, puts[4].offset + puts[4].size
    data = path.read_bytes()
    path.write_bytes(data[:low] + b"".join(fillers(low, high - low, 5, Demands())) + data[high:])
    warned: list[str] = []
    with Search(str(tmp_path), [str(tmp_path / "commitlog")], Notes(warned.append), scan=True) as search:
        assert [message.phy_offset for message in search.by_phy_offset(puts[2].offset)] == [puts[2].offset]
        assert list(search.by_phy_offset(low)) == []
        assert warned == [f"offset {low}: stands for lost bytes: a repair put it there"]
        assert list(search.by_key("TopicA", "k3")) == []
        assert f"offset {low}, {high - low} bytes: a repair filled them" in warned[-1]
    told = segment(str(path), None, None, (), NoListener()).summary
    assert (told["records"], told["topicCount"], told["lostBytes"]) == (8, 1, high - low)
    assert (told["lost"], told["kinds"]) == ([{"offset": low, "length": high - low}], {"plain": 8})
    assert len(list(segment(str(path), None, None, (), NoListener()).rows)) == 8
