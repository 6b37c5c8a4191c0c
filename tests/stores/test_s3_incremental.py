"""``build --incremental`` in a bucket: what it asks for, what a kill leaves, and two at the same time."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import last_build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.scanning import store_of
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.publishing import builds as output_builds, layout as output_alive, output
from rocketmq_reindex.jobs.publishing.layout import Leftovers
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.handover import Batches
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore
from tests.fault.disk import tree
from tests.stores.bucket_world import BucketWorld
from tests.tools.faulty_children import Children, children
from tests.tools.local_engine import InlineEngine, local_build, run_build, single
from tests.tools.s3_door import s3_door

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
SEGMENT = 1 << 14
PATIENCE = 900


@pytest.fixture
def world(bucket_by_environment: str, tmp_path: Path, seed: int) -> BucketWorld:
    made = BucketWorld(tmp_path, bucket_by_environment)
    made.writer.segment_size = SEGMENT
    made.append(random.Random(seed), 100)
    made.upload()
    return made


@pytest.fixture(scope="module")
def warm(bucket: str) -> Iterator[Children]:  # noqa: ARG001  its environment
    with children() as found:
        yield found


def settings(world: BucketWorld, door: str = "", **more: Any) -> BuildSettings:
    store, out, tables = world.places(door)
    return BuildSettings(store=store, out=out, tables=tables, incremental=True, **SIZES, **more).check()


def build(world: BucketWorld, engine: InlineEngine | None = None, *, door: str = "", **more: Any) -> BuildResult:
    summary = run_build(settings(world, door, **more), single(engine or InlineEngine()))
    assert (summary.exit, summary.error) == (0, None)
    return summary


def told(summary: BuildResult, name: str) -> Any:
    assert summary.incremental
    return summary.incremental[name]


def scans(world: BucketWorld) -> ScanStore:
    return store_of(settings(world), world.builds)


def assert_is_full_build(world: BucketWorld, **more: Any) -> None:
    world.bring()
    assert local_build(world.store, world.full, overwrite=True, **SIZES, **more).exit == 0
    assert tree(world.out) == tree(world.full)


def test_what_is_asked_for(world: BucketWorld, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what stays no byte is read or sent; a run that finds nothing new writes nothing and starts no engine."""
    world.append(random.Random(seed + 2), 100)
    world.upload()
    build(world)
    before = world.newest()
    world.append(random.Random(seed + 1), 3)
    world.upload()
    with s3_door(os.environ["AWS_ENDPOINT_URL"]) as (endpoint, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
        summary = build(world, door="what-is-asked-for")
        # By path: a request that is not answered within seconds is sent once more.
        written = {one.path for one in asked if one.kind == "PUT" and re.search("/builds/.*/(consumequeue|index)/", one.path)}
        copied = {one.path for one in asked if one.kind == "COPY"}
        assert len(copied) == told(summary, "files_kept") > 2
        assert len(copied) + len(written) == sum(summary.files.values())
        old = f"/builds/{files.base(before)}/"
        assert {files.base(one.path) for one in asked if old in one.path and one.kind == "GET"} <= {"reindex.json"}
        asked.clear()

        def no_engine() -> Any:
            raise AssertionError("Spark was asked for")

        again = run_build(settings(world, "what-is-asked-for"), no_engine)
        assert told(again, "nothing_new")
        assert {one.kind for one in asked} <= {"GET", "HEAD", "LIST"}
    assert_is_full_build(world)


def test_a_killed_run_is_gone_on_with(world: BucketWorld, warm: Children, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    store, out, tables = world.places()
    build(world)
    published = world.pointers()
    world.append(random.Random(seed + 1), 100)
    world.upload()
    words = ("--incremental", "--tables", tables)
    assert warm.run(store, out, *words, door="/published/", number=1) == -signal.SIGKILL
    assert world.pointers() == published
    summary = build(world)
    assert told(summary, "ranges_known") == told(summary, "ranges") > 2
    assert_is_full_build(world)
    assert len(files.names(files.join(out, "work"))) == 1
    # An hour later it is dead.
    monkeypatch.setattr(output_builds, "DEAD_NANOSECONDS", 0)
    world.append(random.Random(seed + 2), 1)
    world.upload()
    build(world)
    assert files.names(files.join(out, "work")) == []
    assert {pointer.build for pointer in world.pointers()} == set(files.names(files.join(out, "builds")))
    store_of_scans = scans(world)
    newest = last_build.load(store_of_scans, world.pointers()[-1].digest)
    assert newest
    needed = last_build.needed(store_of_scans, newest, [pointer.digest for pointer in world.pointers()])
    # Without Spark no rows are owed, and a bucket needs no copy of a manifest.
    assert set(last_build.names(store_of_scans)) == {name for name in needed if not name.endswith((".owed", ".manifest"))}


class Stopping(InlineEngine):
    """Scans, and does something else before it writes."""

    def __init__(self, instead: Callable[[], object]) -> None:
        super().__init__()
        self._instead = [instead]

    def reduce(self, kind: int, left_out: list[int], before: Batches | None, reducer: Batches) -> list[str]:
        while self._instead:
            self._instead.pop()()
        return super().reduce(kind, left_out, before, reducer)


def test_a_run_takes_nothing_away_from_another(world: BucketWorld) -> None:
    """Of two runs at the same time the first to publish finds all of the other's scans unused."""

    def meanwhile() -> None:
        before = set(last_build.names(scans(world)))
        build(world)
        assert before < set(last_build.names(scans(world)))
        assert_is_full_build(world)

    build(world, Stopping(meanwhile), lmq=True)
    assert len(world.pointers()) == 2
    assert_is_full_build(world, lmq=True)
    assert told(build(world, lmq=True), "nothing_new")


def test_a_run_that_begins_in_a_sweep_uses_nothing_that_may_go(world: BucketWorld) -> None:
    """Scans of a run that was cut short, which no build needs."""

    def cut_short() -> None:
        raise InputError("cut short")

    assert run_build(settings(world), single(Stopping(cut_short))).error == "cut short"
    known = len([name for name in last_build.names(scans(world)) if name.startswith("entries/")])
    assert known == len(world.segments())
    with output.staging(world.builds, True, True) as staging:
        with output.sweeping(staging, world.builds) as alone:
            assert alone
            assert told(build(world), "ranges_known") == 0
        world.append(random.Random(1), 1)
        world.upload()
        # It sweeps no longer, and the other does not begin to.
        before = set(last_build.names(scans(world)))
        assert told(build(world), "ranges_known") == known - 1
        assert before < set(last_build.names(scans(world)))
    assert_is_full_build(world)


def test_a_run_that_was_taken_for_dead_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would publish a build whose files are gone."""
    monkeypatch.setattr(output_alive, "BEAT_SECONDS", 0.01)
    out = (tmp_path / "out").as_uri()
    with output_builds.staging(out, True, Leftovers()) as staging:
        deadline = time.monotonic() + PATIENCE
        while any(thread.name == "alive" for thread in threading.enumerate()):
            # A sign of life may be on its way.
            files.remove_tree(staging.root)
            assert time.monotonic() < deadline
        with pytest.raises(InputError, match="took this one for dead"):
            output_builds.publish(staging, out, True, Leftovers())
