"""How far a broker was with half messages: what --write-delay puts into consumerOffset.json."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.udfs import delay
from tests.tools.compare import SMALL
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.tools.seeds import cases

HALF, OP, DISCARDS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
GROUP = f"{HALF}@CID_RMQ_SYS_TRANS"
CHECKS_MAX = 4


def half(key: str, checks: int = 0) -> Message:
    counted = {"TRANSACTION_CHECK_TIMES": str(checks)} if checks else {}
    return Message(HALF, properties={"UNIQ_KEY": key, "REAL_TOPIC": "T", "REAL_QID": "0"} | counted)


def op(body: str, tag: str = "d") -> Message:
    return Message(OP, properties={"TAGS": tag}, body=body.encode())


def build(tmp_path: Path, records: list[Message], given: int | str | None = None) -> tuple[int | None, BuildResult]:
    """The offset that the build writes where a backup has the offset ``given``."""
    with LogWriter(tmp_path / "store" / "commitlog", 1 << 16) as writer:
        for record in records:
            writer.append(record)
    more: dict[str, Any] = {}
    if given is not None:
        (tmp_path / "backup").write_text(json.dumps({"offsetTable": {GROUP: {"0": given}}}))
        more["consumer_offsets"] = str(tmp_path / "backup")
    summary = local_build(tmp_path / "store", tmp_path / "out", **(SMALL | {"write_delay": True} | more))
    assert summary.error is None
    path = tmp_path / "out" / "config" / "consumerOffset.json"
    return (json.loads(path.read_text())["offsetTable"][GROUP]["0"] if path.exists() else None), summary


@pytest.mark.parametrize(
    ("records", "wanted"),
    [
        ([half("A"), half("B")], None),
        ([half("A"), half("B"), half("A", 1)], 1),
        # Another body, another birth: other messages.
        ([half("A"), dataclasses.replace(half("A", 1), body=b"other")], None),
        ([half("A"), dataclasses.replace(half("A", 1), born_timestamp=EPOCH + 5)], None),
        # B waits before a copy that an older copy follows: a broker that was killed wrote both.
        ([half("A"), half("A", 1), half("B"), half("A", 1), half("A", 2)], 2),
        ([half("A"), half("A", 1), half("B"), half("A", 1), half("A", 2), op("2")], 4),
        ([half("A"), half("A", 1), half("B"), half("A", 1), half("A", 2), op("7,2,")], 4),
        ([half("A"), half("A", 1), half("B"), half("A", 1), half("A", 2), op("7,2,", "other")], 2),
        ([half("A"), half("A", 1), half("B"), half("A", 1), half("A", 2), op("x,,22,-2")], 2),
    ],
)
def test_no_pending_half_message_is_passed(records: list[Message], wanted: int | None, tmp_path: Path) -> None:
    assert build(tmp_path, records)[0] == wanted


def test_one_that_was_given_up_is_passed(tmp_path: Path) -> None:
    gone = dataclasses.replace(half("A", 1), topic=DISCARDS, queue_id=0)
    assert build(tmp_path, [half("A"), half("B"), half("A", 1), op("1"), gone])[0] == 3


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In windows of four offsets, and at most so many of them: what is not looked at is not passed."""
    monkeypatch.setattr(delay, "_WINDOW", 4)
    records = [*(half(f"K{number}") for number in range(30)), op("".join(f"{number}," for number in range(30))), half("K29", 1)]
    assert build(tmp_path / "all", records)[0] == 30
    monkeypatch.setattr(delay, "_WINDOWS_MAX", 3)
    assert build(tmp_path / "some", records)[0] == 12


@pytest.mark.parametrize(
    ("given", "wanted", "warned"),
    [
        (0, 2, "goes on at 2"),  # The last check had come to 1: the file is older.
        (2, 2, ""),
        (3, 3, "stands at 3, but by the log the half message at 2 is neither committed nor rolled back"),
    ],
)
def test_the_offset_of_a_backup(given: int, wanted: int, warned: str, tmp_path: Path) -> None:
    offset, summary = build(tmp_path, [half("A"), half("B"), half("A", 1), half("B", 1)], given)
    assert offset == wanted
    about = [warning for warning in summary.warnings if GROUP in warning]
    assert len(about) == bool(warned)
    assert all(warned in warning for warning in about)


def test_an_offset_that_is_a_text(tmp_path: Path) -> None:
    """fastjson reads a Long of it."""
    offset, summary = build(tmp_path, [half("A"), half("B"), half("A", 1), half("B", 1)], "0")
    assert offset == 2
    assert [warning for warning in summary.warnings if "goes on at 2" in warning]


def test_a_right_offset_stays_where_old_copies_stand_above_it(tmp_path: Path) -> None:
    """The broker was killed after it had made copy 1, and began at 0 again: 1 is pending for it as well as 2."""
    records = [half("A"), half("A", 1), half("A", 1)]
    assert build(tmp_path / "given", records, 1)[0] == 1
    assert build(tmp_path / "bare", records)[0] == 2


class Checks:
    """A broker's half messages in a few lines: it checks them in rounds, is killed, and starts where its file says."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[Message] = []
        self.halves: list[tuple[str, int]] = []
        self.decided: set[int] = set()
        self.given_up: set[str] = set()
        self.offset = self.file = 0
        self.fell_back = False

    def put(self, key: str, checks: int = 0) -> None:
        self.halves.append((key, checks))
        self.log.append(half(key, checks))

    def check(self) -> None:
        """A round, which a stop may end early. The file is written by chance."""
        for place in range(self.offset, self.rng.randint(self.offset, len(self.halves))):
            key, checks = self.halves[place]
            if place not in self.decided:
                self.fell_back = False
                if checks >= CHECKS_MAX:
                    self.log.append(dataclasses.replace(half(key, checks), topic=DISCARDS, queue_id=0))
                    self.given_up.add(key)
                else:
                    self.put(key, checks + 1)
            self.offset = place + 1
        if self.rng.random() < 0.5:
            self.file = self.offset

    def decide(self) -> None:
        open_ones = [place for place in range(len(self.halves)) if place not in self.decided]
        some = self.rng.sample(open_ones, min(len(open_ones), self.rng.randint(1, 3)))
        if some:
            self.decided |= set(some)
            self.log.append(op(",".join(map(str, some)) + "," * self.rng.randint(0, 1)))

    def pending(self) -> Iterator[int]:
        """The newest copy of each message, where the broker still asks about it."""
        for key, place in {key: place for place, (key, _) in enumerate(self.halves)}.items():
            if place not in self.decided and not (key in self.given_up and self.halves[place][1] >= CHECKS_MAX):
                yield place

    def live(self) -> None:
        for number in range(self.rng.randint(3, 14)):
            step = self.rng.random()
            if step < 0.4:
                for part in range(self.rng.randint(1, 3)):
                    self.put(f"{number}-{part}")
            elif step < 0.75:
                self.check()
            elif step < 0.9:
                self.decide()
            else:
                # No check shows it yet.
                self.fell_back |= self.file < self.offset
                self.offset = self.file


def test_random_lives_of_a_broker(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    for number in range(cases(25, 1)):
        broker = Checks(rng)
        broker.live()
        first = min(broker.pending(), default=len(broker.halves))
        offset, _ = build(tmp_path / f"{number}", broker.log)
        assert (offset or 0) <= first
        right, summary = build(tmp_path / f"{number}-right", broker.log, broker.offset)
        assert right is not None
        assert right == broker.offset or (broker.fell_back and broker.offset < right <= first)
        stands = [warning for warning in summary.warnings if "stands at" in warning]
        assert bool(stands) == (first < broker.offset)
        older, _ = build(tmp_path / f"{number}-older", broker.log, broker.file)
        assert older is not None
        assert older <= max(broker.file, first)
