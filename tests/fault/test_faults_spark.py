"""Twenty faults of each kind through Spark: the same outcome as in this process.

A build by Spark takes seconds, however small the store. So where a fault hides no other (a policy of salvage) twenty lie in one
log, and the reference's build of that log is the truth; each policy has runs of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark import session
from rocketmq_reindex.jobs.spark.engine import SparkEngines
from tests.fault import flips, salvage, sizes
from tests.fault.case import POLICIES, Case, Segments, faults, some_settings
from tests.fault.layout import fields_of, flip, laid_records, overwrite
from tests.fault.stores import SEGMENT, orderly_store
from tests.hostile.test_names import IMPOSSIBLE
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

COUNT = 20
ONE_SEGMENT = 1 << 16


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One core, one bucket: a store of some records needs no more."""
    found, own = session.get_session("local[1]")
    assert own, "a session was left by another test"
    found.conf.set("spark.reindex.buckets", "1")
    yield found
    session.stop(found)


def check(cases: list[Case], spark: SparkSession, place: Path) -> None:
    assert spark.sparkContext.defaultParallelism == 1
    wrong = {str(case): found for case in cases if (found := faults(case, place, SparkEngines(""), seconds=600))}
    assert not wrong


def salvaged(seed: int, kind: str, segments: Segments) -> Case:
    rng = random.Random(seed)
    settings = some_settings(rng, on_damage="salvage", queue_order="logical", broker_version="5.5", crc="all")
    return Case(kind, seed, -1, f"{COUNT} in one log", segments, settings, 1 << 15)


def one_each(kind: str, seed: int) -> list[Case]:
    """A case under each policy."""
    module = {"flips": flips, "sizes": sizes}[kind]
    cases = (module.make(seed, number) for number in range(200))
    chosen = {case.settings["on_damage"]: case for case in cases}
    return [replace(chosen[policy], range_size=0) for policy in POLICIES]


@pytest.mark.slow
def test_bit_flips(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seed)
    segments = orderly_store(seed, 160, ONE_SEGMENT)[0]
    fields = fields_of(segments)
    for name in rng.sample(sorted({field.name for field in fields}), k=COUNT):
        field = rng.choice([field for field in fields if field.name == name])
        segments = flip(segments, field.segment, field.at + rng.randrange(field.length), rng.randrange(8))
    check([salvaged(seed, "flips", segments), *one_each("flips", seed)], spark, tmp_path / "case")


def test_lengths_that_lie(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(seed)
    segments = orderly_store(seed, 160, ONE_SEGMENT)[0]
    for record in rng.sample(laid_records(segments), k=COUNT):
        at, length = record.fields[rng.choice(sizes.FIELDS)]
        bad = sizes.lying(rng.choice(sizes.VALUES), length, ONE_SEGMENT - at - length)
        segments = overwrite(segments, record.segment, at, bad)
    check([salvaged(seed, "sizes", segments), *one_each("sizes", seed)], spark, tmp_path / "case")


def test_every_undamaged_record_comes_through(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    check([replace(salvage.make(seed, COUNT), range_size=1 << 15)], spark, tmp_path / "case")


def test_hostile_topics(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log", 1 << 14) as writer:
        for topic in IMPOSSIBLE[:COUNT]:
            writer.append(Message(topic="Good", properties={"KEYS": "k"}))
            writer.append(Message(topic=topic, properties={"KEYS": "k"}))
    segments = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    check([salvaged(seed, "topics", segments)], spark, tmp_path / "case")


@pytest.mark.slow
def test_truncations(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    """Half within the last two records, half anywhere; each is a store of its own, of one segment."""
    rng = random.Random(seed)
    segments = orderly_store(seed, 14, SEGMENT)[0]
    ((name, data),) = segments.items()
    *_, before, last = laid_records(segments)
    points = [rng.randrange(before.at, last.at + last.size) for _ in range(COUNT // 2)]
    points += [rng.randrange(len(data)) for _ in range(COUNT // 2)]
    cases = [
        Case("truncations", seed, -1, f"at {at}", {name: data[:at]}, some_settings(rng, segment_size=SEGMENT)) for at in points
    ]
    check(cases, spark, tmp_path / "case")
