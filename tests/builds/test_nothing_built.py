"""A build of nothing is no success: globs that match no topic, limits before the first record, and what is no commitlog."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.commands import preflight, query
from rocketmq_reindex.jobs.inspecting.options import inspect
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.record.layout import MAGIC_V1
from rocketmq_reindex.storage_format.scan.settings import near
from rocketmq_reindex.udfs.times import parse_time
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build, local_repair
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter

SIZES: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 7, "index_items": 40}
SEGMENT = 1 << 12
TOPICS = ("Orders", "OrdersEu", "Payments", "%RETRY%group")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with LogWriter(tmp_path / "store" / "commitlog", SEGMENT) as writer:
        for number in range(60):
            writer.append(Message(topic=TOPICS[number % 4], store_timestamp=EPOCH + number, properties={"KEYS": f"k{number}"}))
    return tmp_path / "store"


def refused(store: Path, tmp_path: Path, **settings: Any) -> str:
    """Why a build ends with 1 and publishes nothing, whatever the ranges."""
    said = set()
    for size in (0, 700):
        summary = local_build(store, tmp_path / "out", None, range_size=size, **SIZES, **settings)
        assert summary.exit == 1, summary
        assert not (tmp_path / "out").exists()
        said.add(str(summary.error))
    (one,) = said
    return one


GLOBS = {
    "Order": "Order: matches no topic of the log: did you mean Orders or OrdersEu?",
    "orders": "orders: matches no topic of the log: did you mean Orders or OrdersEu?",
    "Paiments*": "Paiments*: matches no topic of the log: did you mean Payments?",
    "Xyz": "Xyz: matches no topic of the log",
    "\x1b[2J": "\\x1b[2J: matches no topic of the log",
}


@pytest.mark.parametrize("glob", GLOBS)
def test_a_glob_that_matches_no_topic(glob: str, store: Path, tmp_path: Path) -> None:
    """Beside one that does, too: each stands for something that is wanted."""
    assert refused(store, tmp_path, include_topics=(glob,)) == f"--include-topic {GLOBS[glob]}"
    assert refused(store, tmp_path, include_topics=("Payments", glob)) == f"--include-topic {GLOBS[glob]}"
    assert refused(store, tmp_path, exclude_topics=(glob,)) == f"--exclude-topic {GLOBS[glob]}"


def test_globs_that_match(store: Path, tmp_path: Path) -> None:
    for number, (include, exclude) in enumerate(((("Orders*", "Pay*"), ("OrdersEu",)), (("%RETRY%*",), ()), ((), ("?rders",)))):
        summary = local_build(
            store, tmp_path / f"{number}", None, range_size=700, include_topics=include, exclude_topics=exclude, **SIZES
        )
        assert (summary.exit, summary.records > 0) == (0, True)


def test_all_topics_left_out(store: Path, tmp_path: Path) -> None:
    assert "takes away every record of the log (60), so nothing is left: --allow-empty" in refused(
        store, tmp_path, exclude_topics=("*",)
    )
    summary = local_build(store, tmp_path / "out", None, exclude_topics=("*", "Typo"), allow_empty=True, **SIZES)
    assert (summary.exit, summary.records) == (0, 0)


def test_an_incremental_build(store: Path, tmp_path: Path) -> None:
    """What is known of a range says which globs match there: another run finds the same."""
    settings = SIZES | {"incremental": True, "tables": str(tmp_path / "tables"), "range_size": 700}
    for _ in range(2):
        summary = local_build(store, tmp_path / "out", None, include_topics=("Order",), **settings)
        assert (summary.exit, summary.error) == (1, f"--include-topic {GLOBS['Order']}")
    for _ in range(2):
        summary = local_build(store, tmp_path / "out", None, include_topics=("Orders",), **settings)
        assert (summary.exit, summary.records) == (0, 15)


def test_names_are_near_by_their_letters(seed: int) -> None:
    names = [f"topic-{number}" for number in range(50)]
    random.Random(seed).shuffle(names)
    assert near("TOPIC-4O", names) == near("topic-4o*", reversed(names)) == ["topic-4", "topic-49", "topic-48"]
    assert near("", names) == []


def test_a_time_before_the_first_record(store: Path, tmp_path: Path) -> None:
    line = refused(store, tmp_path, until_time=EPOCH // 1000)
    assert "lies before the log's first record, stored at 2023-11-14T22:13:20.000Z: nothing would be built" in line
    assert "take milliseconds since 1970" in line
    assert local_build(store, tmp_path / "out", None, until_time=EPOCH, **SIZES).records == 1


def test_an_offset_before_the_first_record(store: Path, tmp_path: Path) -> None:
    min((store / "commitlog").iterdir()).unlink()
    assert f"the log begins at {SEGMENT}, and no record of it lies before 100" in refused(store, tmp_path, until_offset=100)
    assert local_build(store, tmp_path / "out", None, until_offset=SEGMENT + 1, **SIZES).records == 1


# -- what is no commitlog


def units() -> bytes:
    return b"".join(b"%s%s%s" % ((k * 200).to_bytes(8, "big"), (200).to_bytes(4, "big"), bytes(8)) for k in range(99))


FOREIGN = {
    "gzip": (gzip.compress(random.Random(1).randbytes(3000), mtime=0), "begins with 1f8b: gzip?"),
    "text": (b"Broker started at 10:00\n" * 99, "begins with 42726f6b: text?"),
    "zip": (b"PK\3\4" + bytes(99), "begins with 504b: zip?"),
    "a ConsumeQueue file": (units(), "begins with 00000000: a ConsumeQueue file?"),
    "a log of DLedger": (
        (struct.pack(">iiqqqiiii", 1, 148, 0, 1, 0, 0, 0, 0, 100) + bytes(range(100))) * 20,
        "begins with 00000001: a log of DLedger?",
    ),
    "anything": (bytes(range(1, 200)) * 5, "begins with 01020304"),
}


def spoil(store: Path, data: bytes, which: slice = slice(None)) -> Path:
    """Put other bytes into segments; returns the first segment."""
    segments = sorted((store / "commitlog").iterdir())
    for path in segments[which]:
        path.write_bytes(data[:SEGMENT].ljust(SEGMENT, b"\0"))
    return segments[0]


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_commitlog_has_its_name(kind: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, told = FOREIGN[kind]
    first = spoil(store, data)
    line = f"{first}: does not begin with a RocketMQ record ({told})"
    for policy in ("fail", "stop", "salvage"):
        assert refused(store, tmp_path, on_damage=policy).startswith(line)
    repaired = local_repair(store, tmp_path / "mended", None, **SIZES)
    assert (repaired.exit, str(repaired.error).startswith(line)) == (1, True)
    verified = local_verify(store, None, only=("log",), **SIZES)
    assert (verified.exit, str(verified.error).startswith(line)) == (1, True)
    assert preflight([str(store), "--broker-version", "5.3"]) == 1
    assert f"error: {line}" in capsys.readouterr().err
    assert inspect([str(first)]) == 1
    assert f"error: {line}" in capsys.readouterr().err
    assert query([str(store), "--physical", "0"]) == 1
    assert f": the segment {told}" in capsys.readouterr().err


def test_only_the_first_segment_is_none(store: Path, tmp_path: Path) -> None:
    """What follows is the log's: with salvage it is built, and the first segment is damage."""
    first = spoil(store, FOREIGN["gzip"][0], slice(1))
    for policy, status in (("fail", 5), ("stop", 5), ("salvage", 3)):
        summary = local_build(store, tmp_path / policy, None, on_damage=policy, **SIZES)
        assert summary.exit == status, policy
        assert f"{first}: does not begin with a RocketMQ record (begins with 1f8b: gzip?)" in str(summary.error) or status == 3
    assert local_repair(store, tmp_path / "mended", None, **SIZES).exit == 3
    assert local_verify(store, None, only=("log",), **SIZES).exit == 4


def test_a_replica_may_have_it_all(store: Path, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "replica")
    spoil(store, FOREIGN["gzip"][0], slice(1))
    mended = local_repair(store, tmp_path / "mended", None, replicas=(str(tmp_path / "replica"),), **SIZES)
    assert (mended.exit, mended.records) == (0, 60)


def test_a_first_record_that_a_crash_tore_is_a_torn_tail(store: Path, tmp_path: Path) -> None:
    """It begins as a record does. So does a filler, and a segment of zeros is one that a broker has made."""
    for number, head in enumerate((MAGIC_V1, -875286124)):
        spoil(store, (200).to_bytes(4, "big") + head.to_bytes(4, "big", signed=True) + b"\1" * 50)
        assert local_build(store, tmp_path / f"{number}", None, **SIZES).exit == 0
    spoil(store, b"")
    assert local_build(store, tmp_path / "zeros", None, **SIZES).exit == 0


def test_seconds_are_wrong_usage(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As milliseconds ten digits lie in 1970."""
    assert query([str(store), "--topic", "Orders", "--queue", "0", "--time", "1700000000", "--scan"]) == 2
    assert "1700000000: ten digits are seconds: take milliseconds since 1970, such as 1700000000000" in capsys.readouterr().err
    assert query([str(store), "--topic", "Orders", "--queue", "0", "--time", "1700000000000", "--scan", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])


@pytest.mark.parametrize(
    ("text", "hint"), [("2024", "2024: a year?"), ("0", "0: seconds?"), ("-5", "-5: seconds?"), ("99999999999", "seconds?")]
)
def test_numbers_too_small_for_milliseconds_are_wrong_usage(
    text: str, hint: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--begin", "--end"):
        assert query([str(store), "--topic", "Orders", "--key", "k", f"{option}={text}"]) == 2
        assert hint in capsys.readouterr().err
    with pytest.raises(UsageError, match=re.escape(hint)):
        parse_time(text)
    assert parse_time("100000000000") == 10**11
    assert parse_time("1970-01-01T00:00:01Z") == 1000
