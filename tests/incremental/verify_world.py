"""A log that grows, and what incremental verifies of its build keep and say."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.verifying.summary import VerifyResult
from tests.tools.compare import SMALL
from tests.tools.encode import Message
from tests.tools.local_engine import InlineEngine, local_build
from tests.tools.local_verify import local_verify
from tests.tools.log_writer import LogWriter

OTHER = ("started", "seconds", "beside", "incremental", "notes")


def told(summary: VerifyResult) -> dict[str, Any]:
    """All that a summary says of the store."""
    found = {name: value for name, value in dataclasses.asdict(summary).items() if name not in OTHER}
    return found | {"notes": sorted(summary.notes)}


def again(store: Path, tables: Path, engine: InlineEngine | None = None, **settings: Any) -> VerifyResult:
    return local_verify(store, engine, incremental=True, tables=str(tables), **settings)


def known(summary: VerifyResult) -> tuple[int, int]:
    """Ranges known, and all of them."""
    assert summary.incremental is not None, summary.error
    return summary.incremental["ranges_known"], summary.incremental["ranges"]


class Growing:
    """A log of segments of 16 KiB that grows, and what a build makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log, self.tables = folder, folder / "store" / "commitlog", folder / "tables"
        self.records = 0

    def grow(self, records: int) -> None:
        self.records += records
        aside = self.folder / "aside"
        shutil.rmtree(aside, ignore_errors=True)
        with LogWriter(aside, 1 << 14) as writer:
            for number in range(self.records):
                writer.append(Message("T", queue_offset=number, body=b"x" * 200, properties={"KEYS": f"k{number}"}))
        self.log.mkdir(parents=True, exist_ok=True)
        for path in aside.iterdir():
            kept = self.log / path.name
            if not kept.exists() or kept.read_bytes() != path.read_bytes():
                shutil.copyfile(path, kept)
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        assert local_build(self.log.parent, self.folder / "out", **SMALL).exit == 0

    def verify(self, **more: Any) -> VerifyResult:
        return again(self.folder / "out", self.tables, commitlogs=(str(self.log),), **SMALL, **more)

    @property
    def scans(self) -> Path:
        (found,) = (self.tables / "_scans").iterdir()
        return found

    def data(self) -> set[str]:
        return {path.name for path in (self.scans / "data").iterdir()}
