"""``build --incremental`` behind URIs is a full build, whatever happened to log and bucket meanwhile."""

from __future__ import annotations

import random
from pathlib import Path

from tests.stores.bucket_world import BucketWorld, live


def test_a_life_behind_a_uri(tmp_path: Path, seed: int) -> None:
    live(BucketWorld(tmp_path, (tmp_path / "there").as_uri()), random.Random(seed), 8, bucket=False)


def test_a_life_in_a_bucket(bucket_by_environment: str, tmp_path: Path, seed: int) -> None:
    """The scan store lies in the bucket, too, or on a disk."""
    tables = "" if seed % 2 else str(tmp_path / "tables")
    world = BucketWorld(tmp_path, bucket_by_environment, tables)
    world.writer.segment_size = 1 << 14
    live(world, random.Random(seed), 2, bucket=True)
