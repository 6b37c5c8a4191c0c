"""The policies of the page on permissions: each command ends well with its policy, and needs all of it."""

from __future__ import annotations

import os
import random
import re
import uuid
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.commands import fetch
from tests.stores.bucket_world import BucketWorld
from tests.tools.local_verify import local_verify
from tests.tools.s3_policy import guarded_s3, moved, policies
from tests.tools.s3_server import BUCKET

PAGE = "how-to/bucket-permissions.md"
BUILD, READ = policies(PAGE)
AFTER_A_FAILURE = "s3:AbortMultipartUpload"
"""Hadoop alone asks for it, where a write of a large file failed."""


@pytest.fixture
def world(bucket: str, tmp_path: Path, seed: int) -> BucketWorld:
    _ = bucket
    made = BucketWorld(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}?region=open")
    made.writer.segment_size = 1 << 14
    made.append(random.Random(seed), 60)
    made.upload()
    return made


def places(world: BucketWorld) -> dict[str, str]:
    """Those of the page, and where they are here."""
    root = world.place("").partition("?")[0].removeprefix("s3://").rstrip("/")
    return {"logs/broker-a": f"{root}/store", "logs/rebuilt-a": f"{root}/out", "logs/tables": f"{root}/tables"}


def door(place: str, endpoint: str) -> str:
    """Connections are kept by URI."""
    return re.sub("region=[^&]*", f"region=door-{endpoint.rpartition(':')[2]}", place)


def test_builds(world: BucketWorld, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Full and incremental ones; what was superseded goes."""
    with guarded_s3(os.environ["AWS_ENDPOINT_URL"], moved(BUILD, places(world))) as (endpoint, held):
        for k in range(3):
            world.append(random.Random(seed + k), 5)
            # The log is another's: the broker's, or a backup's.
            world.upload()
            with monkeypatch.context() as patched:
                patched.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
                summary, _ = world.run(door=f"door-{endpoint.rpartition(':')[2]}")
            assert (summary["exit"], summary["not_removed"]) == (0, []), summary["error"]
    assert held.refused == set()
    assert {need for need in held.unused if need[0] != AFTER_A_FAILURE} == set()
    assert {name: len(files.names(files.join(world.builds, name))) for name in ("builds", "published", "work")} == {
        "builds": 2, "published": 2, "work": 0,
    }  # fmt: skip


def test_verify_and_fetch(world: BucketWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They only read, and remove nothing."""
    world.run()
    (tmp_path / "to").mkdir()
    (tmp_path / "work").mkdir()
    with guarded_s3(os.environ["AWS_ENDPOINT_URL"], moved(READ, places(world))) as (endpoint, held):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{endpoint}")
        out, store = door(world.builds, endpoint), door(world.place("store"), endpoint)
        found = local_verify(out, commitlogs=(files.join(store, "commitlog"),), work=str(tmp_path / "work"))
        assert (found.exit, found.error) == (0, None)
        assert fetch([out, "--to", str(tmp_path / "to")]) == 0
    assert held.refused == set()
    assert held.unused == set()
