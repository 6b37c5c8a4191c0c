"""Put in place what a broker derives from a log."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from rocketmq_reindex.jobs.cli import main
from tests.tools.encode import Message
from tests.tools.log_writer import LogWriter

SIZES = ("--cq-file-size", "4000", "--hash-slots", "100", "--index-items", "400")
PARTS = ("consumequeue", "index", "checkpoint")


def derive(store: Path, *words: str) -> None:
    """Build all parts of a store, and put them in."""
    out = store.with_name(f"{store.name}-out")
    assert main(["build", str(store), "--out", str(out), "--engine", "local", *words]) == 0
    for part in PARTS:
        shutil.move(out / part, store / part)


def write_store(store: Path, messages: Iterable[Message], segment: int) -> Path:
    """A store with these messages, and what a broker derives from them."""
    with LogWriter(store / "commitlog", segment) as writer:
        for message in messages:
            writer.append(message)
    derive(store, *SIZES)
    return store
