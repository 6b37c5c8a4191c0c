"""Parts, limits and other sources of a build: what is asked for comes out as in the whole build, and nothing else."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest

from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.command.option import PARTS
from tests.golden.stores import NAMES, GoldenStore, index_in_order, read_files
from tests.golden.test_build import assert_is_rebuilt
from tests.tools.compare import SMALL, differences
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import FEATURES, Message, random_log
from tests.tools.seeds import cases
from tests.tools.spoil import record_offsets

Stores = Callable[[str], GoldenStore]


@pytest.fixture(scope="module")
def wholes(golden_store: Stores, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], tuple[Path, BuildResult]]:
    """wholes(name, checkpoint): the build of all parts, made once. Read it, do not change it."""

    @cache
    def get(name: str, checkpoint: str) -> tuple[Path, BuildResult]:
        store, out = golden_store(name), tmp_path_factory.mktemp("whole") / "out"
        return out, local_build(store.path, out, **store.broker_settings() | {"checkpoint": checkpoint})

    return get


@pytest.mark.parametrize("name", ["v2-ipv6-batch", "basic-4.9"])
@pytest.mark.parametrize("only", [parts for n in (1, 2) for parts in combinations(PARTS, n)])
def test_only_the_parts_asked_for(
    name: str, only: tuple[str, ...], golden_store: Stores, wholes: Callable[[str, str], tuple[Path, BuildResult]],
    tmp_path: Path,
) -> None:  # fmt: skip
    store = golden_store(name)
    for checkpoint in ("safe", "broker"):
        settings, part = store.broker_settings() | {"checkpoint": checkpoint}, tmp_path / checkpoint
        found = local_build(store.path, part, only=only, **settings)
        whole, all_of_it = wholes(name, checkpoint)
        assert sorted(path.name for path in part.iterdir()) == sorted([*only, "reindex.json"])
        expected = {path: content for path, content in read_files(whole).items() if path.split("/")[0] in only}
        assert read_files(part) == expected
        assert (found.exit, found.records) == (0, all_of_it.records)
        assert found.units == (all_of_it.units if "consumequeue" in only else 0)
        assert found.items == (all_of_it.items if "index" in only else 0)
        assert [entry["path"] for entry in json.loads((part / "reindex.json").read_text())["files"]] == sorted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_a_safe_checkpoint_seals_the_last_index_file(name: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store(name)
    settings = store.broker_settings() | {"checkpoint": "safe"}
    local_build(store.path, tmp_path / "out", **settings)
    *ours, last = index_in_order(read_files(tmp_path / "out"))
    *theirs, open_one = index_in_order(store.rebuilt())
    assert ours == theirs
    assert (last[:36], last[40:]) == (open_one[:36], open_one[40:])
    assert struct.unpack_from(">i", last, 36) == (settings["index_items"],)
    offset, _ = record_offsets(store.path)[-1]
    stored = _store_time(store.path, offset)
    ends = [struct.unpack_from(">q", content, 8)[0] for content in [*ours, last]]
    confirm = 0 if store.broker_version == "4.9" else offset
    logics_offset = offset if store.broker_version == "5.5" else 0
    fields = struct.pack(">6q", stored, stored, max(ends), 0, confirm, logics_offset)
    assert (tmp_path / "out" / "checkpoint").read_bytes() == fields.ljust(4096, b"\0")
    assert differences(store.path, tmp_path / "again", **settings) == []


def _store_time(store: Path, offset: int) -> int:
    """STORETIMESTAMP of the record at an absolute offset."""
    path = max(p for p in (store / "commitlog").iterdir() if int(p.name) <= offset)
    record = path.read_bytes()[offset - int(path.name) :]
    (sysflag,) = struct.unpack_from(">i", record, 36)
    return int(struct.unpack_from(">q", record, 48 + (20 if sysflag & 0x10 else 8))[0])


@pytest.mark.parametrize("items", [2, 3, 7])
def test_tiny_index_files(items: int, seed: int, tmp_path: Path) -> None:
    """A record's keys in many files, files that are just full, an empty last file."""
    kinds = (("5.3", "safe", 0), ("4.9", "broker", 2500), ("5.3", "broker", 700), ("4.9", "safe", 0))
    for number, (version, checkpoint, size) in enumerate(kinds):
        store = tmp_path / f"{number}"
        random_log(store / "commitlog", seed + number, records=12 + number, features=FEATURES - {"gaps", "v2"})
        settings = SMALL | {"index_items": items, "checkpoint": checkpoint, "broker_version": version}
        assert differences(store, tmp_path / "out", range_size=size, **settings) == []


def test_an_empty_last_file_is_not_sealed(tmp_path: Path) -> None:
    """A full file followed by a record without keys: the next file holds nothing, and has no end to keep."""
    with LogWriter(tmp_path / "commitlog") as writer:
        for number in range(3):
            writer.append(Message(properties={"KEYS": f"a{number} b{number}"}, store_timestamp=1_700_000_000_000 + number))
        writer.append(Message(store_timestamp=1_700_000_000_999))
    settings = SMALL | {"index_items": 7}
    local_build(tmp_path, tmp_path.with_name("out"), **settings)
    full, empty = index_in_order(read_files(tmp_path.with_name("out")))
    assert struct.unpack_from(">ii", full, 32)[1] == 7
    assert struct.unpack_from(">qqqqii", empty)[1::4] == (1_700_000_000_002, 1)
    assert not any(empty[40:])
    assert differences(tmp_path, tmp_path.with_name("out"), **settings) == []


@pytest.mark.parametrize(
    ("include", "exclude"),
    [(("TopicA",), ()), (("Topic*",), ("TopicB",)), ((), ("%RETRY%*", "*C")), (("SCHEDULE_*", "?opicB"), ()), (("none",), ())],
)
def test_topic_filters(include: tuple[str, ...], exclude: tuple[str, ...], golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("transactions-delay")
    for checkpoint in ("safe", "broker"):
        settings = store.broker_settings() | {"checkpoint": checkpoint, "include_topic": include, "exclude_topic": exclude}
        for size in (0, 1 << 17):
            assert differences(store.path, tmp_path / "out", range_size=size, **settings) == []
    settings = dict(store.sizes()) | {"include_topics": include, "exclude_topics": exclude, "allow_empty": True}
    summary = local_build(store.path, tmp_path / "more", **settings)
    assert any("partial build" in warning for warning in summary.warnings)


def test_filtered_topics_with_light_queues(seed: int, tmp_path: Path) -> None:
    for number in range(cases(4, 1)):
        store = tmp_path / f"{number}"
        random_log(store / "commitlog", seed + number, records=150, features=FEATURES - {"gaps"}, topics=8)
        for filters in ({"include_topic": ("*A", "a ?", "Т*")}, {"exclude_topic": ("%*", "Topic[A]")}):
            settings = {**SMALL, **filters, "lmq": True, "queue_order": "broker"}
            assert differences(store, tmp_path / "out", range_size=5000, **settings) == []


def test_until_an_offset(seed: int, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("v2-ipv6-batch")
    places = record_offsets(store.path)
    rng = random.Random(seed)
    first, last = places[0][0], places[-1]
    some, (size, more) = rng.choice(places)[0], rng.choice(places)
    second = first + (1 << 20)
    limits = [0, first, first + 1, some, some + 1, size + more - 1, second - 8, second, second + 1, last[0], sum(last), 1 << 40]
    tried = list(enumerate(limits))
    for number, limit in rng.sample(tried, cases(len(tried), 3)):
        ranges = (0, 1 << 17)[number % 2]
        settings = store.broker_settings() | {"until_offset": limit, "checkpoint": "safe"}
        assert differences(store.path, tmp_path / "out", range_size=ranges, **settings) == [], limit


def test_until_a_time(seed: int, tmp_path: Path) -> None:
    """The log ends before the first later record, wherever clocks went back; in whichever range that is."""
    store = tmp_path / "store"
    puts = random_log(store / "commitlog", seed, records=250)
    times = [put.message.store_timestamp for put in puts]
    rng = random.Random(seed)
    limits = (0, min(times) - 1, min(times), times[0], *rng.choices(times, k=4), max(times), 1 << 60)
    for limit in rng.sample(limits, cases(len(limits), 2)):
        for size in rng.sample((0, 3000), cases(2, 1)):
            settings = SMALL | {"until_time": limit, "queue_order": "broker"}
            assert differences(store, tmp_path / "out", range_size=size, **settings) == [], limit
            kept = next((n for n, time in enumerate(times) if time > limit), len(times))
            assert json.loads((tmp_path / "out" / "reindex.json").read_text())["counts"]["records"] == kept


def test_segments_spread_over_roots(golden_store: Stores, tmp_path: Path) -> None:
    """Segments of one log lie on several disks, none of them in the store's own folder; one disk is empty."""
    store = golden_store("basic-5.3")
    roots = [tmp_path / name for name in ("disk1", "disk2", "disk3")]
    for root in roots:
        root.mkdir()
    for number, path in enumerate(sorted((store.path / "commitlog").iterdir())):
        (roots[number % 2] / path.name).write_bytes(path.read_bytes())
    settings = store.broker_settings() | {"commitlogs": tuple(str(root) for root in roots)}
    for source in ("", store.path):
        summary = local_build(source, tmp_path / "out", range_size=1 << 19, overwrite=True, **settings)
        assert summary.exit == 0
        assert_is_rebuilt(tmp_path / "out", store)
    assert differences(store.path, tmp_path / "again", commitlog=roots, **store.broker_settings()) == []
    (roots[2] / f"{0:020d}").write_bytes((roots[0] / f"{0:020d}").read_bytes())
    twice = local_build("", tmp_path / "never", **settings)
    assert (twice.exit, (tmp_path / "never").exists()) == (1, False)
    assert "overlaps" in (twice.error or "")


def test_sizes_and_roots_from_a_broker_conf(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("v2-ipv6-batch")
    sizes = store.sizes()
    conf = tmp_path / "broker.conf"
    conf.write_text(
        f"# a broker's own file\nbrokerName=broker-a\nstorePathRootDir = {store.path}\nmappedFileSizeCommitLog={1 << 20}\n"
        f"mappedFileSizeConsumeQueue={sizes['cq_file_size']}\nmaxHashSlotNum={sizes['hash_slots']}\n"
        f"maxIndexNum : {sizes['index_items']}\n"
    )
    out = tmp_path / "out"
    words = ["--out", str(out), "--broker-conf", str(conf), "--broker-version", store.broker_version]
    words += ["--queue-order", "broker", "--checkpoint", "broker"]
    summary = run_build(parse_settings(words), single(InlineEngine()))
    assert summary.exit == 0
    assert_is_rebuilt(out, store)
    given = parse_settings([*words, "--index-items", "99", str(tmp_path)])
    assert (given.index_items, given.hash_slots, given.store) == (99, sizes["hash_slots"], str(tmp_path))
