"""Why a store does not load, as preflight says it, beside what the real stores do: states of a store's files, each tried."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.serving.programs import Program, StepFailed
from tests.serving.stores import options
from tests.serving.test_start import (
    SEGMENT,
    SIZES,
    Change,
    T,
    U,
    copied,
    folder,
    gone,
    index_file,
    last_segment,
    make,
    name,
    new,
    sized,
)

VERSIONS = ("4.9.8", "5.3.3", "5.4.0", "5.5.1")
WHEEL = 7 * 24 * 3600 * 2 * 32
CANNOT_OPEN = ("Is a directory", "Lock failed", "No such device or address", "Illegal seek")


@dataclass(frozen=True)
class State:
    """A store's files after ``changes``. ``old`` and ``new`` are the kinds of refusal of 4.9 and of 5.x."""

    name: str
    changes: tuple[Change, ...]
    old: frozenset[str]
    new: frozenset[str]
    tried: bool = True
    """the store alone shows it; what only a broker loads is not tried here"""


def state(
    text: str, *changes: Change, both: str = "", old: str | None = None, new: str | None = None, tried: bool = True
) -> State:
    kinds = [frozenset((both if one is None else one).split()) for one in (old, new)]
    return State(text, changes, kinds[0], kinds[1], tried)


def fifo(path: Path | str) -> Change:
    return lambda store: os.mkfifo(store / path)


def link(path: Path | str, to: str) -> Change:
    return lambda store: (store / path).symlink_to(to)


BATCH = "batchconsumequeue/T/0"
STATES = (
    state("as it was built"),
    state("a last segment cut", last_segment(lambda path: path.write_bytes(path.read_bytes()[:-5000])), both="log-file-size"),
    state("a first segment cut", lambda store: os.truncate(min((store / "commitlog").iterdir()), 100), both="log-file-size"),
    state("a segment too long", last_segment(lambda path: os.truncate(path, SEGMENT + 1)), both="log-file-size"),
    state("no bytes in a last segment", last_segment(lambda path: path.with_name(name(int(path.name) + SEGMENT)).touch()),
          old="log-file-size", new=""),
    state("no bytes in a first segment", lambda store: os.truncate(min((store / "commitlog").iterdir()), 0),
          both="log-file-size"),
    state("a stray of a segment's size", new("commitlog/segment.bak", SEGMENT), both="log-file-name"),
    state("a stray in the commitlog", new("commitlog/notes.txt", 300), both="log-file-size"),
    state("an empty stray behind the segments", new("commitlog/z", 0), old="log-file-size", new=""),
    state("a folder in the commitlog", folder("commitlog/old"), old="log-file-size", new=""),
    state("a folder behind a last segment without bytes",
          last_segment(lambda path: path.with_name(name(int(path.name) + SEGMENT)).touch()), folder("commitlog/old"),
          both="log-file-size"),
    state("a fifo in the commitlog", fifo("commitlog/0"), both="log-file-size"),
    state("a link to nowhere in the commitlog", link("commitlog/z", "nowhere"), old="log-file-size", new=""),
    state("a last queue file cut", sized(T / name(2000), 980), both="queue-file-size"),
    state("a queue file too long", sized(T / name(2000), 1020), both="queue-file-size"),
    state("no bytes in a last queue file", new(U / name(2000), 0), old="queue-file-size", new=""),
    state("no bytes in a first queue file", sized(U / name(0), 0), both="queue-file-size"),
    state("a queue file's copy", copied(T / name(2000), name(2000) + ".bak"), both="queue-file-name"),
    state("a name beyond 64 bits", new(T / ("9" * 20)), both="queue-file-name"),
    state("a folder in a queue", folder(T / "old"), old="queue-file-size", new=""),
    state("a queue that is a file", new("consumequeue/T/5", 20)),
    state("a queue of a name with a sign", folder("consumequeue/T/+7"), new(f"consumequeue/T/+7/{name(0)}", 20)),
    state("a queue below 0", folder("consumequeue/T/-7"), new(f"consumequeue/T/-7/{name(0)}", 20), both="queue-file-size"),
    state("a queue of Arabic digits", folder("consumequeue/T/٧"), folder("consumequeue/T/7"),
          new(f"consumequeue/T/7/{name(0)}", 20), both="queue-file-size"),
    state("a queue beyond 32 bits", folder("consumequeue/T/9999999999"), new("consumequeue/T/9999999999/x", 20)),
    state("strays beside queues", new("consumequeue/notes.txt"), new("consumequeue/T/notes.txt")),
    state("a batch queue of a plain topic", folder(BATCH), old="", new="queue-type"),
    state("a batch folder without a queue", folder("batchconsumequeue/T/x")),
    state("strays in the index", new("index/a.bak", 300), new("index/" + "9" * 20, 300), folder("index/old")),
    state("a numbered folder in the index", folder("index/20261121015957822"), old="", new="index-folder"),
    state("an IndexFile too long", index_file(lambda path: path.write_bytes(path.read_bytes() + bytes(20)))),
    state("an IndexFile too short", index_file(lambda path: os.truncate(path, 30))),
    state("no checkpoint", gone("checkpoint")),
    state("a short checkpoint", sized("checkpoint", 5)),
    state("a long checkpoint", sized("checkpoint", 8192)),
    state("a folder checkpoint", gone("checkpoint"), folder("checkpoint"), both="checkpoint-not-a-file"),
    state("a folder lock", folder("lock"), both="lock-not-a-file"),
    state("a folder abort", folder("abort"), old="", new="abort-not-a-file"),
    state("a timerwheel of another size", new("timerwheel", 1000), old="", new="timer-wheel-size", tried=False),
    state("a timerwheel", new("timerwheel", WHEEL), tried=False),
    state("a file of timerlog cut", folder("timerlog"), new("timerlog/" + name(0), 1000), old="", new="timer-log-file-size",
          tried=False),
    state("a folder timercheck", folder("config/timercheck"), old="", new="timer-check-not-a-file", tried=False),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_states(version: str, tmp_path: Path) -> None:
    assert try_all(version, STATES, tmp_path) == []


def test_some_states(tmp_path: Path) -> None:
    assert try_all("5.5.1", STATES[::4], tmp_path) == []


def try_all(version: str, states: Sequence[State], tmp_path: Path) -> list[str]:
    """What preflight says otherwise than the table, or than the real store does."""
    make(tmp_path / "base", version if version[0] == "4" else "5.3.3", False)
    wrong = []
    with Program(version, "Crash", tmp_path) as program:
        for number, state in enumerate(states):
            store = tmp_path / str(number)
            shutil.copytree(tmp_path / "base", store)
            for change in state.changes:
                change(store)
            told = rr.preflight(store, broker_version=version, segment_size=SEGMENT, **SIZES)
            kinds = {refusal["kind"] for refusal in told.refusals}
            if kinds != (state.old if version[0] == "4" else state.new):
                wrong.append(f"{state.name}: preflight says {sorted(kinds)}")
            if state.tried and loads(program, store) is not told.loads:
                wrong.append(f"{state.name}: preflight says {told.loads}, {sorted(kinds)}, the store the opposite")
    return wrong


def loads(program: Program, store: Path) -> bool:
    try:
        return program.step("loads", store.name, store, *options(segment_size=SEGMENT, **SIZES)) == "true"
    except StepFailed as failed:
        if not any(text in str(failed) for text in CANNOT_OPEN):
            raise
        return False
