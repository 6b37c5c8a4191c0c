"""``consumers`` against a real broker: its own offsets, bounds without them, and groups that go on by a new file."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

import rocketmq_reindex as rr
from tests.delayed.life import Life
from tests.fates.life import AGAIN, DEAD, POPPING, SETTINGS, Fates, key

Offsets = dict[tuple[str, str, int], int]
GROUPS = (AGAIN, DEAD, POPPING)


def known(config: Path) -> Offsets:
    """What a broker's own file says: fastjson writes queue ids without quotes, and so Java's client reads them."""
    table = json.loads(re.sub(r"([{,]\s*)(\d+):", r'\1"\2":', config.read_text()))["offsetTable"]
    return {
        (name.partition("@")[2], name.partition("@")[0], int(queue)): offset
        for name, offsets in table.items()
        for queue, offset in offsets.items()
    }


@pytest.fixture
def store(fates: Fates, tmp_path: Path) -> Path:
    """A copy of the broker's store."""
    shutil.copytree(fates.store, tmp_path / "store")
    return tmp_path / "store"


def config_of(store: Path) -> Path:
    """With enableLmq a broker has the second one."""
    found = [store / "config" / name for name in ("lmqConsumerOffset.json", "consumerOffset.json")]
    return next(path for path in found if path.exists())


def test_the_brokers_own_offsets(fates: Fates) -> None:
    found = rr.consumers(fates.store)
    said = {(row.group, row.topic, row.queue_id): row.offset for row in found if row.offset is not None}
    assert said == known(config_of(fates.store))
    ends = {(record.topic, record.queue): record.queue_offset + 1 for record in fates.log}
    for row in found:
        if row.offset is not None and row.group in GROUPS:
            assert row.end == ends.get((row.topic, row.queue_id), 0), row
            assert row.left == row.end - row.offset
    assert {row.group for row in found} > set(GROUPS)
    assert all(row.left == 0 for row in found if row.group in GROUPS and row.offset is not None), "they were done"


def test_bounds_hold(store: Path) -> None:
    """Without the file the log shows for each group where it was at least; the broker's own offset lies within."""
    offsets = known(config_of(store))
    for path in (store / "config").glob("*onsumerOffset*"):
        path.unlink()
    found = rr.consumers(store, bounds=True)
    bounds = {(row.group, row.topic, row.queue_id): row for row in found if row.evidence is not None}
    shown = {(group, topic) for group, topic, _ in bounds}
    assert {(AGAIN, "Again"), (AGAIN, f"%RETRY%{AGAIN}"), (DEAD, "Dead"), (POPPING, "Popped")} <= shown
    for place, row in bounds.items():
        assert place in offsets, row
        assert row.at_least is not None
        assert row.end is not None
        assert row.at_least <= offsets[place] <= row.end, row
    assert {row.at_least for row in bounds.values() if row.topic in ("Again", "Dead")} == {2}, "both messages of each"
    assert all(row.offset is None for row in found)


def test_groups_go_on_by_a_new_file(fates: Fates, store: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """One is left behind its queue's end, as a control: it misses what is sent before it asks. The others get each message."""
    config = config_of(store)
    saved = json.dumps({"offsetTable": {
        "Plain@set": {"0": 1, "1": 3}, "Plain@mended": {"0": 4, "1": 90}, "Plain@timed": {"0": 4, "1": 3},
    }})  # fmt: skip
    (tmp_path / "saved.json").write_text(saved)
    sent = sorted((record.store_time, record.queue, record.key) for record in fates.log if record.topic == "Plain")
    at = sent[len(sent) // 2][0]
    first = rr.consumers(store, consumer_offsets=tmp_path / "saved.json", out=tmp_path / "within.json")
    assert [(change.group, change.queue_id, change.after) for change in first.changes] == [("mended", 1, 3)]
    rr.consumers(
        store, consumer_offsets=tmp_path / "within.json", group="timed", topic="Plain", to_time=at, out=tmp_path / "new.json"
    )
    new = json.loads((tmp_path / "new.json").read_text())
    new["offsetTable"]["Plain@control"] = {"0": 4, "1": 90}
    for path in (store / "config").glob("*onsumerOffset*"):
        path.unlink()
    config.write_text(json.dumps(new))
    version = request.node.callspec.params["fates"]
    due = int(time.time() * 1000)
    with Life(version, store, tmp_path, SETTINGS) as life:
        life.send([f"0\tPlain\t{queue}\ttag\tUNIQ_KEY={key('later', queue)}\tKEYS=later-{due}" for queue in (0, 1)])
        life.step("sent")
        for group in ("set", "mended", "timed", "control"):
            life.step("again", group, "Plain", 0, 0, tmp_path / f"{group}.told")
        later, in_queue_0 = {key("later", 0), key("later", 1)}, {key("plain", 2), key("plain", 4), key("light")}
        wanted = {
            "set": in_queue_0 | later,
            "mended": later,
            "timed": {unique for stored, _, unique in sent if stored >= at} | later,
            "control": {key("later", 0)},
        }
        life.wait(lambda _: all(told(tmp_path, group) >= each for group, each in wanted.items()), "each message")
        life.settle(4.0)
        assert {group: told(tmp_path, group) for group in wanted} == wanted
        life.stop()
    for group in ("set", "mended", "timed"):
        # The new file was made before the later messages were sent.
        out = tmp_path / f"{group}.jsonl"
        rr.export(store, to=out, unconsumed_by=group, consumer_offsets=tmp_path / "new.json")
        exported = [json.loads(line)["uniqKey"] for line in out.read_text().splitlines()]
        assert sorted(exported) == sorted(wanted[group]), "an export has what the client of the group was given"


def told(folder: Path, group: str) -> set[str]:
    """UNIQ_KEYs that a group was given."""
    path = folder / f"{group}.told"
    return {line.split("\t")[0] for line in path.read_text().splitlines()} if path.exists() else set()
