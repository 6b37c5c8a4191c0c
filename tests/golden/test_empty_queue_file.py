"""A record dropped while a queue's last file is full: RocketMQ 4.9 has opened the next one by then (found by tests/oracle)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.stores import read_files
from tests.tools.compare import SMALL, differences
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

PER_FILE = SMALL["cq_file_size"] // 20
FULL = list(range(PER_FILE))
SIZES = (0, 333, 1000)


def queue_files(store: Path, out: Path, offsets: list[int], version: str, order: str = "broker") -> dict[int, bytes]:
    """{first unit: bytes} of the queue whose records name these offsets; like the reference's however the log is cut."""
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for offset in offsets:
            writer.append(Message(topic="T", queue_offset=offset))
    for size in SIZES:
        settings = SMALL | {"queue_order": order, "broker_version": version, "on_damage": "salvage"}
        assert differences(store, out, range_size=size, **settings) == []
    found = read_files(out)
    return {int(name.rsplit("/", 1)[1]) // 20: found[name] for name in sorted(found) if name.startswith("consumequeue/T/0/")}


@pytest.mark.parametrize("offsets", [[*FULL, 7], [*FULL, 7, 8, 9], [*FULL, PER_FILE - 1]])
def test_it_stays_empty(offsets: list[int], tmp_path: Path) -> None:
    made = queue_files(tmp_path / "store", tmp_path / "out", offsets, "4.9")
    assert list(made) == [0, PER_FILE]
    assert made[PER_FILE] == bytes(SMALL["cq_file_size"])
    manifest = json.loads((tmp_path / "out" / "reindex.json").read_text())
    entry = next(entry for entry in manifest["files"] if entry["path"].endswith(f"T/0/{PER_FILE * 20:020d}"))
    assert (entry["size"], entry["used"]) == (SMALL["cq_file_size"], 0)
    assert manifest["counts"]["consumequeue"] == 2


@pytest.mark.parametrize("offsets", [FULL, [*FULL, 7, PER_FILE], [*FULL, 0], [*FULL[:-1], 7], [*FULL[:-1], 7, PER_FILE - 1]])
def test_it_is_filled_or_never_opened(offsets: list[int], tmp_path: Path) -> None:
    for content in queue_files(tmp_path / "store", tmp_path / "out", offsets, "4.9").values():
        assert any(content)


@pytest.mark.parametrize(("version", "order"), [("5.3", "broker"), ("4.9", "logical")])
def test_nowhere_else(version: str, order: str, tmp_path: Path) -> None:
    """5.3 opens the file, too, and its rebuild then fails to load (tests/serving/test_start.py: what a store with one does)."""
    assert list(queue_files(tmp_path / "store", tmp_path / "out", [*FULL, 7], version, order)) == [0]


def test_the_manifest_names_them_in_the_order_of_paths(tmp_path: Path) -> None:
    """Which is not that of the lines: JSON writes a letter that is not ASCII as an escape, which sorts before z."""
    store, out = tmp_path / "store", tmp_path / "out"
    with LogWriter(store / "commitlog", 1 << 14) as writer:
        for topic in ("\N{LATIN SMALL LETTER E WITH ACUTE}", "z"):
            for offset in [*FULL, 7]:
                writer.append(Message(topic=topic, queue_offset=offset))
    settings = SMALL | {"queue_order": "broker", "broker_version": "4.9", "on_damage": "salvage"}
    assert differences(store, out, **settings) == []
    paths = [entry["path"] for entry in json.loads((out / "reindex.json").read_text())["files"]]
    assert paths == sorted(paths)
    assert len([path for path in paths if path.endswith(f"/{PER_FILE * 20:020d}")]) == 2
