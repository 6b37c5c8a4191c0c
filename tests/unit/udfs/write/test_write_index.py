"""IndexFiles written from staged blocks, against the broker's IndexService: bytes, names and seals."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rocketmq_reindex.jobs.building.full import WrittenFiles, name_index_files
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.index import file as ix
from rocketmq_reindex.storage_format.index.layout import plan_index_files
from rocketmq_reindex.storage_format.kernels.java_text import index_hash, java_hash
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.staging import StagingFolder
from rocketmq_reindex.udfs.write import index as write_index
from tests.reference.index_file import IndexService
from tests.reference.records import Record
from tests.tools.strategies import embedded
from tests.unit.storage_format.index.index_model import Dispatched, Range, cut, random_records, sum_up

SLOTS = 7


def stage_block(staging: StagingFolder, found: Range) -> None:
    """The block of one range as a scan leaves it: items, then the table of makers."""

    def hashed(key: str) -> int:
        data, start, end = embedded(f"T#{key}".encode())
        return index_hash(java_hash(data, start, end, 0))

    items = np.array([(place, time, hashed(key)) for place, time, key in found.items], dtype=ix.STAGED)
    makers = np.array(found.makers, dtype=ix.MAKER)
    found.summary.block = f"{staging.blocks}/{found.summary.number}"
    Path(found.summary.block).write_bytes(items.tobytes() + makers.tobytes())


def write(
    folder: Path, ranges: list[Range], items: int, version: str, seal: bool
) -> tuple[dict[str, bytes], list[dict[str, object]]]:
    """({relative path: bytes}, manifest entries) of the files as they come out of the writer's tasks, in any order."""
    staging = StagingFolder(str(folder))
    staging.make()
    for one in ranges:
        stage_block(staging, one)
    planned = plan_index_files([one.summary for one in ranges], items)
    plan = handover.write_plan(staging, "index", planned)
    writer = write_index.WriteIndex(staging, plan, SLOTS, items, version, seal)
    found = []
    for number in reversed(range(len(planned))):
        batch = pa.RecordBatch.from_arrays([pa.array([number])], ["id"])
        found += [write_index.IndexFileResult.from_json(t) for out in writer(iter([batch])) for t in out.column(0).to_pylist()]
    found.sort(key=lambda result: result.number)
    entries = name_index_files(staging, WrittenFiles(index=found), Leftovers())
    files = {f"index/{path.name}": path.read_bytes() for path in Path(staging.tree, "index").glob("*")}
    assert list(Path(staging.temporary).iterdir()) == []
    return files, entries


def broker(records: list[Dispatched], items: int, seal: bool, version: str) -> dict[str, bytes]:
    service = IndexService(SLOTS, items)
    for r in records:
        properties = {"KEYS": " ".join(r.keys)} if r.keys else {}
        service.build(Record(r.place, 100, 0, 0, 0, 0, r.time, 0, "T", properties, 0))
    if seal and service.files:
        service.files[-1].seal()
    return service.contents(version)


@pytest.mark.parametrize("chunk_items", [1 << 20, 1, 3])
def test_equals_the_brokers(tmp_path: Path, seed: int, chunk_items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_index, "CHUNK_ITEMS", chunk_items)
    rng = random.Random(seed)
    for n in range(12):
        records = random_records(rng, rng.randrange(40), rng.choice((0.0, 0.4, 1.0)))
        ranges = [sum_up(k, part) for k, part in enumerate(cut(rng, records, rng.randrange(1, 6)))]
        items, version, seal = rng.choice((2, 4, 9, 500)), rng.choice(("5.3", "4.9")), rng.random() < 0.5
        files, entries = write(tmp_path / str(n), ranges, items, version, seal)
        assert files == broker(records, items, seal, version)
        assert [entry["path"] for entry in entries] == sorted(files)
        for entry in entries:
            content = files[str(entry["path"])]
            used = int(str(entry["used"]))
            assert entry["size"] == len(content)
            assert not any(content[used:])
            assert ix.IndexHeader(**entry["header"]).to_bytes() == content[: ix.HEADER_SIZE]  # type: ignore[arg-type]


def test_the_digest_covers_all_but_the_place_of_item_0(tmp_path: Path, seed: int) -> None:
    records = random_records(random.Random(seed), 10, 0.0)
    files, entries = write(tmp_path, [sum_up(0, records)], 100, "5.3", False)
    ((path, content),) = files.items()
    start = ix.HEADER_SIZE + 4 * SLOTS
    used = int(str(entries[0]["used"]))
    parts = [content[:start], content[start + ix.ITEM_SIZE : used]]
    assert (entries[0]["path"], entries[0]["digest"]) == (path, new_digest(parts).digest().hex())


def test_two_files_of_one_record_get_names_in_order(tmp_path: Path) -> None:
    files, _ = write(tmp_path, [sum_up(0, [Dispatched(7, 1, tuple("abcdef"))])], 3, "5.3", False)
    assert sorted(files) == [f"index/{name:017d}" for name in (7, 8, 9)]
