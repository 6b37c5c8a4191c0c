"""What an incremental build reads, keeps, refuses and goes on with; that it equals a full one is for the machine to try."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.files import reading
from rocketmq_reindex.jobs.api.engines_ahead import needs_engine
from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.udfs.incremental.scan_store import unsealed
from tests.fault.disk import tree
from tests.incremental.machine import live, matching
from tests.incremental.world import SALVAGE, SEGMENT, World
from tests.tools.batch_log import BATCH_TOPICS, SIZES, random_batch_log
from tests.tools.encode import body_start
from tests.tools.faulty_children import Children
from tests.tools.faulty_runs import command
from tests.tools.local_engine import InlineEngine, local_build, run_build
from tests.tools.seeds import cases


def kept(out: Path) -> dict[str, tuple[int, int]]:
    """Of every file and folder: what tells it from any other, and when it was written."""
    return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in [out, *out.rglob("*")]}


def store_files(world: World, folder: str) -> list[Path]:
    return sorted(world.tables.glob(f"_scans/*/{folder}/*"))


@pytest.mark.random
def test_lives() -> None:
    live(cases(7, 1), 12)


def test_nothing_new(world: World) -> None:
    """No file is touched, no engine opened; what the build before said is said again."""
    rng = random.Random(1)
    for _ in range(3):
        world.damage(rng)
    # Those bits may all be some that no checksum covers. The magic code of a record is always looked at.
    oldest = world.segments()[0]
    data = oldest.read_bytes()
    oldest.write_bytes(data[:4] + b"none" + data[8:])
    first = world.build()
    before = kept(world.out)

    def no_engine() -> Any:
        raise AssertionError("Spark was asked for")

    words = BuildSettings(
        store=str(world.store), out=str(world.out), tables=str(world.tables), incremental=True, on_damage="salvage",
        cq_file_size=400, hash_slots=50, index_items=60,
    )  # fmt: skip
    again = run_build(words.check(), no_engine)
    assert (again.exit, again.damage, again.records) == (first["exit"], first["damage"], first["records"])
    assert again.warnings == first["warnings"]
    assert {event for event, *_ in again.events()} >= {"damage"}, "a log of events says again what they were"
    assert again.incremental
    assert again.incremental["nothing_new"]
    assert again.to_text().startswith("nothing new")
    assert kept(world.out) == before


def test_what_starts_spark_ahead(world: World) -> None:
    """A log of other sizes than that of the build in DIR, a newest segment of another time; no build there that is known."""
    settings = BuildSettings(
        store=str(world.store), out=str(world.out), tables=str(world.tables), incremental=True, on_damage="salvage"
    )

    def ahead(**more: Any) -> bool:
        words = dataclasses.replace(settings, **more).check()
        return needs_engine(words, look_at(words))

    assert ahead()
    world.build()
    assert not ahead()
    manifest = (world.out / "reindex.json").read_bytes()
    (world.out / "reindex.json").unlink()
    assert not ahead(), "it may be put back"
    (world.out / "reindex.json").write_bytes(manifest)
    assert ahead(tables=str(world.tables / "others"))
    assert ahead(incremental=False, overwrite=True)
    assert not ahead(incremental=False, overwrite=True, dry_run=True)
    world.append(random.Random(2), 1)
    assert ahead()


def test_old_segments_are_not_read_again(tmp_path: Path, seed: int) -> None:
    """Bytes of an old segment that change behind everybody's back are not seen, but by --recheck."""
    rng, segment = random.Random(seed), 1 << 16
    world = World(tmp_path)
    world.writer.segment_size = segment
    world.append(rng, 1200)
    world.build()
    old = world.segments()[0]
    found, data = old.stat(), bytearray(old.read_bytes())
    put = next(put for put in world.writer.puts if put.offset > segment // 4)
    data[put.offset + body_start(put.message)] ^= 1
    old.write_bytes(data)
    os.utime(old, ns=(found.st_atime_ns, found.st_mtime_ns))
    count = len(world.segments())
    world.roll()
    world.append(rng, 20)
    summary = world.incremental()
    assert (summary["exit"], summary["damage"]) == (0, [])
    said = summary["incremental"]
    # The last segment ended in a filler, and there is a new one: both are scanned, of the others a few pages are read.
    assert (said["ranges"], said["ranges_known"]) == (count + 1, count - 1)
    assert said["bytes_read"] <= 2 * segment + 5 * 4096 * (count + 3)
    summary = world.build("--recheck")
    assert summary["incremental"]["ranges_known"] == count
    assert summary["exit"] == 3


def test_a_time_alone_is_no_change(world: World) -> None:
    """A segment that was copied is compared whole, and not scanned; what was built stays."""
    world.build()
    before = kept(world.out)
    for path in world.segments():
        os.utime(path)
    summary = world.build()
    said = summary["incremental"]
    assert (said["nothing_new"], said["ranges_known"]) == (False, said["ranges"])
    assert kept(world.out) == before
    assert world.incremental()["incremental"]["nothing_new"]


def test_the_last_segment_is_scanned_from_the_range_it_ended_in(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    world = World(tmp_path)
    world.append(rng, 10)
    (path,) = world.segments()
    chunk = 64 << 20
    world.words = (*SALVAGE, "--range-size", str(chunk))
    os.truncate(path, 3 * chunk)
    assert world.incremental()["incremental"]["ranges"] == 3
    data = path.open("r+b")
    world.append(rng, 1)
    with data, path.open("rb") as grown:
        data.write(grown.read(SEGMENT))
    os.truncate(path, 3 * chunk)
    summary = world.incremental()
    assert summary["records"] == 11
    assert (summary["incremental"]["ranges"], summary["incremental"]["ranges_known"]) == (3, 2)
    full, _ = command(world.store, world.full, *world.words)
    assert full["records"] == 11
    assert tree(world.out) == tree(world.full)


def test_each_byte_is_read_once(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a segment that grew, each byte: known ones for a digest, others by the scan. Of other segments, pages for samples."""
    chunk, body = 64 << 20, 1 << 20
    world, rng, counted = World(tmp_path), random.Random(seed), [0]
    world.writer.segment_size = 2 * chunk
    world.words = (*SALVAGE, "--range-size", str(chunk))
    drawn = rng.randbytes(body - 8)

    def count(name: str, length: Callable[[Any], int]) -> None:
        whole = getattr(reading.Reader, name)

        def counting(self: reading.Reader, at: int, what: Any) -> Any:
            found = whole(self, at, what)
            counted[0] += length(found) if "/commitlog/" in self.path else 0
            return found

        monkeypatch.setattr(reading.Reader, name, counting)

    count("_read_some", int)
    count("view", lambda view: 0 if view is None else len(view))
    # Within a range, over the edge of a range, into a new segment, whose predecessor gets a filler, and nothing but a time.
    steps, other = [(40, 1), (4, 1), (30, 1), (70, 2), (0, 1)], [(rng.randrange(1, 60), 1), (rng.randrange(1, 60), 1), (0, 1)]
    for grown, changed in cases(steps, other):
        for _ in range(grown):
            world.writer.append(world._message(rng, body=rng.randbytes(8) + drawn))
        world.writer.close()
        last = world.segments()[-1]
        os.truncate(last, 2 * chunk)
        counted[0] = 0
        said = world.incremental()["incremental"]
        assert said["nothing_new"] is False
        # Pages, the sample for the plan of a first run, and a record that lies across the end of a range.
        more = said["ranges"] * (10 * 4096 + body + 4096) + (4 << 20)
        assert counted[0] <= changed * 2 * chunk + more, (grown, said)
        assert abs(counted[0] - said["bytes_read"]) <= more
        assert said["ranges"] - said["ranges_known"] <= 3
    full, _ = command(world.store, world.full, *world.words)
    assert full["exit"] == 0
    assert tree(world.out) == tree(world.full)


def test_full_files_are_linked_and_others_copied(world: World) -> None:
    """A broker may have a file with room open, and write into it: a build never shares it."""
    world.append(random.Random(2), 300)
    world.build()
    entries = {entry["path"]: entry for entry in json.loads((world.out / "reindex.json").read_text())["files"]}
    before = {path: (world.out / path).stat() for path in entries}
    rng = random.Random(3)
    message = world._message(rng, topic="A", queue_id=0)
    world.writer.append(message)
    world.writer.close()
    held = {path: (world.out / path).open("r+b") for path in entries}
    summary = world.build()
    assert summary["incremental"]["files_kept"] > 5
    linked = {
        path for path in entries if (world.out / path).exists() and (world.out / path).stat().st_ino == before[path].st_ino
    }
    assert linked
    assert all(entries[path]["used"] == entries[path]["size"] for path in linked)
    after = tree(world.out)
    for path, file in held.items():
        if path not in linked:
            file.write(b"a broker at work")
        file.close()
    assert tree(world.out) == after


@pytest.mark.parametrize("by", [-(10**9), 1])
def test_a_clock_that_ran_ahead_hides_no_change(by: int, world: World) -> None:
    """A file of the same size and of any other time than its own is another, also of one before the manifest's."""
    world.build()
    whole = tree(world.out)
    for part in ("consumequeue", "index", "checkpoint"):
        path = next(path for path in (world.out / part, *sorted((world.out / part).rglob("*"))) if path.is_file())
        found = path.stat()
        path.write_bytes(bytes(found.st_size))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + by))
        assert not world.incremental()["incremental"]["nothing_new"], part
        assert tree(world.out) == whole
    assert world.incremental()["incremental"]["nothing_new"]


def test_times_behind_a_uri(world: World) -> None:
    """Each build's files are copies with times of their own."""
    out, tables = (world.store.parent / "published").as_uri(), str(world.store.parent / "tables-of-uri")

    def build() -> dict[str, Any]:
        told = local_build(world.store, out, None, incremental=True, tables=tables, cq_file_size=400, hash_slots=7)  # type: ignore[arg-type]
        assert (told.exit, told.incremental is None) == (0, False), told.error
        return told.incremental or {}

    build()
    first = Path(layout.build_folder(out, layout.pointers(out)[-1].build).removeprefix("file://"))
    assert build()["nothing_new"]
    path = next(path for path in sorted((first / "consumequeue").rglob("*")) if path.is_file())
    data, found = path.read_bytes(), path.stat()
    path.write_bytes(bytes(len(data)))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - 10**10))
    assert not build()["nothing_new"]
    second = Path(layout.build_folder(out, layout.pointers(out)[-1].build).removeprefix("file://"))
    assert (second != first, (second / path.relative_to(first)).read_bytes()) == (True, data)
    assert build()["nothing_new"]


def test_times_are_kept_of_what_stands_there(world: World) -> None:
    """Also by a run that reads all anew and finds the same: it publishes nothing, and what it wrote aside has other times."""
    world.build()
    before = kept(world.out)
    for words in (("--recheck",), ("--recheck", "--range-size", str(SEGMENT))):
        world.build(*words)
        assert kept(world.out) == before
    assert world.incremental()["incremental"]["nothing_new"]
    manifest = (world.out / "reindex.json").read_bytes()
    assert b"modified" not in manifest


def test_changed_results_are_written_again(world: World) -> None:
    world.build()
    whole = tree(world.out)
    for path in sorted((world.out / "consumequeue").rglob("?" * 20))[:2]:
        path.write_bytes(bytes(path.stat().st_size))
    (world.out / "checkpoint").unlink()
    world.build()
    assert tree(world.out) == whole
    path = next((world.out / "index").iterdir())
    found = path.stat()
    path.write_bytes(bytes(found.st_size))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert world.incremental()["incremental"]["nothing_new"], "size and time are trusted"
    world.build("--recheck")
    assert tree(world.out) == whole
    before = kept(world.out)
    derived = [
        path for part in ("consumequeue", "index") for path in (world.out / part).rglob("?" * 17 + "*") if path.is_file()
    ]
    assert world.build("--recheck")["incremental"]["files_kept"] == len(derived)
    assert kept(world.out) == before


@pytest.mark.parametrize(
    ("operations", "path", "known"),
    [
        ("replace", "/entries/", 3),
        ("replace", "/tree/consumequeue/", None),
        ("replace", "/tree/reindex.json$", None),
        ("replace", r"/builds/[0-9a-f]{32}$", None),
        ("rename", "/sealed$", None),
    ],
    ids=["scanning", "writing", "manifest", "saved", "sealed"],
)
def test_a_killed_run_is_gone_on_with(world: World, warm: Children, operations: str, path: str, known: int | None) -> None:
    number = known or 1
    words = (*SALVAGE, "--incremental", "--tables", str(world.tables))
    status = warm.run(world.store, world.out, *words, kind="kill-after", number=number, operations=operations, path=path)
    assert status == -signal.SIGKILL
    assert not world.out.exists()
    summary = world.build()
    said = summary["incremental"]
    assert said["ranges_known"] == (known or said["ranges"])
    if not known:
        assert said["bytes_read"] <= 5 * 4096 * said["ranges"]
    assert sorted(os.listdir(world.out.parent)) == ["out"]


def test_killed_behind_the_rename(world: World, warm: Children) -> None:
    """It was published: the next run finds nothing new, and the one after that sweeps what the killed one could not."""
    words = (*SALVAGE, "--incremental", "--tables", str(world.tables))
    status = warm.run(world.store, world.out, *words, kind="kill-after", number=1, operations="rename|renameat2", path="/out$")
    assert status == -signal.SIGKILL
    assert world.incremental()["incremental"]["nothing_new"]


def test_what_is_not_used_is_swept(world: World) -> None:
    rng = random.Random(5)
    for later in reversed(range(6)):
        world.roll()
        world.append(rng, 10)
        world.expire()
        if later:
            # To compare each with a full build takes twice as long as all of them.
            world.incremental()
            world._remember()
        else:
            world.build()
    live_ranges = len(world.segments())
    assert len(store_files(world, "builds")) == 4 * 2
    assert live_ranges <= len(store_files(world, "entries")) <= live_ranges + 1
    builds = [json.loads(unsealed(path.read_bytes())) for path in store_files(world, "builds") if not path.suffix]
    used = {name for build in builds for entry in build["ranges"] + build["expired"] for name, _, _ in entry["data"].values()}
    assert {path.name for path in store_files(world, "data")} == used
    assert store_files(world, "temporary") == []


def test_a_spoilt_store(world: World) -> None:
    """What is not whole is scanned again; rows that are not what was written are an error; --recheck mends."""
    world.build()
    runs = next(path for path in store_files(world, "data") if path.suffix == ".runs")
    os.truncate(runs, runs.stat().st_size - 1)
    world.append(random.Random(2), 1)
    assert world.build()["exit"] == 0
    runs = next(path for path in store_files(world, "data") if path.suffix == ".runs")
    data = bytearray(runs.read_bytes())
    data[len(data) // 2] ^= 1
    runs.write_bytes(data)
    world.append(random.Random(3), 1)
    summary = world.incremental()
    if summary["exit"]:
        assert "is not as an earlier run wrote it" in summary["error"]
    assert world.build("--recheck")["exit"] == 0
    for path in store_files(world, "entries"):
        path.write_bytes(b"")
    world.append(random.Random(4), 1)
    assert world.build()["incremental"]["ranges_known"] == 0


@pytest.mark.parametrize(("folder", "numbers"), [("/builds/", range(8, 14)), ("/entries/", range(8, 13))])
def test_an_error_of_the_disk_forgets_nothing(tmp_path: Path, folder: str, numbers: range) -> None:
    """What cannot be read now may be read later: the run ends, and the next one goes on from the build before.

    The first segment has expired, so a run that forgot that build would cut its IndexFiles anew.
    """
    for number in numbers:
        world = World(tmp_path / str(number))
        world.append(random.Random(0), 75)
        world.build()
        world.expire()
        fault = matching(folder)
        fault.number = number
        summary = world.broken(fault)
        assert (summary["exit"], "Input/output error" in (summary["error"] or "")) == (1, True), fault.where
        known = world.build()["incremental"]
        assert known["ranges_known"] == known["ranges"], fault.where


@pytest.mark.parametrize("folder", ["entries", "builds"])
def test_a_bit_of_the_store_flips(world: World, seed: int, folder: str) -> None:
    """What the store says of ranges and builds is taken from it unchanged, or not at all."""
    rng = random.Random(seed)
    for _ in range(cases(4, 1)):
        world.build()
        for path in store_files(world, folder):
            data = bytearray(path.read_bytes())
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                path.write_bytes(data)
        world.append(rng, 1)
        summary = world.build()
        assert summary["incremental"]["files_kept"] == 0 or folder == "entries"
        assert summary["incremental"]["ranges_known"] == 0 or folder == "builds"


def test_another_log_of_the_same_offsets(tmp_path: Path, seed: int) -> None:
    """IndexFiles go on with those of the log that was there, not with whatever has segments of the same names."""
    one, other = World(tmp_path / "one"), World(tmp_path / "other")
    for world, number in ((one, seed), (other, seed + 1)):
        world.append(random.Random(number), 150)
    one.build()
    other.segments()[0].unlink()
    other.segments()[0].unlink()
    words = (*SALVAGE, "--incremental", "--tables", str(one.tables))
    summary, said = command(other.store, one.out, *words)
    assert summary["exit"] == 0
    assert "incremental: IndexFiles start over: they do not continue those of the build before" in said.splitlines()
    assert command(other.store, other.full, *SALVAGE)[0]["exit"] == 0
    assert tree(one.out) == tree(other.full)


def test_index_files_that_go_on_are_not_said_to_start_over(world: World) -> None:
    """Segments expire; what is left of the files goes on. Only other settings let them start over then."""
    rng, words = random.Random(5), (*SALVAGE, "--incremental", "--tables", str(world.tables))
    for more in ((), (), (), ("--lmq",)):
        world.roll()
        world.append(rng, 10)
        world.expire()
        summary, said = command(world.store, world.out, *words, *more)
        assert summary["exit"] == 0
        assert ("incremental: IndexFiles start over" in said) == bool(more)


def test_other_settings(world: World) -> None:
    """A full scan, said in one line; then the settings before, again from the beginning of DIR's files."""
    world.build()
    told = []
    for more in (("--lmq",), ("--cq-file-size", "200")):
        summary, said = command(world.store, world.out, *world.words, *more, "--incremental", "--tables", str(world.tables))
        assert summary["incremental"]["ranges_known"] == 0
        told.append([line for line in said.splitlines() if line.startswith("incremental: other settings")])
    assert [len(lines) for lines in told] == [1, 1]


@pytest.mark.parametrize("order", ["logical", "broker"])
def test_batch_queues(tmp_path: Path, seed: int, order: str) -> None:
    """Each file of a batch queue depends on all units before it."""
    store, later = tmp_path / "store", tmp_path / "later"
    random_batch_log(store / "commitlog", seed, records=cases(400, 150))
    later.mkdir()
    segments = sorted((store / "commitlog").iterdir())
    for path in segments[len(segments) // 2 :]:
        shutil.move(path, later / path.name)
    more: dict[str, Any] = {
        **SIZES,
        "batch_topics": BATCH_TOPICS,
        "queue_order": order,
        "on_damage": "salvage",
        "max_fill": 10**9,
    }
    for step in range(3):
        for out, how in (("out", {"incremental": True, "tables": str(tmp_path / "tables")}), ("full", {"overwrite": True})):
            summary = local_build(store, tmp_path / out, InlineEngine(3, 2), **more, **how)
            assert summary.exit in (0, 3), summary.error
        found, truth = tree(tmp_path / "out"), tree(tmp_path / "full")
        assert found is not None
        assert truth is not None
        if step < 2:
            assert found == truth
        queues = [{name: data for name, data in made.items() if "consumequeue" in name} for made in (found, truth)]
        assert queues[0] == queues[1]
        if step == 0:
            for path in later.iterdir():
                shutil.move(path, store / "commitlog" / path.name)
        else:
            segments[0].unlink(missing_ok=True)


def test_what_cannot_be(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.append(random.Random(1), 3)
    for words, status, told in (
        (("--incremental",), 2, "--tables"),
        (("--recheck",), 2, "--incremental"),
        (("--incremental", "--tables", str(world.log)), 1, "lies inside"),
        (("--incremental", "--tables", str(world.out)), 1, "lies inside"),
    ):
        summary, _ = command(world.store, world.out, *words)
        assert summary["exit"] == status
        assert told in summary["error"]
        assert not world.out.exists()
    (world.out / "of somebody").mkdir(parents=True)
    summary = world.incremental()
    assert summary["exit"] == 1
    assert "which no build writes" in summary["error"]


def test_segments_that_went_from_the_logs_end_are_told(world: World) -> None:
    """A copy of the log that is not whole gives a build without those messages, whose exit status is that of a full build."""
    world.build()
    words = (*world.words, "--incremental", "--tables", str(world.tables))
    gone = world.segments()[-1]
    gone.unlink()
    told, _ = command(world.store, world.out, *words)
    assert f"the log now ends before segment {gone.name}, which the build before had" in "\n".join(told["notes"])
    world.segments()[0].unlink()
    told, _ = command(world.store, world.out, *words)
    assert "the log now ends" not in "\n".join(told["notes"])
