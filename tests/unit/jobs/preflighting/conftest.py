"""One small store, built once, and a copy of it for each test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter
from tests.unit.jobs.preflighting.told import SEGMENT, SIZES


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 5.3 with ConsumeQueues, index and checkpoint, and delayed messages of level 1."""
    store = tmp_path_factory.mktemp("built") / "store"
    with LogWriter(store / "commitlog", SEGMENT) as writer:
        for number in range(600):
            topic, properties = ("SCHEDULE_TOPIC_XXXX", {"DELAY": "1"}) if number % 20 == 0 else ("T", {"KEYS": f"k{number}"})
            writer.append(Message(topic=topic, properties=properties, store_timestamp=EPOCH + number * 100))
    summary = local_build(store, store.with_name("out"), broker_version="5.3", **SIZES)
    assert summary.exit == 0, summary.error
    for part in ("consumequeue", "index", "checkpoint"):
        shutil.move(store.with_name("out") / part, store / part)
    (store / "config").mkdir()
    (store / "config" / "delayOffset.json").write_text(json.dumps({"offsetTable": {1: 30}}))
    return store


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "store")
    return tmp_path / "store"
