"""What the scan store takes from its own files: they may have been written by somebody else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KIND, new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs import handover
from rocketmq_reindex.udfs.incremental.scan_store import Head, KeptFile, ScanEntry, ScanStore, sealed, unsealed
from rocketmq_reindex.udfs.incremental.stored_rows import RowWriter, stored_rows

KEPT = KeptFile("k-1.runs", 4, "d")


def entry(kept: KeptFile = KEPT) -> ScanEntry:
    return ScanEntry("k", "0", 0, 10, 1, 0, 10, "d", "s", {}, {"runs": kept}, Head(0, ""))


@pytest.fixture
def store(tmp_path: Path) -> ScanStore:
    found = ScanStore(str(tmp_path / "scans"))
    found.make()
    (tmp_path / "scans" / "data" / KEPT.name).write_bytes(b"rows")
    return found


def put(store: ScanStore, data: bytes) -> None:
    Path(store.entries, "k").write_bytes(b"".join(sealed(data)))


def test_an_entry(store: ScanStore) -> None:
    assert store.find("k") is None
    store.put(entry())
    assert store.find("k") == entry()
    Path(store.data, KEPT.name).write_bytes(b"row")
    assert store.find("k") is None


@pytest.mark.parametrize("change", [{"data": {"runs": ["../../x", 4, "d"]}}, {"data": ["runs"]}, {"data": 5}, {"head": 5}])
def test_an_entry_that_no_run_wrote_is_not_known(change: dict[str, Any], store: ScanStore) -> None:
    Path(store.root).parent.joinpath("x").write_bytes(b"rows")
    fields = json.loads(entry().to_json())
    put(store, json.dumps(fields).encode())
    assert store.find("k") == entry()
    put(store, json.dumps(fields | change).encode())
    assert store.find("k") is None


def test_what_is_kept_names_the_kind_of_its_digests(store: ScanStore) -> None:
    assert not store.has_earlier_kind()
    store.put(entry())
    kept = Path(store.entries, "k").read_bytes()
    assert kept.startswith(f"{KIND} ".encode())
    assert unsealed(kept) == entry().to_json().encode()
    assert not store.has_earlier_kind()
    data = entry().to_json().encode()
    for seal, is_earlier in (
        (new_digest([data], EARLIER_KIND).digest().hex(), True),
        (f"sum-64 {new_digest([data]).digest().hex()}", False),
        ("x" * 32, False),
        ("", False),
    ):
        Path(store.entries, "k").write_bytes(f"{seal}\n".encode() + data)
        assert store.find("k") is None
        assert store.has_earlier_kind() == is_earlier


@pytest.mark.parametrize("name", ["", "entries", "data", "builds", "temporary"])
def test_a_store_that_leads_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "scans" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a symbolic link: remove it"):
        ScanStore(str(tmp_path / "scans")).make()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_rows_that_are_not_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    writer = RowWriter(str(tmp_path), str(path))
    rows = [handover.Row(handover.UNITS, 3, 0, number, b"x" * 100) for number in range(3)]
    for row in rows:
        writer.add(row)
    digest = writer.finish()
    assert list(stored_rows(str(path), digest)) == rows
    data = bytearray(path.read_bytes())
    data[data.index(b"xxx")] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="rows: is not as an earlier run wrote it"):
        list(stored_rows(str(path), digest))
