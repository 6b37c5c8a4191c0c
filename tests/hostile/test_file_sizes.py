"""Sizes are checked against the format before anything is read: a sparse file costs nobody a byte, and fills any memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.api.running_here import run_preflight
from rocketmq_reindex.jobs.building.inputs import look_at
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.inspecting.options import inspect
from rocketmq_reindex.jobs.preflighting.options import parse_preflight
from rocketmq_reindex.jobs.verifying.index import IndexComparison
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.udfs.incremental.scan_store import ScanStore
from rocketmq_reindex.udfs.incremental.stored_rows import stored_rows
from tests.tools.compare import SMALL
from tests.tools.local_engine import local_build
from tests.tools.local_verify import local_verify
from tests.tools.make_log import random_log

pytestmark = pytest.mark.usefixtures("inline_local")

TIB = 1 << 40
NAME = "0" * 20
PLACES = (
    "checkpoint", "config/timercheck", "timerwheel", f"timerlog/{NAME}", f"consumequeue/T/0/{NAME}",
    f"batchconsumequeue/T/0/{NAME}", "index/20260101000000000",
)  # fmt: skip


def sparse(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
    return path


def store_of(folder: Path) -> Path:
    random_log(folder / "commitlog", 1, records=60, segment_size=1 << 15)
    return folder


def limited(*words: str) -> subprocess.CompletedProcess[str]:
    """A command that has 3 GiB for all that it maps."""
    most = 3 << 30

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    command = [sys.executable, "-m", "rocketmq_reindex", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limit)


@pytest.mark.parametrize("place", PLACES)
def test_inspect_reads_no_file_that_no_broker_has(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sparse(tmp_path / place, TIB)
    assert inspect([str(path)]) == 1
    said = capsys.readouterr().err
    assert "1,099,511,627,776 bytes" in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1


def test_query_leaves_an_index_file_of_3_gib_out(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    path = sparse(store / "index" / "20260101000000000", 3 << 30)
    with path.open("r+b") as file:
        file.seek(36)
        file.write((5).to_bytes(4, "big"))
    told = limited("query", str(store), "--topic", "T", "--key", "k")
    assert "has 3,221,225,472 bytes, more than any IndexFile" in told.stdout + told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("place", [f"commitlog/{NAME}", f"consumequeue/T/0/{NAME}", "index/20260101000000000"])
def test_preflight_takes_no_size_that_no_broker_has(place: str, tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    (store / place).unlink(missing_ok=True)
    sparse(store / place, TIB)
    found = run_preflight(lambda: parse_preflight([str(store)]), quiet=True).result
    assert found.error is None
    if not place.startswith("index"):
        assert "1,099,511,627,776 bytes" in found.refusals[0]["detail"]


@pytest.mark.parametrize("name", ["09223372036854767616", "09223372036854775807"])
@pytest.mark.parametrize("place", ["commitlog", "consumequeue/T/0", "timerlog"])
def test_preflight_and_names_at_the_border_of_63_bits(name: str, place: str, tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    sparse(store / place / name, 100 << 20 if place == "timerlog" else 1 << 15 if place == "commitlog" else 6_000_000)
    found = run_preflight(lambda: parse_preflight([str(store)]), quiet=True).result
    assert found.exit == 1
    assert f"{place}/{name}: a broker takes this file by its name, which is not the offset" in (found.error or "")


def test_an_index_file_that_goes_away_while_it_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(tmp_path / "store")
    assert local_build(store, tmp_path / "out", **SMALL).exit == 0
    last = max((tmp_path / "out" / "index").iterdir())
    check = IndexComparison.check_files

    def then_gone(self: Any, *words: Any) -> Any:
        found = check(self, *words)
        last.unlink()
        return found

    monkeypatch.setattr(IndexComparison, "check_files", then_gone)
    with pytest.raises((OSError, InputError), match=last.name):
        local_verify(tmp_path / "out", commitlogs=(str(store / "commitlog"),), **SMALL)


@pytest.mark.parametrize("command", ["build", "verify"])
def test_ranges_that_are_too_small(command: str, tmp_path: Path) -> None:
    """Each is a task: a log of 64 KiB would have 65,536 of them."""
    store = store_of(tmp_path / "store")
    out = ["--out", str(tmp_path / "out")] if command == "build" else []
    told = limited(command, str(store), *out, "--engine", "local", "--range-size", "1", "--json")
    assert told.returncode == 1
    error = json.loads(told.stdout)["error"]
    assert error.startswith("--range-size 1: cuts 65,536 bytes of log into 65,536 ranges, each a task: take at least 7")


def test_they_are_refused_before_spark_starts(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    with pytest.raises(InputError, match=r"^--range-size 1: cuts 65,536 bytes of log"):
        look_at(BuildSettings(str(store), str(tmp_path / "out"), range_size=1, **SMALL).check())


def test_configuration_that_is_no_file_of_a_broker(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    conf = sparse(tmp_path / "broker.conf", TIB)
    for words in (("build", str(store), "--out", str(tmp_path / "out")), ("query", str(store), "--topic", "T", "--key", "k")):
        told = limited(*words, "--broker-conf", str(conf))
        assert (told.returncode, "Traceback" in told.stderr) == (2, False)
        assert "--broker-conf" in told.stderr
    assert os.path.getsize(conf) == TIB


def test_report_of_a_manifest_that_no_build_wrote(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    assert local_build(store, tmp_path / "out", **SMALL).exit == 0
    sparse(tmp_path / "out" / "reindex.json", TIB)
    told = limited("report", str(tmp_path / "out"), "--out", str(tmp_path / "report.html"))
    assert (told.returncode, "Traceback" in told.stderr) == (1, False)
    assert "reindex.json: has 1,099,511,627,776 bytes where at most 268,435,456 are read" in told.stderr


def test_a_build_over_a_topics_file_that_no_build_wrote(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    assert local_build(store, tmp_path / "out", write_topics=True, **SMALL).exit == 0
    sparse(tmp_path / "out" / "config" / "topics.json", TIB)
    sizes = [word for name, size in SMALL.items() for word in (f"--{name.replace('_', '-')}", str(size))]
    told = limited("build", str(store), "--out", str(tmp_path / "out"), "--overwrite", "--engine", "local", *sizes)
    assert (told.returncode, "Traceback" in told.stderr) == (1, False)
    assert "config/topics.json" in told.stderr


def test_a_scan_store_knows_no_entry_that_no_run_wrote(tmp_path: Path) -> None:
    scans = ScanStore(str(tmp_path / "scans"))
    scans.make()
    sparse(Path(scans.entries) / "k", TIB)
    assert scans.find("k") is None
    sparse(tmp_path / "rows", TIB)
    with pytest.raises(InputError, match="has 1,099,511,627,776 bytes where at most"):
        next(stored_rows(str(tmp_path / "rows"), "d"))
