"""Commands to paste: quoted for a shell, with the options that the store needs."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from rocketmq_reindex.jobs.preflighting.advice import Commands
from rocketmq_reindex.jobs.preflighting.model import StoreSizes
from rocketmq_reindex.jobs.preflighting.options import BrokerSettings, PreflightSettings
from rocketmq_reindex.storage_format.broker_start.loading import ConfiguredSizes
from rocketmq_reindex.storage_format.showing import shell


@pytest.mark.parametrize("word", ["plain", "a b", "it's", "$(x)", "a\nb", "\x1b[31m", "ключ", "\udcff", "a'\\\n", "\u202e"])
def test_a_shell_reads_the_word_back(word: str) -> None:
    line = shell(["printf", "%s", word])
    assert line.isprintable()
    found = subprocess.run(["bash", "-c", line.encode()], capture_output=True, check=True).stdout
    assert found == word.encode("utf-8", "surrogateescape")


def test_half_of_a_character_is_a_word_all_the_same() -> None:
    """JSON can have it, and no name of a file."""
    assert shell(["a\ud800\udcff"]) == r"$'a\xed\xa0\x80\xed\xb3\xbf'"


def sizes(queue: int = 6_000_000, slots: int = 5_000_000, items: int = 20_000_000) -> StoreSizes:
    return StoreSizes(ConfiguredSizes(1 << 30, queue, 13_800_000), slots, items, ())


def test_sizes_of_a_usual_broker_need_no_options() -> None:
    found = Commands(PreflightSettings("/data/store"), sizes(), False, False).rebuilt()
    assert found == (
        "rmq-reindex build /data/store --out /data/store.rebuilt && rmq-reindex fetch /data/store.rebuilt --to /data/store"
    )


def test_a_version_that_was_named_is_kept() -> None:
    found = Commands(PreflightSettings("/data/store", named=True), sizes(), False, False)
    assert found.rebuilt().startswith("rmq-reindex build /data/store --out /data/store.rebuilt --broker-version 5.5 && ")


def test_two_rebuilds_have_two_places() -> None:
    """Both can be followed, one after the other: a build refuses a folder that is not empty."""
    found = Commands(PreflightSettings("/data/store"), sizes(), False, False)
    found.take_timers(["timerlog"])
    commands = [found.rebuilt(queue_order="broker"), found.rebuilt(), found.rebuilt(until=77), found.rebuilt()]
    assert commands[1] == commands[3]
    outs = [shlex.split(command)[4] for command in commands[:3]]
    assert outs == ["/data/store.rebuilt", "/data/store.rebuilt-2", "/data/store.rebuilt-3"]
    for command, aside in zip(commands, ("/data/store.timers", "/data/store.timers-2"), strict=False):
        assert f"&& mkdir {aside} && mv /data/store/timerlog {aside} &&" in command


def test_all_options() -> None:
    settings = PreflightSettings(
        "/a b", commitlogs=("/log",), broker_version="4.9.8", broker=BrokerSettings(delay_levels="1s 2s")
    )  # fmt: skip
    build, fetch = Commands(settings, sizes(400, 5, 9), True, True).rebuilt("index,checkpoint", 77).split(" && ")
    assert shlex.split(build) == [
        "rmq-reindex", "build", "/a b", "--out", "/a b.rebuilt", "--commitlog", "/log", "--only", "index,checkpoint",
        "--cq-file-size", "400", "--hash-slots", "5", "--index-items", "9", "--delay-levels", "1s 2s",
        "--broker-version", "4.9",
        "--lmq", "--topics-config", "/a b/config/topics.json", "--on-damage", "salvage", "--until-offset", "77",
    ]  # fmt: skip
    assert shlex.split(fetch) == ["rmq-reindex", "fetch", "/a b.rebuilt", "--to", "/a b", "--commitlog", "/log", "--partial"]
