"""Builds and verifies in a bucket by processes of this machine: rows stay here, and go with the run, however that ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.jobs.cli import main
from tests.fault.disk import tiny_store
from tests.fault.processes import fault
from tests.golden.stores import GoldenStore
from tests.stores.whole import build_by_command
from tests.tools.faulty_processes import command, fired, in_session, running, wait_until
from tests.tools.faulty_runs import SIZES

Stores = Callable[[str], GoldenStore]


def test_from_bucket_to_bucket(
    golden_store: Stores, s3_place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp))
    build_by_command(golden_store("wide-keys"), s3_place, tmp_path, "--engine", "local")
    out, log = (files.join(s3_place, name) for name in ("out", "store/commitlog"))
    assert main(["verify", out, "--commitlog", log, "--engine=local", "--work", files.join(out, "work")]) == 0
    assert files.names(files.join(out, "work")) == []
    assert os.listdir(tmp) == []


def test_a_killed_driver_leaves_no_rows_here(s3_place: str, tmp_path: Path) -> None:
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    words = command(tiny_store(tmp_path / "store"), tmp_path / "out", *SIZES, "--engine=local")
    words[words.index("--out") + 1] = files.join(s3_place, "out")
    slow = fault("worker", ("open", "/rmq-reindex-rows-"), "sleep 900")
    with running(words, tmp_path / "run", [slow], {"TMPDIR": str(tmp)}) as found:
        wait_until(lambda: fired(found.folder))
        assert len(os.listdir(tmp)) == 1
        found.process.send_signal(signal.SIGKILL)
        wait_until(lambda: not in_session(found.process.pid), 300)
    assert os.listdir(tmp) == []
