"""Settings of a build: words that stand for times and parts, values that no build can have, folders to stay away from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.command.option import PARTS, parse_delay_levels, parse_window, parts_of
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.udfs.times import parse_time


@pytest.mark.parametrize(
    ("word", "milliseconds"),
    [
        ("1ms", 1),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
        ("106751991167d", 86_400_000 * 106_751_991_167),
    ],
)
def test_windows(word: str, milliseconds: int) -> None:
    assert parse_window(f"window:{word}") == milliseconds <= INT64_MAX
    assert BuildSettings("s", "o", index_policy=f"window:{word}").window == milliseconds


@pytest.mark.parametrize(
    "policy", ["window", "window:", "window:h", "window:0s", "window:-1h", "window:1w", "daily", "window:1h "]
)
def test_no_windows(policy: str) -> None:
    with pytest.raises(UsageError, match=r"--index-policy .*: take capacity, or window:"):
        parse_window(policy)


@pytest.mark.parametrize("word", ["106751991168d", "999999999999d"])
def test_windows_beyond_64_bits(word: str) -> None:
    with pytest.raises(UsageError, match="more milliseconds than 64 bits hold"):
        BuildSettings("s", "o", index_policy=f"window:{word}").check()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000000", 1_700_000_000_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text) == expected


@pytest.mark.parametrize("text", ["", "now", "2023-11-14T22:13:20", "2023-13-01T00:00:00Z", "9" * 19, "1.5"])
def test_no_times(text: str) -> None:
    with pytest.raises(UsageError, match="--until-time"):
        parse_time(text)


def test_delay_levels() -> None:
    assert parse_delay_levels("1s 5m 2h 1d") == (1000, 300_000, 7_200_000, 86_400_000)
    for text in ("", "1s  5s", "5", "1w", "-1s"):
        with pytest.raises(UsageError, match="--delay-levels"):
            parse_delay_levels(text)


def test_parts() -> None:
    parse_parts = parts_of(PARTS)
    assert parse_parts("checkpoint, index") == ("index", "checkpoint")
    for text in ("", ",", "index,indices"):
        with pytest.raises(UsageError, match="--only"):
            parse_parts(text)


@pytest.mark.parametrize(
    "wrong",
    [
        {"cq_file_size": 0}, {"cq_file_size": 30}, {"cq_file_size": 20 << 27}, {"hash_slots": 0}, {"index_items": 1},
        {"hash_slots": 1 << 29}, {"segment_size": 1 << 31}, {"segment_size": -1}, {"range_size": -1}, {"until_offset": -1},
        {"max_fill": -1}, {"out": ""}, {"only": ()}, {"only": ("all",)}, {"store": "nowhere://x/store"}, {"out": "nowhere://x"},
        {"cq_ext": "plain", "cq_ext_file_size": 23}, {"cq_ext": "plain", "incremental": True, "tables": "t"},
        {"cq_ext": "bitmap", "bloom_error_rate": 100},
        {"consumequeue_type": "rocksdb", "incremental": True, "tables": "t"},
        {"consumequeue_type": "both", "queue_order": "broker"}, {"expired_queues": "store", "incremental": True, "tables": "t"},
        {"batch_cq_file_size": 0}, {"batch_cq_file_size": 20}, {"batch_topics": ("A",), "broker_version": "4.9"},
    ],
)  # fmt: skip
def test_values_that_no_build_can_have(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        dataclasses.replace(BuildSettings("store", "out"), **wrong).check()


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    settings = BuildSettings("store", "out", protected=("/own",))
    assert settings.roots == (str(tmp_path / "store" / "commitlog"),)
    assert settings.inputs == ("store", settings.roots[0], str(tmp_path / "store"), "/own")
    spread = BuildSettings("", "out", commitlogs=("/a/commitlog", "/b/log"))
    assert spread.inputs == ("/a/commitlog", "/b/log", "/a")


def test_what_decides_the_bytes_is_in_the_manifest() -> None:
    """And nothing of where a run runs."""
    told = BuildSettings("store", "out", cq_ext="plain", consumequeue_type="both", expired_queues="keep").for_manifest()
    fields = {field.name for field in dataclasses.fields(BuildSettings)}
    elsewhere = {"store", "out", "commitlogs", "overwrite", "range_size", "master", "engine", "dry_run", "json", "protected"}
    elsewhere |= {"progress", "log_format", "metrics", "store_name", "keep_zeros", "rocksdb", "accelerated"}
    elsewhere |= {"timer_rocksdb", "crc_on_recover", "property_crc_forced", "broker_conf", "conf_notes", "conf_numbers"}
    elsewhere |= {"tables", "messages_table", "build_id", "incremental", "recheck", "snapshot", "allow_empty", "named"}
    elsewhere |= {"bloom_error_rate", "bloom_consumers", "filters", "to_plain"}  # the last is in that of a repair
    assert set(told) == fields - elsewhere
    assert not set(BuildSettings("store", "out").for_manifest()) & {
        "cq_ext",
        "cq_ext_file_size",
        "consumequeue_type",
        "rocksdb_separate",
        "rocksdb_light",
        "rocksdb_lmq",
        "expired_queues",
    }, "as before"
    assert (told["until_offset"], told["until_time"]) == (None, None)
