"""ConsumeQueue files read back: RocketMQ's own, those that the build writes, and each way to spoil one by its name."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rocketmq_reindex.storage_format.errors import UnreadableError
from rocketmq_reindex.storage_format.queue.consume_queue import (  # fmt: skip
    BAD,
    EMPTY,
    HAS_UNIT,
    PRE_BLANK,
    QueueFile,
    file_units,
    read_queue_file,
)
from tests.golden.stores import NAMES, GoldenStore

Unit = tuple[int, int, int]
PRE: Unit = (0, 2**31 - 1, 0)
ZERO: Unit = (0, 0, 0)
A, B, C = (100, 100, 7), (200, 150, -7), (350, 91, 2**40)


def read(units: list[Unit], start: int = 0, size: int | None = None) -> QueueFile:
    return read_queue_file(b"".join(struct.pack(">qiq", *unit) for unit in units), start, size)


def codes(file: QueueFile) -> dict[str, tuple[int, int]]:
    return {finding.code: (finding.at, finding.count) for finding in file.findings}


def queues(root: Path) -> dict[Path, list[Path]]:
    return {folder: sorted(folder.iterdir()) for folder in sorted(root.glob("consumequeue/*/*"))}


@pytest.mark.parametrize("name", NAMES)
def test_the_brokers_own_files(name: str, golden_store: Callable[[str], GoldenStore]) -> None:
    """Nothing is wrong with them, and each unit has the size of the record that it points to."""
    store = golden_store(name)
    size = store.sizes()["cq_file_size"]
    log = {int(path.name): path.read_bytes() for path in (store.path / "commitlog").iterdir()}
    first = min(log)
    units = 0
    for root in (store.path, store.path / "rebuilt"):
        for paths in queues(root).values():
            files = [read_queue_file(path.read_bytes(), int(path.name), size) for path in paths]
            assert [file.findings for file in files] == [[]] * len(files)
            for file in files:
                assert file.used == file.present == file.pre_blank + file.units
                for slot in np.flatnonzero(file.kind == HAS_UNIT).tolist():
                    place, length, _ = file.unit(slot)
                    if place >= first:
                        segment = max(base for base in log if base <= place)
                        assert struct.unpack_from(">i", log[segment], place - segment) == (length,)
                        units += 1
    assert units > 500


def test_round_trip(seed: int) -> None:
    """What the writer writes is what the reader reads."""
    rng = random.Random(seed)
    for _ in range(50):
        per_file, first, count = rng.randrange(1, 12), rng.randrange(60), rng.randrange(1, 40)
        places = np.cumsum([rng.randrange(91, 400) for _ in range(count)])
        rows = np.stack([np.arange(first, first + count), places, np.full(count, 91), np.arange(count) - 5]).astype(np.int64)
        files = []
        for number in range(first // per_file, (first + count - 1) // per_file + 1):
            mine = rows[:, rows[0] // per_file == number]
            start, _, image = file_units(per_file, number, [mine])
            files.append(read_queue_file(image.tobytes().ljust(20 * per_file, b"\0"), start, 20 * per_file))
            assert (files[-1].findings, files[-1].units) == ([], mine.shape[1])
            assert files[-1].position == number * per_file
        found = [file.unit(slot) for file in files for slot in np.flatnonzero(file.kind == HAS_UNIT).tolist()]
        assert found == list(zip(*rows[1:].tolist(), strict=True))
        assert sum(file.pre_blank for file in files) == first % per_file


def test_kinds() -> None:
    file = read([PRE, A, (-1, 5, 0), (5, 0, 0), (2**63 - 5, 10, 0), (0, 0, 1), ZERO, B, ZERO])
    assert file.kind.tolist() == [PRE_BLANK, HAS_UNIT, BAD, BAD, BAD, BAD, EMPTY, HAS_UNIT, EMPTY]
    assert (file.used, file.pre_blank, file.present, file.units) == (8, 1, 2, 2)
    assert (file.first_unit, file.last_unit, file.first_bad) == (1, 7, 2)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([A, B, C, ZERO], {}),
        ([A, A, A, B], {}),  # two offsets filled
        ([], {}),
        ([ZERO], {}),
        ([A, (200, -1, 0), C], {"queue-unit": (301, 1)}),
        ([ZERO, ZERO, B], {"queue-hole": (300, 2)}),
        ([A, PRE, B], {"queue-pre-blank": (301, 1)}),
        ([ZERO, PRE, B], {"queue-hole": (300, 1), "queue-pre-blank": (301, 1)}),
        ([B, A, C], {"queue-backwards": (301, 1)}),
        ([C, A, B], {"queue-backwards": (301, 1)}),
        ([A, (150, 91, 0), C], {"queue-overlap": (301, 1)}),
        ([A, (100, 100, 8), B], {"queue-overlap": (301, 1)}),
    ],
)
def test_what_is_wrong_in_a_file(units: list[Unit], expected: dict[str, tuple[int, int]]) -> None:
    file = read(units, start=6000)
    assert codes(file) == expected
    assert file.first_bad == min((at for at, _ in expected.values()), default=-1)
    assert file.repeats == units.count(A) - 1 if units == [A, A, A, B] else file.repeats == 0


def test_names_and_sizes() -> None:
    assert codes(read([A, B], 40, 40)) == {}
    assert codes(read([A, B], 60, 40)) == {"queue-name": (3, 1)}
    assert codes(read([A, B], 41)) == {"queue-name": (2, 1)}
    assert codes(read([A, B], 0, 60)) == {"queue-size": (2, 1)}
    assert [finding.code for finding in read_queue_file(bytes(39), 0).findings] == ["queue-size"]
    assert read_queue_file(bytes(39), 0).kind.tolist() == [EMPTY]
    for start in (-20, 2**63 - 20, 10**20 - 20):
        with pytest.raises(UnreadableError):
            read([A], start)
