"""Stores with consumequeue_ext that real stores start: whether they load, and to what units lead, is what preflight says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketmq_reindex.storage_format.broker_start.other_queue_states import ExtState
from rocketmq_reindex.storage_format.broker_start.store import QueueFolder, StoreFile
from rocketmq_reindex.storage_format.queue.consume_queue import UNIT
from tests.golden.stores import GoldenStore
from tests.oracle.test_extended import EXT_SIZE, SIZES, real
from tests.preflight.predicted import predict
from tests.preflight.real import RealStores
from tests.preflight.settings import Conf, Sizes
from tests.serving.programs import StepFailed

Deed = Callable[[Path], object]
CQ_SIZE = int(SIZES["cq_file_size"])
PUT = 20
"""messages for each queue"""


def ext_files(store: Path) -> list[list[Path]]:
    """The files of each queue."""
    return [sorted(queue.iterdir()) for queue in sorted((store / "consumequeue_ext").glob("*/*"))]


def each(number: int, deed: Callable[[Path], object]) -> Deed:
    """Do something to one file of each queue that has several."""

    def spoil(store: Path) -> None:
        for paths in ext_files(store):
            if len(paths) > 2:
                deed(paths[number])

    return spoil


def patched(at: int, data: bytes) -> Callable[[Path], object]:
    """Put bytes into a file at the unit with number ``at // 1000``, at byte ``at % 1000`` of it."""

    def patch(path: Path) -> None:
        raw, unit = bytearray(path.read_bytes()), 0
        for _ in range(at // 1000):
            size = int.from_bytes(raw[unit : unit + 2], "big", signed=True)
            if int.from_bytes(raw[unit + size : unit + size + 2], "big", signed=True) <= 0:
                break
            unit += size
        raw[unit + at % 1000 : unit + at % 1000 + len(data)] = data
        path.write_bytes(raw)

    return patch


DEEDS: dict[str, Deed] = {
    "whole": Path.exists,
    "gone": lambda store: shutil.rmtree(store / "consumequeue_ext"),
    "first files gone": each(0, Path.unlink),
    "inner files gone": each(1, Path.unlink),
    "last files gone": each(-1, Path.unlink),
    "short file": each(-1, lambda path: path.write_bytes(path.read_bytes()[:100])),
    "long file": each(1, lambda path: path.write_bytes(path.read_bytes() + bytes(8))),
    "empty last file": each(-1, lambda path: path.write_bytes(b"")),
    "a name": each(-1, lambda path: (path.parent / "copy").write_bytes(path.read_bytes())),
    "a unit too long": each(0, patched(1000, b"\x7f\xff")),
    "a unit too long at the end": each(-1, patched(0, b"\x7f\xff")),
    "no unit in the first file": each(0, patched(1000, b"\0\0")),
    "no unit in the last file": each(-1, patched(0, b"\0\0")),
    "units of other sizes": each(0, patched(0, b"\0\x05")),
    "a bit map too long at the end": each(-1, patched(9018, b"\x7f\xff")),
    "a bit map of no size": each(1, patched(18, b"\xff\xff")),
    "other tags": each(-1, patched(2, b"\x7f" * 8)),
    "a tagsCode that is an address": each(0, patched(2, b"\x80" + bytes(7))),
    # With it the real store fails when its messages are asked for.
    "a bit map too long": each(1, patched(1018, b"\x7f\xff")),
}


DUMPED = frozenset({"whole", "first files gone", "inner files gone", "units of other sizes", "a tagsCode that is an address"})
"""those whose units are looked at with each version"""


def folders(store: Path) -> list[QueueFolder]:
    def of(folder: Path) -> list[StoreFile]:
        paths = sorted(folder.iterdir()) if folder.is_dir() else []
        return [StoreFile(path.name, np.frombuffer(bytearray(path.read_bytes()), np.uint8)) for path in paths]

    found = []
    for queue in sorted((store / "consumequeue").glob("*/*")):
        ext = [file for file in of(store / "consumequeue_ext" / queue.parent.name / queue.name) if file.size]
        found.append(QueueFolder(queue.parent.name, int(queue.name), of(queue), False, ext))
    return found


def lines_of(store: Path) -> list[list[str]]:
    """What a broker finds for each unit, as FilterStore prints it, but for store time and bits."""
    lines = []
    for folder in folders(store):
        units = np.concatenate([file.data.view(UNIT) for file in folder.files])
        units = units[units["size"] > 0]
        found = ExtState.recovered(folder, CQ_SIZE, EXT_SIZE).units(units["tags_code"].astype(np.int64))
        for number in range(len(units)):
            told = "fails" if found.fails[number] else str(found.tags_code[number]) if found.there[number] else "none"
            lines.append([folder.topic, str(folder.queue), str(number), str(units["phy_offset"][number]), told])
    return lines


def conf_of(store: Path) -> Conf:
    segment = next((store / "commitlog").iterdir()).stat().st_size
    sizes = Sizes(segment, CQ_SIZE, SIZES["hash_slots"], SIZES["index_items"])
    return Conf(sizes, {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": str(EXT_SIZE)})


@pytest.mark.parametrize(("version", "name"), [
    pytest.param("4.9.8", "extended-4.9", marks=pytest.mark.slow),
    pytest.param("5.3.3", "extended-5.3", marks=pytest.mark.slow),
    ("5.5.1", "extended-5.5"),
])  # fmt: skip
def test_a_start(version: str, name: str, golden_store: Callable[[str], GoldenStore], tmp_path: Path) -> None:
    """Each queue whose units lead behind the end has old units, after some messages more, that lead to units of these."""
    base = golden_store(name).path
    unreadable = list[tuple[str, bool, bool]]()
    conf, wrong, kinds = conf_of(base), list[str](), dict[str, list[str]]()
    with RealStores(version, tmp_path) as stores:
        for number, (deed_name, deed) in enumerate(DEEDS.items()):
            store = Path(shutil.copytree(base, tmp_path / str(number)))
            deed(store)
            said = predict(store, version, conf, tmp_path)
            assert isinstance(said, dict), (deed_name, said)
            kinds[deed_name] = [loss["kind"] for loss in said["losses"]]
            before, expected = folders(store), lines_of(store) if said["loads"] else []
            dumped = Path(shutil.copytree(store, tmp_path / "dumped"))
            try:
                told = stores.start(store, conf)
            except StepFailed:
                served = [line.split()[:5] for line in real(version, dumped, "--dump")]
                unreadable.append((deed_name, "ext-unreadable" in kinds[deed_name], served == expected))
                break
            assert "ext-unreadable" not in kinds[deed_name]
            if told.loads != said["loads"]:
                wrong.append(f"{deed_name}: loads {told.loads} {told.reason}, said {said['refusals']}")
            elif told.loads:
                if version != "5.5.1" or deed_name in DUMPED:
                    served = [line.split()[:5] for line in real(version, dumped, "--dump")]
                    pairs = zip(served, expected, strict=True)
                    wrong += [f"{deed_name}: {one}, said {two}" for one, two in pairs if one != two][:3]
                queues = [(folder.topic, folder.queue) for folder in before]
                stores.put(store, number, PUT * len(queues), queues)
                stores.close(store)
                wrong += [f"{deed_name}: {line}" for line in overwritten(store, before, said)]
            shutil.rmtree(store)
            shutil.rmtree(tmp_path / "dumped")
    assert (wrong, unreadable) == ([], [("a bit map too long", True, True)])
    assert kinds["whole"] == kinds["first files gone"] == kinds["inner files gone"] == []
    assert kinds["gone"] == kinds["last files gone"] == ["ext-short"]
    assert kinds["short file"] == kinds["long file"] == ["ext-file-size"]
    assert kinds["a name"] == ["ext-file-name"]
    assert kinds["a unit too long"] == kinds["a bit map too long at the end"] == ["ext-unit"]


def overwritten(store: Path, before: list[QueueFolder], said: dict[str, Any]) -> list[str]:
    """What is not as preflight says: whether units that led to none lead to what new messages made."""
    now, short, wrong = {(folder.topic, folder.queue): folder for folder in folders(store)}, 0, []
    for old in before:
        units = np.concatenate([file.data.view(UNIT) for file in old.files])
        addresses = units["tags_code"][units["size"] > 0].astype(np.int64)
        was = ExtState.recovered(old, CQ_SIZE, EXT_SIZE)
        new = ExtState(now[old.topic, old.queue].ext, EXT_SIZE).units(addresses)
        short += was.is_short
        if was.is_short != bool((new.there & ~was.units(addresses).there).any()):
            wrong.append(f"{old.topic}/{old.queue}: is overwritten or not, said {was.is_short}")
    counts = [loss["count"] for loss in said["losses"] if loss["kind"] == "ext-short"]
    return wrong if counts == ([short] if short else []) else [f"ext-short {counts}, found {short}"]
