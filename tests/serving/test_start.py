"""On which stores does a broker start? States of a store's files, each tried on the real stores, beside what verify says.

A broker whose store does not load does not start (``BrokerController.initialize``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.serving.broker import Broker, write_topics
from tests.serving.programs import Program, StepFailed
from tests.serving.stores import ask, build_into, keys_of, lost, options, queues_of
from tests.tools import batch_log
from tests.tools.local_engine import local_build
from tests.tools.local_verify import kinds, local_verify
from tests.tools.log_writer import LogWriter, Put
from tests.tools.make_log import Message
from tests.tools.tiers import ends

SEGMENT = 1 << 14
CQ_FILE = 1000
UNITS = {"T": 120, "U": 100}
"""of T/0, whose third file is not full, and of U/0, which fills two"""
SIZES: dict[str, Any] = {"cq_file_size": CQ_FILE, "hash_slots": 50, "index_items": 150}
VERSIONS = ("5.3.3", "4.9.8", "5.5.1")
BY_AGE = sorted(VERSIONS)
NEW, OLD = ("5.3.3", "5.5.1"), ("4.9.8",)
T, U = Path("consumequeue/T/0"), Path("consumequeue/U/0")
Change = Callable[[Path], object]


def name(start: int) -> str:
    return f"{start:020d}"


def new(path: Path | str, size: int = CQ_FILE) -> Change:
    """A file of zeros more."""
    return lambda store: (store / path).write_bytes(bytes(size))


def sized(path: Path | str, size: int) -> Change:
    return lambda store: (store / path).write_bytes((store / path).read_bytes()[:size].ljust(size, b"\0"))


def copied(path: Path | str, to: str) -> Change:
    return lambda store: shutil.copy(store / path, (store / path).with_name(to))


def moved(path: Path | str, to: str) -> Change:
    return lambda store: (store / path).rename((store / path).with_name(to))


def folder(path: Path | str) -> Change:
    return lambda store: (store / path).mkdir(parents=True)


def gone(path: str) -> Change:
    return lambda store: (store / path).unlink()


def index_file(change: Callable[[Path], object], number: int = 0) -> Change:
    return lambda store: change(sorted((store / "index").iterdir())[number])


def last_segment(change: Callable[[Path], object]) -> Change:
    return lambda store: change(max((store / "commitlog").iterdir()))


@dataclass(frozen=True)
class State:
    """``starts``: the versions whose store loads; ``served`` how many answers T/0 and U/0 then give, if not each message;
    what verify finds, for 5.x and for 4.9, or else notes."""

    name: str
    changes: tuple[Change, ...]
    starts: tuple[str, ...] = VERSIONS
    served: dict[str, int] = field(default_factory=dict)
    found: frozenset[str] = frozenset()
    found_old: frozenset[str] | None = None
    note: str = ""
    tail: bool = False
    """the log ends with a record that gets no unit"""


def state(
    text: str, *changes: Change, found: str = "", old: str | None = None, starts: tuple[str, ...] = VERSIONS,
    note: str = "", tail: bool = False, **served: int,
) -> State:  # fmt: skip
    found_old = None if old is None else frozenset(old.split())
    return State(text, changes, starts, served, frozenset(found.split()), found_old, note, tail)


STATES = (
    state("as it was built"),
    state("zeros behind a full last file", new(U / name(2000)), found="queue-file-empty", old="", note="at the end of", U=101),
    state("zeros there, no unit of the last record", new(U / name(2000)), starts=("4.9.8", "5.5.1"), tail=True,
          found="queue-file-empty", old="", note="at the end of"),
    state("zeros behind a file with room", new(T / name(3000))),
    state("no bytes in a last file", new(U / name(2000), 0), starts=NEW, old="queue-file-size"),
    state("no bytes in a last file of any name", new(U / "core.1", 0), starts=NEW, old="queue-file-stray"),
    state("a last file cut", sized(T / name(2000), 980), starts=(), found="queue-file-size"),
    state("a last file too long", sized(T / name(2000), 1020), starts=(), found="queue-file-size"),
    state("a name moved by a unit", moved(T / name(2000), name(2020)), found="queue-file-name queue-unit-missing", T=119),
    state("a file's copy", copied(T / name(2000), name(2000) + ".bak"), starts=(), found="queue-file-stray"),
    state("a core dump", new(T / "core.123", 300), starts=(), found="queue-file-stray"),
    state("a name beyond 64 bits", new(T / ("9" * 20)), starts=(), found="queue-file-stray"),
    state("a folder in a queue", folder(T / "old"), starts=NEW, note="passes over: T/0/old", old="queue-file-stray"),
    state("strays beside queues", new("consumequeue/notes.txt"), new("consumequeue/T/notes.txt"), folder("consumequeue/T/old"),
          folder("consumequeue/lost+found"), note="passes over: T/notes.txt"),
    state("strays in the index", new("index/a.bak", 300), new("index/" + "9" * 20, 300), folder("index/old"),
          found="index-file-name"),
    state("a numbered folder in the index", folder("index/20261121015957822"), starts=OLD, found="index-file-name"),
    state("an IndexFile too long", index_file(lambda path: path.write_bytes(path.read_bytes() + bytes(20))),
          found="index-file-size"),
    state("an empty file in the index", new("index/99990101000000000", 0), found="index-file-size"),
    state("no checkpoint", gone("checkpoint"), found="checkpoint-missing"),
    state("a long checkpoint", sized("checkpoint", 8192), found="checkpoint-size"),
    state("a folder lock", folder("lock"), starts=()),
    state("a last segment cut", last_segment(lambda path: path.write_bytes(path.read_bytes()[:-5000])), starts=(),
          found="log-segment-short"),
    state("no bytes in a last segment", last_segment(lambda path: path.with_name(name(int(path.name) + SEGMENT)).touch()),
          starts=NEW, note="has no bytes", old="log-segment-short"),
)  # fmt: skip


def make(store: Path, version: str, tail: bool) -> list[Put]:
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(max(UNITS.values())):
            for topic, count in UNITS.items():
                if number < count:
                    writer.append(Message(topic=topic, queue_offset=number, properties={"KEYS": f"{topic}-{number}"}))
        puts = list(writer.puts)
        if tail:
            writer.append(Message(topic="T", sysflag=4))
    build_into(store, broker_version=settings_of(version), **SIZES)
    return puts


def settings_of(version: str) -> str:
    return "4.9" if version.startswith("4.") else "5.3"


@pytest.mark.parametrize("version", VERSIONS)
def test_states(version: str, tmp_path: Path) -> None:
    puts = {tail: make(tmp_path / f"base-{tail}", version, tail) for tail in (False, True)}
    each = {queue[0]: [put.offset for put in of_queue] for queue, of_queue in queues_of(puts[False]).items()}
    wrong = []
    with Program(version, "Crash", tmp_path) as program:
        for number, state in enumerate(STATES):
            store = tmp_path / str(number)
            shutil.copytree(tmp_path / f"base-{state.tail}", store)
            for change in state.changes:
                change(store)
            summary = local_verify(store, broker_version=settings_of(version), **SIZES)
            found = state.found if version in NEW or state.found_old is None else state.found_old
            if summary.error or kinds(summary).keys() != found:
                wrong.append(f"{state.name}: verify says {kinds(summary)}, {summary.error}")
            if state.note and not found and not any(state.note in note for note in summary.notes):
                wrong.append(f"{state.name}: verify notes {summary.notes}")
            wrong += [f"{state.name}: {line}" for line in judge(try_it(program, store), version, state, each)]
    assert wrong == [], "\n".join(wrong)


def try_it(program: Program, store: Path) -> dict[str, list[int]] | None:
    """The offsets in the log that T/0 and U/0 answer, -1 for no message; None where the store does not load."""
    try:
        if program.step("loads", store.name, store, *options(segment_size=SEGMENT, **SIZES)) != "true":
            return None
    except StepFailed as failed:
        if "lock (Is a directory)" not in str(failed):
            raise
        return None
    answers = program.step("serve", store.name, *(word for topic in UNITS for word in (topic, 0)))
    return {topic: [int(place) for place in line.split(",")] for topic, line in zip(UNITS, answers.split(" "), strict=True)}


def judge(told: dict[str, list[int]] | None, version: str, state: State, each: dict[str, list[int]]) -> list[str]:
    if told is None or version not in state.starts:
        starts = told is not None
        return [f"it {'starts' if starts else 'does not start'}"] if starts is not (version in state.starts) else []
    found = {topic: len(told[topic]) if topic in state.served else told[topic] for topic in UNITS}
    wanted = {topic: state.served.get(topic, each[topic]) for topic in UNITS}
    return [f"{topic}/0 answers {found[topic]}" for topic in UNITS if found[topic] != wanted[topic]]


@pytest.mark.parametrize("version", ends(BY_AGE))
def test_sizes_of_another_broker(version: str, tmp_path: Path) -> None:
    """On ConsumeQueue files of other sizes it does not start; with an index of other sizes it does, and finds nothing."""
    puts = make(tmp_path / "store", version, False)
    keys = keys_of(puts)
    with Program(version, "Crash", tmp_path) as program:
        for name, sizes, starts in (
            ("queues", {"cq_file_size": 2000}, "false"),
            ("slots", {"hash_slots": 51}, "true"),
            ("items", {"index_items": 151}, "true"),
        ):
            store = tmp_path / name
            shutil.copytree(tmp_path / "store", store)
            assert program.step("loads", name, store, *options(segment_size=SEGMENT, **SIZES | sizes)) == starts
            if name == "slots":
                assert len(lost(keys, ask(program, name, keys, tmp_path))) > len(keys) // 2


@pytest.mark.parametrize("version", ends(BY_AGE))
def test_a_queue_whose_folder_is_gone_begins_at_0(version: str, tmp_path: Path) -> None:
    """Once its records have expired nothing else tells how far it was."""
    with LogWriter(tmp_path / "kept" / "commitlog", SEGMENT) as writer:
        for number in range(30):
            writer.append(Message(topic="T", queue_offset=number))
        writer.roll()
        writer.append(Message(topic="U"))
    build_into(tmp_path / "kept", broker_version=settings_of(version), **SIZES)
    min((tmp_path / "kept" / "commitlog").iterdir()).unlink()
    shutil.copytree(tmp_path / "kept", tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone" / "consumequeue" / "T")
    with Program(version, "Crash", tmp_path) as program:
        for name, position in (("kept", 30), ("gone", 0)):
            program.step("open", name, tmp_path / name, *options(segment_size=SEGMENT, **SIZES))
            place = int(program.step("put", name, "T", "new", 1))
            data = min((tmp_path / name / T).iterdir()).read_bytes()
            assert int.from_bytes(data[20 * position : 20 * position + 8], "big") == place, name


def test_a_whole_broker_agrees(tmp_path: Path) -> None:
    """It starts where the store loads, and only there. The message too many costs no reader a message: a pull that begins at
    it is not answered until another message follows it."""
    with Program("5.3.3", "Serve", tmp_path) as program:
        for state in (STATES[1], STATES[2], next(state for state in STATES if state.name == "a core dump")):
            store = tmp_path / f"store-{STATES.index(state)}"
            puts = make(store, "5.3.3", state.tail)
            write_topics(store, puts)
            for change in state.changes:
                change(store)
            if "5.3.3" not in state.starts:
                with pytest.raises(StepFailed, match="the broker does not load the store"):
                    Broker(program, "b", store, tmp_path, segment_size=SEGMENT, **SIZES)
                continue
            with Broker(program, "b", store, tmp_path, segment_size=SEGMENT, **SIZES) as broker:
                came = broker.consumed("lite", len(puts))
                assert sorted(delivery.place for delivery in came) == [put.offset for put in puts]


@pytest.mark.parametrize("version", [pytest.param("5.3.3", marks=pytest.mark.slow), "5.5.1"])
def test_the_older_topics_are_taken_where_a_kill_left_those(version: str, tmp_path: Path) -> None:
    """A build takes batch topics from the file that the broker takes. Without one it does not start on their folders."""
    sizes = {name: size for name, size in batch_log.SIZES.items() if name != "batch_cq_file_size"}
    batch_file = f"mapperFileSizeBatchConsumeQueue={batch_log.SIZES['batch_cq_file_size']}"
    with Program(version, "Serve", tmp_path) as program:
        for number, left in enumerate((None, "", '{"topicConfigTable":{')):
            store, out = tmp_path / f"store-{number}", tmp_path / "out"
            batch_log.random_batch_log(store / "commitlog", 3, odd=False)
            config = store / "config"
            config.mkdir()
            batch_log.topics_json(config / "topics.json.bak")
            if left is not None:
                (config / "topics.json").write_text(left)
            settings: dict[str, Any] = {"overwrite": True, "broker_version": settings_of(version), **batch_log.SIZES}
            assert local_build(store, out, **settings).exit == 0
            for part in ("consumequeue", "batchconsumequeue", "index", "checkpoint"):
                shutil.move(out / part, store / part)
            with Broker(program, "b", store, tmp_path, "--set", batch_file, segment_size=SEGMENT, **sizes) as broker:
                assert set(batch_log.BATCH_TOPICS) <= set(broker.topics)
            for path in config.glob("topics.json*"):
                path.unlink()
            with pytest.raises(StepFailed, match="the broker does not load the store"):
                Broker(program, "c", store, tmp_path, "--set", batch_file, segment_size=SEGMENT, **sizes)
