"""fetch proves that a build is of the store's log: the logs are those of real brokers, whose segments have the same names."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.commands import fetch, preflight
from rocketmq_reindex.jobs.fetching import build as fetching_build
from rocketmq_reindex.storage_format.digest import KIND
from tests.fault.disk import tiny_store, tree
from tests.golden.stores import GoldenStore, unpack
from tests.tools.local_engine import local_build, local_repair
from tests.tools.log_writer import overwrite

SIZES: dict[str, Any] = {"cq_file_size": 4000, "hash_slots": 500, "index_items": 1500}
MIB = 1 << 20


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logs of real brokers, and builds of them."""
    folder = tmp_path_factory.mktemp("brokers")
    for name, version in (("a", "basic-5.3"), ("b", "wide-keys")):
        golden: GoldenStore = unpack(version, folder)
        shutil.copytree(golden.path / "commitlog", folder / name / "commitlog")
        assert local_build(folder / name, folder / f"built-{name}", None, **SIZES).exit == 0
    return folder


@pytest.fixture
def store(brokers: Path, tmp_path: Path) -> Path:
    """A store with the log of the first broker, and derived files of its own."""
    shutil.copytree(brokers / "a", tmp_path / "store")
    own = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"own")
    return tmp_path / "store"


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def older(build: Path, folder: Path) -> Path:
    """The same build as a version made it that did not write samples of the log."""
    shutil.copytree(build, folder)
    manifest = json.loads((folder / "reindex.json").read_bytes())
    del manifest["log"]
    (folder / "reindex.json").write_text(json.dumps(manifest))
    return folder


def refused(build: Path, store: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line of a fetch that ends with 1 and leaves the store as it is."""
    before = tree(store)
    for more in (("--dry-run",), ()):
        capsys.readouterr()
        assert fetch([str(build), "--to", str(store), *words, *more]) == 1
        lines = capsys.readouterr().err.splitlines()
        (first,) = (number for number, line in enumerate(lines) if line.startswith("error: "))
        # What is wrong, what to do, and what else goes.
        assert len(lines[first:]) <= 3
        assert max(map(len, lines[first:])) < 300
    found = tree(store)
    assert found is not None
    assert found | {"lock": b""} == (before or {}) | {"lock": b""}
    return "\n".join(lines[first:])


@pytest.mark.parametrize("is_older", [False, True], ids=["samples", "chunks"])
def test_the_build_of_another_broker(
    is_older: bool, brokers: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {path.name for path in segments(brokers / "b")} <= {path.name for path in segments(store)}
    builds = {name: brokers / f"built-{name}" for name in "ab"}
    if is_older:
        builds = {name: older(build, tmp_path / name) for name, build in builds.items()}
    line = refused(builds["b"], store, capsys)
    assert f"{store}/commitlog/{0:020d}: bytes 0 to " in line
    assert "are not those that the build read" in line
    assert "--other-log lays it out all the same" in line
    assert fetch([str(builds["a"]), "--to", str(store)]) == 0
    # As its advice says.
    assert fetch([str(builds["b"]), "--to", str(store), "--other-log"]) == 0


def cut(store: Path, at: int) -> None:
    """End the log there: zeros follow, as where a broker has written nothing yet."""
    for path in segments(store):
        start = int(path.name)
        if start + MIB > at:
            path.write_bytes(path.read_bytes()[: max(0, at - start)].ljust(MIB, b"\0"))


def expired(store: Path) -> None:
    for path in segments(store)[:2]:
        path.unlink()


def made_ahead(store: Path) -> None:
    (store / "commitlog" / f"{len(segments(store)) * MIB:020d}").write_bytes(bytes(MIB))


def both(store: Path) -> None:
    made_ahead(store)
    expired(store)


SAME: dict[str, Callable[[Path], object]] = {
    "as it was": lambda _: None,
    "first segments expired": expired,
    "a segment made ahead": made_ahead,
    "both": both,
}


@pytest.mark.parametrize("is_older", [False, True], ids=["samples", "chunks"])
@pytest.mark.parametrize("change", SAME)
def test_a_log_that_lives_on(change: str, is_older: bool, brokers: Path, store: Path, tmp_path: Path) -> None:
    SAME[change](store)
    build = older(brokers / "built-a", tmp_path / "older") if is_older else brokers / "built-a"
    assert fetch([str(build), "--to", str(store)]) == 0


def record_starts(brokers: Path) -> list[int]:
    """Where records of the first log begin, by its ConsumeQueues."""
    starts = []
    for path in (brokers / "built-a" / "consumequeue").rglob("0*"):
        if path.is_file():
            data = path.read_bytes()
            starts += [int.from_bytes(data[at : at + 8], "big") for at in range(0, len(data), 20)]
    return sorted(set(starts))


def test_a_log_that_has_grown(brokers: Path, store: Path, tmp_path: Path) -> None:
    """In its last segment, and by segments."""
    starts = record_starts(brokers)
    for number, at in enumerate((starts[1], starts[len(starts) // 3], starts[-1])):
        young = tmp_path / f"young-{number}"
        shutil.copytree(brokers / "a", young)
        cut(young, at)
        built = tmp_path / f"built-{number}"
        assert local_build(young, built, None, **SIZES).exit == 0
        assert fetch([str(built), "--to", str(store)]) == 0


def test_a_log_that_lost_a_segment_between_others(
    brokers: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    segments(store)[2].unlink()
    assert f"lacks 1 segment between others, from {2 * MIB:020d} on" in refused(brokers / "built-a", store, capsys)
    segments(store)[0].unlink()
    segments(store)[0].unlink()
    assert fetch([str(brokers / "built-a"), "--to", str(store)]) == 0, "the first ones have expired"


def test_a_log_that_was_cut(brokers: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut(store, record_starts(brokers)[-2])
    assert "or this one was cut since" in refused(brokers / "built-a", store, capsys)
    segments(store)[-1].unlink()
    assert "was it cut?" in refused(brokers / "built-a", store, capsys)


def test_a_log_that_was_cut_and_written_on(brokers: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only its last record is another."""
    overwrite(store / "commitlog", record_starts(brokers)[-1] + 40, b"\1")
    assert "or this one was cut since" in refused(brokers / "built-a", store, capsys)


def test_the_build_of_a_slave(brokers: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its log begins later: the master's first messages would not be served."""
    slave = tmp_path / "slave"
    shutil.copytree(brokers / "a", slave)
    expired(slave)
    assert local_build(slave, tmp_path / "built", None, **SIZES).exit == 0
    line = refused(tmp_path / "built", store, capsys)
    assert f"begins at offset 0, 2 segments before the log that was built, which begins at {2 * MIB}" in line
    expired(store)
    assert fetch([str(tmp_path / "built"), "--to", str(store)]) == 0


def test_segments_of_another_size(brokers: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_store(tmp_path / "tiny")
    assert local_build(tmp_path / "tiny", tmp_path / "built", None, **SIZES).exit == 0
    assert "bytes, the segment that the build read has 2,048" in refused(tmp_path / "built", store, capsys)
    shutil.copytree(tmp_path / "tiny", tmp_path / "small")
    assert "has 2,048 bytes, the segment that the build read has 1,048,576" in refused(
        brokers / "built-a", tmp_path / "small", capsys
    )


def test_a_log_elsewhere(brokers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a log nothing is proved, and a note says so; --commitlog says where it lies."""
    (tmp_path / "store").mkdir()
    words = [str(brokers / "built-b"), "--to", str(tmp_path / "store")]
    assert fetch([*words, "--commitlog", str(brokers / "a" / "commitlog")]) == 1
    assert "are not those that the build read" in capsys.readouterr().err
    assert fetch([*words, "--commitlog", str(brokers / "b" / "commitlog")]) == 0
    assert "holds no segment" not in capsys.readouterr().err
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "store").mkdir()
    assert fetch(words) == 0
    assert "holds no segment, so nothing shows that the build is of the store's log" in capsys.readouterr().err


def test_a_repair_is_of_its_own_log(store: Path, tmp_path: Path) -> None:
    """The log that it wrote, once that is in its place; lost segments, too, which the damaged one did not have."""
    overwrite(store / "commitlog", 10, b"\1\1\1")
    segments(store)[2].unlink()
    assert local_repair(store, tmp_path / "mended", None, **SIZES).exit == 3
    shutil.rmtree(store / "commitlog")
    shutil.copytree(tmp_path / "mended" / "commitlog", store / "commitlog")
    assert fetch([str(tmp_path / "mended"), "--to", str(store)]) == 0


@pytest.mark.parametrize("chunk", [1 << 26, 1 << 13], ids=["within a chunk", "longer than a chunk"])
def test_a_repair_beside_the_damaged_log(
    chunk: int, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its units would lead into the damage, wherever that is: far from what shows that it is the same log."""
    monkeypatch.setattr(fetching_build, "CHUNK", chunk)
    overwrite(store / "commitlog", MIB + MIB // 2, b"\1" * 3000)
    damaged, mended = tree(store), tmp_path / "mended"
    assert local_repair(store, mended, None, **SIZES).exit == 3
    capsys.readouterr()
    assert fetch([str(mended), "--to", str(store)]) == 1
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.startswith(f"error: {store}/commitlog/{MIB:020d}: bytes ")
    assert f": put the commitlog of {mended} in place first, and fetch then:" in first
    assert len(rest) == 2
    assert {name: data for name, data in (tree(store) or {}).items() if name != "lock"} == damaged
    shutil.copytree(mended / "commitlog", store / "commitlog", dirs_exist_ok=True)
    assert fetch([str(mended), "--to", str(store)]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / "bare").mkdir()
    assert fetch([str(mended), "--to", str(tmp_path / "bare")]) == 0
    assert f"neither the repaired log in {mended} nor a broker's config/ comes with a build" in capsys.readouterr().err


# -- builds that leave something out


PARTIAL: dict[str, tuple[dict[str, Any], str]] = {
    "a part": ({"only": ("index",)}, "only index"),
    "a topic": ({"include_topics": ("TopicA",)}, "only topics TopicA"),
    "no topic": ({"exclude_topics": ("TopicA", "%RETRY%*")}, "no topics TopicA, %RETRY%*"),
    "an offset": ({"until_offset": 2_000_000}, "up to offset 2000000"),
}


@pytest.mark.parametrize("what", PARTIAL)
def test_a_build_of_a_part(what: str, brokers: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings, told = PARTIAL[what]
    assert local_build(brokers / "a", tmp_path / "built", None, **SIZES, **settings).exit == 0
    assert f"leaves something out ({told}): take a build of everything" in refused(tmp_path / "built", store, capsys)
    assert fetch([str(tmp_path / "built"), "--to", str(store), "--partial"]) == 0


def test_a_build_up_to_damage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overwrite(store / "commitlog", 2 * MIB + 10, b"\1\1\1")
    assert local_build(store, tmp_path / "built", None, **SIZES, on_damage="stop").exit == 3
    assert f"(up to damage at offset {2 * MIB})" in refused(tmp_path / "built", store, capsys)
    assert fetch([str(tmp_path / "built"), "--to", str(store), "--partial"]) == 0


def test_a_build_that_passed_over_damage(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is laid out, and the start that would cut the log is warned of; what is named says it."""
    overwrite(store / "commitlog", (len(segments(store)) - 1) * MIB + 20_000, b"\xda" * 3000)
    assert local_build(store, tmp_path / "built", None, on_damage="salvage", **SIZES).exit == 3
    for more in (["--dry-run"], []):
        capsys.readouterr()
        assert fetch([str(tmp_path / "built"), "--to", str(store), *more]) == 0
        (warning,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
        assert "the build passed over damage at offset " in warning
        assert warning.endswith(f": ask before the start: rmq-reindex preflight {store}")
    assert preflight([str(store)]) == 4
    found = re.search(r"damage at offset (\d+)", warning)
    assert found is not None
    assert f"cut at {found[1]} " in capsys.readouterr().out
    assert local_build(store, tmp_path / "stopped", None, on_damage="stop", **SIZES).exit == 3
    assert fetch([str(tmp_path / "stopped"), "--to", str(store), "--partial"]) == 0
    assert "passed over" not in capsys.readouterr().err


def test_an_offset_behind_the_log_leaves_nothing_out(brokers: Path, store: Path, tmp_path: Path) -> None:
    assert local_build(brokers / "a", tmp_path / "built", None, **SIZES, until_offset=1 << 40).exit == 0
    assert fetch([str(tmp_path / "built"), "--to", str(store)]) == 0


def test_a_build_of_nothing(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a disk that was not mounted: the store's own derived files stay."""
    (tmp_path / "bare" / "commitlog").mkdir(parents=True)
    assert local_build(tmp_path / "bare", tmp_path / "built", None, **SIZES).exit == 0
    assert "has 5 segments, the build was made from none" in refused(tmp_path / "built", store, capsys)
    assert "--allow-empty" in refused(tmp_path / "built", store, capsys, "--other-log")
    (store / "commitlog").rename(tmp_path / "away")
    assert "has consumequeue, the build has no record" in refused(tmp_path / "built", store, capsys)
    assert fetch([str(tmp_path / "built"), "--to", str(store), "--allow-empty"]) == 0
    # Of a new broker's segment of zeros, beside a log with records.
    (tmp_path / "bare" / "commitlog" / f"{0:020d}").write_bytes(bytes(MIB))
    assert local_build(tmp_path / "bare", tmp_path / "zeros", None, **SIZES).exit == 0
    (tmp_path / "away").rename(store / "commitlog")
    assert "has records, the build has none" in refused(tmp_path / "zeros", store, capsys)
    assert fetch([str(tmp_path / "zeros"), "--to", str(tmp_path / "bare")]) == 0


# -- the manifest is not believed


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no list": lambda log: log.update(samples=5),
    "too many": lambda log: log.update(samples=log["samples"] * 100),
    "a length of gigabytes": lambda log: log["samples"][0].update(length=1 << 40),
    "an offset below zero": lambda log: log["samples"][0].update(offset=-1),
    "no digest": lambda log: log["samples"][0].update(digest="x"),
    "an end that is text": lambda log: log.update(end="5"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_samples_are_not_believed(
    what: str, brokers: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(brokers / "built-a", tmp_path / "built")
    manifest = json.loads((tmp_path / "built" / "reindex.json").read_bytes())
    assert manifest["digest"] == KIND
    HOSTILE[what](manifest["log"])
    (tmp_path / "built" / "reindex.json").write_text(json.dumps(manifest))
    assert "reindex.json: " in refused(tmp_path / "built", store, capsys)
