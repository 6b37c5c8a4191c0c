"""What preflight says of stores with consumequeue_ext: delayed messages by the times there or in the log, and damage."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.preflighting.run import PreflightResult
from tests.tools.encode import EPOCH
from tests.tools.local_engine import local_build
from tests.unit.jobs.preflighting.told import SIZES, told

ON = "enableConsumeQueueExt=true\n"
NEWEST = EPOCH + 599 * 100
EXT_SIZE = 304
"""fifteen units of 20 bytes"""
SCHEDULE = "consumequeue_ext/SCHEDULE_TOPIC_XXXX/0"
FILTERED = "SCHEDULE_TOPIC_XXXX: 10 units of 1 queue"


@pytest.fixture
def extended(store: Path) -> Path:
    """A store whose units have addresses; 10 of its 30 delayed messages are not delivered."""
    out = store.with_name("out")
    assert local_build(store, out, broker_version="5.3", cq_ext="plain", cq_ext_file_size=EXT_SIZE, **SIZES).exit == 0
    shutil.rmtree(store / "consumequeue")
    for part in ("consumequeue", "consumequeue_ext"):
        shutil.move(out / part, store / part)
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: 20}}))
    return store


def asked(store: Path, version: str = "5.3.3", conf: str | None = ON, **more: Any) -> PreflightResult:
    """With a broker.conf, where there is one; the size of files in consumequeue_ext is taken from the files."""
    given = dict(more)
    if conf is not None:
        store.with_name("broker.conf").write_text(conf)
        given["broker_conf"] = str(store.with_name("broker.conf"))
    return told(store, version, **SIZES, **given)


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", "5.5.1"])
def test_times_are_those_of_the_units_there(version: str, extended: Path) -> None:
    for conf in (ON, None):
        found = asked(extended, version, conf)
        (level,) = found.delayed
        assert (found.exit, level["waiting"], level["due"], level["stuck_at"]) == (0, 10, 10, -1)
        assert not [note for note in found.notes if note.startswith("SCHEDULE")]
    # Other times there make another count. A broker takes one for an error that no message of the level can have.
    path = extended / SCHEDULE / f"{EXT_SIZE:020d}"
    raw = bytearray(path.read_bytes())
    for number, later in ((10, 500), (11, 1000), (12, 1001), (13, 1), (14, 0)):
        raw[number * 20 + 2 : number * 20 + 10] = (NEWEST + later).to_bytes(8, "big")
    path.write_bytes(raw)
    (level,) = asked(extended, version).delayed
    assert level["due"] == 7


@pytest.mark.parametrize("conf", ["enableConsumeQueueExt=false\n", ON])
def test_times_of_the_log_where_there_are_none(conf: str, extended: Path) -> None:
    if "true" in conf:
        shutil.rmtree(extended / "consumequeue_ext")
    found = asked(extended, conf=conf)
    (level,) = found.delayed
    assert (level["waiting"], level["due"]) == (10, 10)
    why = "lead to no unit in consumequeue_ext" if "true" in conf else "have addresses in consumequeue_ext, which a broker"
    assert any(note.startswith(f"{FILTERED} {why}") for note in found.notes)
    assert [loss["kind"] for loss in found.losses] == (["ext-short"] if "true" in conf else [])
    (level,) = asked(extended, conf=conf, count_limit=100).delayed
    assert level["due"] == -1, "the log is not read"


def test_a_unit_that_cannot_be_read(extended: Path) -> None:
    path = extended / SCHEDULE / f"{EXT_SIZE:020d}"
    raw = bytearray(path.read_bytes())
    raw[8 * 20 + 18 : 8 * 20 + 20] = b"\x7f\xff"
    path.write_bytes(raw)
    found = asked(extended)
    assert [loss["kind"] for loss in found.losses] == ["ext-unreadable", "delayed-stuck"]
    (level,) = found.delayed
    assert (level["due"], level["stuck_at"]) == (-1, 23)
    assert found.losses[1]["count"] == 7


def test_files_of_another_size(extended: Path) -> None:
    found = asked(extended, conf="enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=1000\n")
    assert (found.loads, found.refusals[0]["kind"]) == (False, "ext-file-size")
    assert "--cq-ext-file-size 1000" in found.losses[0]["commands"][0]
    assert asked(extended, conf="mappedFileSizeConsumeQueueExt=1000\n").loads, "a broker does not read them"


def test_a_changed_file_is_seen(extended: Path) -> None:
    """As with the other files: what preflight says holds of one state of the store."""
    path = extended / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    raw = path.read_bytes()
    path.write_bytes(b"\x7f\xff" + raw[2:])
    found = asked(extended)
    assert (found.loads, [refusal["kind"] for refusal in found.refusals]) == (False, ["ext-unit"])
    assert found.refusals[0]["path"] == f"consumequeue_ext/T/0/{0:020d}"
