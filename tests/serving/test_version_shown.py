"""A real broker's store with nothing named: info tells its version and no problem, and a build serves it whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocketmq_reindex as rr
from rocketmq_reindex.storage_format.versions import RULES, line_of
from tests.serving.crashes import Store, copied, crash, due_of
from tests.serving.programs import Program
from tests.serving.stores import keyed_log, place

OLD = 300
TAIL = 60
"""records in the last segment, where there is room for what is put"""


@pytest.mark.parametrize("version", ["4.9.8", "5.3.3", pytest.param("5.4.0", marks=pytest.mark.slow), "5.5.1"])
def test_the_store_of_a_broker(version: str, seed: int, tmp_path: Path) -> None:
    """Stopped cleanly, killed behind a flush, and killed without one. Each is built anew, and served whole."""
    log = tmp_path / "log"
    stores = copied(log, tmp_path, due_of(keyed_log(log, OLD, seed, tail=TAIL)), "stopped", "flushed", "killed")
    stopped, flushed, killed = stores
    tags = RULES[line_of(version)].tag_items
    with Program(version, "Crash", tmp_path) as program:
        for store in stores:
            store.open(program)
            store.add(program, "first")
        # A store that closes before CommitLog.FlushRealTimeService's first full round leaves a checkpoint without a time.
        for store in (stopped, flushed):
            program.step("flush", store.name)
        program.step("close", stopped.name)
        program.kill()
    crash(flushed, killed)
    found = rr.info(stopped.path)
    assert (found.problems, found.messages) == ([], stopped.due.records)
    for store in stores:
        assert line_of(version) in rr.info(store.path).fits["versions"], store.name
        rebuilt(store, tags)
    with Program(version, "Crash", tmp_path) as program:
        for store in stores:
            store.open(program)
            store.is_whole(program, tmp_path, "rebuilt with nothing named", by_tag=tags)


def rebuilt(store: Store, tags: bool) -> None:
    """Put a build with no size and no version in the place of the files. It has items of TAGS where the broker puts them."""
    out = store.path.with_name(f"{store.name}-out")
    summary = rr.build(store.path, out=out, engine="local")
    assert summary.exit_status == 0
    assert (summary.warnings, summary.tag_items > 0) == ([], tags)
    place(out, store.path)
