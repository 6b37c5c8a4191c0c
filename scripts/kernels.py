"""Compile the record loops, so that neither a first command nor a first test waits for them.

What is compiled lies below ``storage_format``. A change of a module there makes it anew where it is used next.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def work_through(folder: Path) -> None:
    """Build, verify and read a small log that has every kind of record and of damage."""
    from rocketmq_reindex.jobs.cli import main as rmq_reindex
    from rocketmq_reindex.storage_format.kernels import raw_bytes
    from rocketmq_reindex.udfs.sql.sources import CommitlogSource, ConsumeQueueSource
    from tests.tools import spoil
    from tests.tools.local_engine import local_build
    from tests.tools.local_verify import local_verify
    from tests.tools.make_log import FEATURES, random_log
    from tests.tools.read_rows import read_rows

    raw_bytes.warm_up()
    store, log = folder / "store", folder / "store" / "commitlog"
    sizes: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
    random_log(log, 7, records=150, segment_size=1 << 14, features=FEATURES, biggest_body=300)
    for number, damage in enumerate(spoil.RECORD_KINDS.values()):
        damage(store, 140 - 10 * number, 7)
    for version in ("4.9", "5.3"):
        out = folder / version
        local_build(store, out, broker_version=version, lmq=True, crc="all", on_damage="salvage", range_size=5000, **sizes)
        local_verify(out, commitlogs=(str(log),), **sizes)
    read_rows(CommitlogSource, store, damage="rows", unpack="true")
    read_rows(ConsumeQueueSource, out)
    for words in (["--physical", "0"], ["--topic", "TopicB", "--key", "key"]):
        rmq_reindex(["query", str(out), "--commitlog", str(log), *words])
    rows = folder / "rows.jsonl"
    for words in (
        ["export", str(store), "--format", "store", "--to", str(folder / "exported")],
        ["export", str(store), "--to", str(rows)],
        ["import", str(rows), "--to", str(folder / "imported")],
    ):
        rmq_reindex(words)
    for segment in (min(log.iterdir()), shutil.copy(max(log.iterdir()), folder / "copied")):
        rmq_reindex(["inspect", str(segment), "--kind", "segment"])


def main() -> int:
    """0; an exception says what could not be compiled."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        work_through(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
