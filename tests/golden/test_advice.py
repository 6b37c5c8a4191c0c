"""What is advised on a damaged log is the same everywhere, and leads to a clean verify and a start that loses nothing."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.jobs.building.advice import WITHOUT_REPLICA, repair
from rocketmq_reindex.jobs.cli import main
from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.store.settings import StoreSettings
from tests.golden.stores import GoldenStore
from tests.golden.test_verify_mend import built, written
from tests.tools import spoil
from tests.tools.compare import SMALL
from tests.tools.log_writer import LogWriter
from tests.tools.make_log import Message

pytestmark = pytest.mark.usefixtures("inline_local")

SIZES = ("--cq-file-size", "400", "--hash-slots", "50", "--index-items", "60")
ASKED = ("--engine", "local", "--broker-version", "5.3", *SIZES)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Sound, and "replica" beside it."""
    messages = (Message(topic="T", queue_offset=k, properties={"KEYS": f"k{k}"}) for k in range(120))
    store = built(written(tmp_path / "a store", *messages), broker_version="5.3")
    shutil.copytree(store, tmp_path / "replica")
    return store


def damage(store: Path, where: str) -> int:
    """Spoil a record near the log's start, or one in the last segment; return its offset."""
    places = spoil.record_offsets(store)
    last = int(spoil.segment_paths(store)[-1].name)
    number = 5 if where == "early" else next(k for k, (offset, _) in enumerate(places) if offset >= last) + 3
    spoil.bad_magic(store, number)
    return places[number][0]


def told(capsys: pytest.CaptureFixture[str], status: int, *words: Any) -> str:
    assert main([str(word) for word in words]) == status
    found = capsys.readouterr()
    return found.out + found.err


def is_sound(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the words of the user, no others."""
    told(capsys, 0, "verify", store, *ASKED)
    sizes = {name: SMALL[name] for name in ("cq_file_size", "hash_slots", "index_items")}
    found = rr.preflight(store, broker_version="5.3.3", **sizes)
    assert (found.exit_status, found.losses) == (0, [])


def follow(command: str, tmp_path: Path, alone: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a repair as it is printed, with a replica in its place, and, ``alone``, as is said without one."""
    _, *words = shlex.split(command)
    assert " ".join(ASKED[:2]) in command
    assert all(word in words for word in ASKED)
    ways: tuple[tuple[int, list[str]], ...] = ((0, ["--replica", str(tmp_path / "replica")]), (3, []))
    for status, replica in ways[: 2 if alone else 1]:
        out = tmp_path / f"mended-{status}-{len(list(tmp_path.iterdir()))}"
        place = words.index("--replica")
        asked = [*words[:place], *replica, *words[place + 2 :]]
        asked[asked.index("DIR")] = str(out)
        told(capsys, status, *asked)
        is_sound(out, capsys)


@pytest.mark.parametrize("where", ["early", "late"])
def test_verify_and_its_page_and_a_refused_build_say_repair_first(
    store: Path, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset = damage(store, where)
    page = tmp_path / "verify.json"
    text = told(capsys, 4, "verify", store, *ASKED, "--report", page)
    found = json.loads(page.read_text())
    command = found["mend"]
    assert f"mend     repair the log first: {WITHOUT_REPLICA}\nmend     {command}\nor       " in text
    assert command.startswith(f"rmq-reindex repair '{store}' --out DIR --replica REPLICA ")
    assert {finding["mend"] for finding in found["findings"]} == {command}
    stop, *_, salvage = found["other_ways"]
    assert (stop["command"].endswith("--on-damage stop"), salvage["command"].endswith("salvage")) == (True, True)
    assert stop["loses"] == f"loses all messages from offset {offset} on"
    assert len(found["other_ways"]) == 2 + (where == "late")
    html = make_page(str(page))
    assert "repair the log first: " in html
    assert "of it is mended by" not in html
    refused = told(capsys, 5, "build", store, "--out", tmp_path / "out", *ASKED)
    wrong, first, others = (line for line in refused.splitlines() if line.startswith(("error: ", "  ")))
    assert (wrong[:15], first[:24], others[:16]) == ("error: segment ", "  repair the log first: ", "  or build with ")
    assert max(len(wrong), len(first) - len(command), len(others)) < 200
    (printed,) = re.findall(r"repair the log first: (rmq-reindex repair .*?) \(with", first)
    assert printed == command
    assert f"--on-damage stop, which loses all messages from offset {offset} on" in refused
    only = told(capsys, 4, "verify", store, *ASKED, "--only", "log")
    assert f"mend     {command}\n" in only
    unasked = told(capsys, 4, "verify", store, *ASKED[:4], "--only", "log")
    assert f"mend     {command}\n" in unasked
    follow(command, tmp_path, where == "late", capsys)


def test_preflight_says_repair_first(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store, "late")
    shutil.rmtree(store / "index")
    found = rr.preflight(store, broker_version="5.3.3", cq_file_size=400, hash_slots=50, index_items=60)
    assert found.losses[0]["kind"] == "log-cut"
    for loss in found.losses:
        assert loss["advice"][0].startswith("repair the log first: ")
        assert loss["commands"][0] == found.losses[0]["commands"][0]
    _, *words = shlex.split(found.losses[0]["commands"][0])
    words[words.index("REPLICA")] = str(tmp_path / "replica")
    told(capsys, 0, *words, "--engine", "local")
    is_sound(store.with_name("a store.repaired"), capsys)


def test_a_record_too_large_for_a_broker_is_repaired(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """4.9 makes an array of a record's size before it looks further, and does not start."""
    first = spoil.segment_paths(store)[-1]
    first.write_bytes(b"\x7f\xff\xff\xff" + first.read_bytes()[4:])
    asked: dict[str, Any] = {"broker_version": "4.9.8", "cq_file_size": 400, "hash_slots": 50, "index_items": 60}
    found = rr.preflight(store, abort="yes", **asked)
    (loss,) = found.losses
    assert (loss["kind"], loss["advice"]) == ("record-too-large", [f"repair the log first: {WITHOUT_REPLICA}"])
    for status, replica in ((0, ["--replica", str(tmp_path / "replica")]), (3, [])):
        _, *words = shlex.split(loss["commands"][0])
        place, out = words.index("--replica"), tmp_path / f"mended-{status}"
        words[words.index("--out") + 1] = str(out)
        told(capsys, status, *words[:place], *replica, *words[place + 2 :], "--engine", "local")
        told(capsys, 0, "verify", out, "--engine", "local", "--broker-version", "4.9", *SIZES)
        assert rr.preflight(out, abort="yes", **asked).losses == []


def test_no_rebuild_of_what_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record whose queue offset went back: a repair leaves it, and a rebuild gives the same bytes."""
    offsets = [*range(20), 3, *range(21, 40)]
    with LogWriter(tmp_path / "log" / "commitlog", 1 << 12) as writer:
        for offset in offsets:
            writer.append(Message(topic="T", queue_offset=offset))
    out, again = tmp_path / "out", tmp_path / "again"
    told(capsys, 3, "repair", tmp_path / "log", "--out", out, *ASKED)
    found = rr.preflight(out, broker_version="5.3.3", cq_file_size=400, hash_slots=50, index_items=60)
    (loss,) = found.losses
    assert (loss["kind"], loss["count"]) == ("records-hidden", 1)
    assert "the same bytes" in loss["advice"][1]
    (command,) = loss["commands"]
    assert command.startswith("rmq-reindex verify ")
    said = told(capsys, 4, *shlex.split(command)[1:], "--engine", "local")
    assert "queue-unit-missing" not in said
    told(capsys, 3, "build", out, "--out", again, *ASKED, "--on-damage", "salvage")
    assert (again / "consumequeue/T/0" / f"{0:020d}").read_bytes() == (out / "consumequeue/T/0" / f"{0:020d}").read_bytes()


@pytest.mark.parametrize("spoilt", ["offset", "bytes"])
def test_a_recovery_limit_and_a_record_that_a_build_refuses(
    spoilt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker of 5.5 looks at ten segments of a log that a plain build refuses (exit status 5)."""
    store, sizes = tmp_path / "store", {name: SMALL[name] for name in ("cq_file_size", "hash_slots", "index_items")}
    with LogWriter(store / "commitlog", 1 << 12) as writer:
        for offset in range(700):
            writer.append(Message(topic="T", queue_offset=offset if spoilt == "bytes" or offset != 8 else 5000))
    if spoilt == "bytes":
        spoil.bad_magic(store, 8)
    told(capsys, 5, "build", store, "--out", tmp_path / "refused", "--engine", "local", *SIZES)
    found = rr.preflight(store, broker_version="5.5.1", **sizes)
    assert found.log is not None
    assert (found.log["limited"], found.log["cut_bytes"]) == (True, 0)
    for loss in found.losses:
        (command,) = loss["commands"]
        assert (command.split()[:2], loss["advice"][0][:16]) == (["rmq-reindex", "verify"], "verify the store")
    said = told(capsys, 4, *shlex.split(command)[1:], "--engine", "local")
    repairing = next(line for line in said.splitlines() if line.startswith("mend     rmq-reindex repair "))
    _, _, *words = shlex.split(repairing)
    place, out = words.index("--replica"), tmp_path / "mended"
    words[words.index("DIR")] = str(out)
    told(capsys, 3, *words[:place], *words[place + 2 :])
    told(capsys, 0, "verify", out, "--engine", "local", *SIZES)
    assert rr.preflight(out, broker_version="5.5.1", **sizes).losses == []


def test_what_query_says_of_a_lost_queue_leads_to_the_brokers_files(
    golden_store: Callable[[str], GoldenStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """query names verify, verify the build: it makes the very files that the broker had written."""
    store, queue = tmp_path / "a store", "consumequeue/TopicA/1"
    shutil.copytree(golden_store("basic-5.3").path, store)
    brokers = {path.name: path.read_bytes() for path in (store / queue).iterdir()}
    shutil.rmtree(store / queue)
    refused = told(capsys, 1, "query", store, "--topic", "TopicA", "--queue", "1", "--offset", "40")
    (printed,) = re.findall(r"; `rmq-reindex (.*)` names the build that makes lost files anew", refused)
    verified = told(capsys, 4, *shlex.split(printed), "--engine", "local", "--json").splitlines()
    (found,) = (json.loads(line) for line in verified if line.startswith("{"))
    _, *words = shlex.split(found["mend"])
    words[words.index("DIR")] = str(tmp_path / "out")
    told(capsys, 0, *words)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / queue).iterdir()} == brokers


def test_other_ways_are_taken_as_printed(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(store, "late")
    found = json.loads(told(capsys, 4, "verify", store, *ASKED, "--json").splitlines()[0])
    for number, way in enumerate(found["other_ways"]):
        _, *words = shlex.split(way["command"])
        words[words.index("DIR")] = str(tmp_path / f"out{number}")
        # What a build was told to leave out is no loss of its own.
        told(capsys, 0 if "--until-offset" in words else 3, *words)


def test_a_command_keeps_the_master_that_was_given() -> None:
    assert shlex.split(repair(StoreSettings("store", master="spark://host:7077")))[-2:] == ["--master", "spark://host:7077"]
    assert "--master" not in repair(StoreSettings("store"))
