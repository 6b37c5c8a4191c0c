"""Two real S3 servers keep to the contract of stores. A log's life goes well on them, also where requests fail at random."""

from __future__ import annotations

import os
import random
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import object_store
from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.verify import verify
from tests.fault.disk import tiny_store
from tests.stores.bucket_world import BucketWorld
from tests.stores.contract import FilesContract
from tests.tools.faulty_s3 import at_random
from tests.tools.local_verify import local_verify
from tests.tools.real_s3 import SERVERS, real_s3
from tests.tools.s3_door import all_pass, s3_door
from tests.tools.s3_server import BUCKET
from tests.tools.tiers import ends


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, bucket: str) -> Iterator[str]:
    _ = bucket  # Its environment is there first, and is put back behind this one.
    with real_s3(request.param) as found:
        yield found


class TestRealS3(FilesContract):
    odd_names = (*FilesContract.odd_names, "#x", "a:b", "x?y")
    copies = True

    @pytest.fixture
    def place(self, server: str) -> str:
        return files.join(server, uuid.uuid4().hex)


@pytest.mark.parametrize("percent", ends([0, 1, 5, 10, 20]))
def test_a_life(server: str, percent: int, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two builds, one without anything new, a verify. What is fetched is a full build on a disk: ``World`` compares them."""
    _ = server
    monkeypatch.setattr(object_store, "FIRST_PAUSE", 0.02)
    rng = random.Random(seed)
    refuses, counts = at_random(rng, percent / 100) if percent else (all_pass, {})
    with s3_door(os.environ["AWS_ENDPOINT_URL"], refuses) as (door, seen):
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{door}")
        port = door.rpartition(":")[2]
        world = BucketWorld(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}?region=door-{port}")
        world.writer.segment_size = 1 << 14
        world.append(rng, 60)
        world.build()
        world.append(rng, 1)
        assert world.build()["incremental"]["files_kept"]
        summary = world.incremental()
        assert summary["incremental"]["nothing_new"]
        assert summary["not_removed"] == []
        log = files.join(world.place("store"), "commitlog")
        assert local_verify(world.builds, commitlogs=(log,), work=str(tmp_path)).exit == 0
        # Nothing is there twice, and nothing stays.
        there = {name: len(files.names(files.join(world.builds, name))) for name in ("builds", "published", "work")}
        assert there == {"builds": 2, "published": 2, "work": 0}
    assert percent < 5 or sum(count for fault, count in counts.items() if fault) > 0, (len(seen), counts)


@pytest.mark.parametrize(("change", "words"), [
    ({"AWS_ACCESS_KEY_ID": "nobody"}, r"s3://logs/\S*: .*the store does not know this access key: look at AWS_ACCESS_KEY_ID"),
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, r"s3://logs/\S*: .*the secret key does not fit the access key: look at"),
    ("nobucket", "s3://nobucket: there is no such bucket: make the bucket first, or name another"),
    ("No_Bucket!", r"s3://No_Bucket!: (is no name of a bucket: bucket names have 3 to 63|there is no such bucket)"),
])  # fmt: skip
@pytest.mark.parametrize("part", ["store", "out", "verify", "fetch"])
def test_what_is_wrong_is_said(
    server: str, change: dict[str, str] | str, words: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """At once, in one line, by each command: a HEAD alone only says that something is denied."""
    place = server.replace("us-east-1", uuid.uuid4().hex)
    if isinstance(change, str):
        place = place.replace("logs", change)
    else:
        for name, value in change.items():
            monkeypatch.setenv(name, value)
    place = files.join(place, uuid.uuid4().hex)
    tiny_store(tmp_path / "store")
    (tmp_path / "target").mkdir()
    status = {
        "store": lambda: build([place, "--out", str(tmp_path / "out"), "--engine", "local"]),
        "out": lambda: build([str(tmp_path / "store"), "--out", place, "--engine", "local"]),
        "verify": lambda: verify([place, "--engine", "local"]),
        "fetch": lambda: fetch([place, "--to", str(tmp_path / "target")]),
    }[part]()
    assert status == 1
    (error,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.match(f"error: {words}", error), error
    assert "(tried " not in error
