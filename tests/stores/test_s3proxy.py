"""s3proxy, a second S3 server, and servers that know no checksums of AWS's newer SDKs."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_reindex import files
from tests.stores.bucket_world import BucketWorld
from tests.stores.contract import FilesContract
from tests.tools.local_verify import local_verify
from tests.tools.s3_door import Sought, s3_door
from tests.tools.s3_server import BUCKET
from tests.tools.s3proxy_server import s3proxy_server


@pytest.fixture(scope="module")
def s3proxy(bucket: str) -> Iterator[str]:
    _ = bucket  # Its environment is there first, and is put back behind this one.
    with s3proxy_server() as found:
        yield found


class TestS3Proxy(FilesContract):
    odd_names = (*FilesContract.odd_names, "#x", "a:b", "x?y")
    copies = True

    @pytest.fixture
    def place(self, s3proxy: str) -> str:
        return files.join(s3proxy, uuid.uuid4().hex)


def test_build_twice_verify_and_fetch(s3proxy: str, tmp_path: Path, seed: int) -> None:
    """What is fetched is a full build of the log on a disk; ``World`` compares them."""
    port = s3proxy.partition("%3A")[2].partition("&")[0]
    world, rng = BucketWorld(tmp_path, f"s3://{BUCKET}/{uuid.uuid4().hex}?region=server-{port}"), random.Random(seed)
    world.writer.segment_size = 1 << 14
    world.append(rng, 60)
    world.build()
    for _ in range(2):
        world.append(rng, 1)
        assert world.build()["incremental"]["files_kept"]
    summary = world.incremental()
    assert summary["incremental"]["nothing_new"]
    assert summary["not_removed"] == []
    assert {name: len(files.names(files.join(world.builds, name))) for name in ("builds", "published", "work")} == {
        "builds": 2, "published": 2, "work": 0,
    }  # fmt: skip
    log = files.join(world.place("store"), "commitlog")
    assert local_verify(world.builds, commitlogs=(log,), work=str(tmp_path)).exit == 0


def knows_no_new_checksums(sought: Sought) -> int:
    """As servers of 2024 are: they refuse what they do not know, and want Content-MD5 for a list of objects to remove."""
    new = [name for name in sought.headers if name.startswith(("x-amz-checksum-", "x-amz-trailer", "x-amz-sdk-checksum"))]
    return 501 if new else 0


def test_a_server_without_new_checksums(bucket: str) -> None:
    _ = bucket
    with s3_door(os.environ["AWS_ENDPOINT_URL"], knows_no_new_checksums) as (endpoint, _):
        place = f"s3://{BUCKET}/{uuid.uuid4().hex}?endpoint_override={endpoint}&scheme=http"
        target, data = files.join(place, "folder", "large"), random.Random(1).randbytes(11 << 20)
        with files.writing(place, target) as writer:
            for low in range(0, len(data), 1 << 20):
                writer.append(data[low : low + (1 << 20)])
            writer.finish()
        assert files.read_bytes(target) == data
        assert files.copy_in_store(target, files.join(place, "folder", "deep", "copy"))
        files.write_bytes(place, files.join(place, "folder", "small"), [b"small"])
        assert files.remove_tree(files.join(place, "folder")) == ""
        assert files.below(place) == []
        assert files.entry_of(files.join(place, "folder")).kind == files.ABSENT
    assert "AWS_REQUEST_CHECKSUM_CALCULATION" not in os.environ
