"""The command line as a process of its own: exit statuses, the summary on stdout, kills, and two runs at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools import spoil
from tests.tools.faulty_processes import SITE, hearing_hangups, stat, wait_until

Stores = Callable[[str], GoldenStore]
KEYS: dict[str, Any] = {
    "version": str, "started": str, "exit": int, "seconds": dict, "bytes": int, "records": int, "units": int, "items": int,
    "tag_items": int, "files": dict, "damage": list, "decisions": list, "warnings": list, "notes": list, "not_removed": list,
    "error": (str, type(None)),
}  # fmt: skip
PATIENCE = 900


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "rocketmq_reindex", "build", *(str(word) for word in words)]


def broker_words(store: GoldenStore) -> list[str]:
    return [
        "--queue-order", "broker", "--checkpoint", "broker", "--broker-version", store.broker_version, *store.size_words()
    ]  # fmt: skip


def start(*words: str | Path, fault: dict[str, Any] | None = None) -> subprocess.Popen[str]:
    """``fault`` as in faulty_site: what a test waits for must not be over before the test has seen it."""
    more = {"REINDEX_FAULTS": json.dumps([fault]), "PYTHONPATH": str(SITE)} if fault else {}
    env, pipe = os.environ | more, subprocess.PIPE
    # A session of its own, as in a terminal of its own.
    with hearing_hangups():
        return subprocess.Popen(command(*words), stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True)


def finished(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], list[str]]:
    """(exit status, the one JSON object on stdout, lines of stderr)."""
    out, err = process.communicate(timeout=PATIENCE)
    assert out.endswith("\n"), err
    assert out.count("\n") == 1, out
    summary = json.loads(out)
    assert summary.keys() == KEYS.keys()
    for name, kind in KEYS.items():
        assert isinstance(summary[name], kind), name
    assert set(summary["seconds"]) == {"session", "build", "total"}
    assert set(summary["files"]) == {"consumequeue", "index"}
    assert process.returncode == summary["exit"]
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith(("error: ", "  "))]
    assert errors == (f"error: {summary['error']}".split("\n") if summary["error"] else [])
    assert [line for line in lines if line.startswith("warning: ")] == [f"warning: {w}" for w in summary["warnings"]]
    assert not any("Traceback" in line for line in lines), err
    return process.returncode, summary, lines


def run(*words: str | Path) -> tuple[int, dict[str, Any], list[str]]:
    return finished(start(*words, "--json", "--master", "local[2]"))


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return stat(process.pid)[0] == "T"


def test_a_build_and_a_second_one_to_the_same_folder(golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("v2-ipv6-batch")
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out"
    with guarded(store.path, out):
        # It would be done before the second is up.
        fault = {"process": "driver", "event": "os.rename", "path": "/plans/ranges-1$", "action": "stop"}
        fault["marker"] = str(tmp_path / "stops")
        first = start(store.path, "--out", out, *broker_words(store), "--json", "--master", "local[2]", fault=fault)
        try:
            wait_until(lambda: is_stopped(first) or first.poll() is not None)
            status, summary, _ = run(store.path, "--out", out, *broker_words(store))
        finally:
            first.send_signal(signal.SIGCONT)
        assert (status, summary["records"]) == (1, 0)
        assert summary["error"] == f"{out}: another build is writing there: wait for it to end"
        status, summary, lines = finished(first)
    assert (status, summary["damage"], summary["decisions"], summary["warnings"]) == (0, [], [], [])
    assert (summary["records"], summary["bytes"]) == (1885, 2 << 20)
    assert summary["files"] == {"consumequeue": 26, "index": 5}
    assert summary["seconds"]["session"] > 0
    assert summary["seconds"]["build"] > 0
    assert lines, "progress goes to stderr"
    assert_is_rebuilt(out, store)
    assert [path.name for path in place.iterdir()] == ["out"]


def test_damage_refused_and_salvaged(golden_store: Stores, tmp_path: Path) -> None:
    source = golden_store("v2-ipv6-batch")
    store = spoil.copy_store(source.path, tmp_path / "store")
    hit = spoil.flip_body(store, 700)
    sizes = broker_words(source)
    for policy, expected in (("fail", 5), ("salvage", 3)):
        with guarded(store, tmp_path / "out"):
            status, summary, _ = run(store, "--out", tmp_path / "out", *sizes, "--on-damage", policy)
        assert status == expected
        (damage,) = summary["damage"]
        assert set(damage) == {"segment", "offset", "length", "reason"}
        assert (damage["segment"], damage["offset"]) == (hit.segment, spoil.record_offsets(store)[700][0])
        assert (tmp_path / "out").exists() == (policy == "salvage")
    assert summary["records"] == 1884


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["{store}"], 2, "--out"),
        (["{store}", "--out", "{out}", "--cq-file-size", "77"], 2, "multiple of 20"),
        (["{store}", "--out", "{out}", "--on-damage", "hope"], 2, "--on-damage"),
        (["{store}", "--out", "{out}", "--no-such-option"], 2, "--no-such-option"),
        (["--out", "{out}"], 2, "STORE"),
        (["{tmp}/none", "--out", "{out}"], 1, "none: is not there"),
        (["{store}", "--out", "{store}/inside"], 1, "apart from the input"),
        (["{store}", "--out", "{tmp}/no/such/out"], 1, "is not a folder"),
    ],
)  # fmt: skip
def test_errors_before_spark_starts(words: list[str], status: int, text: str, golden_store: Stores, tmp_path: Path) -> None:
    store = golden_store("trimmed-head").path
    filled = [word.format(store=store, out=tmp_path / "out", tmp=tmp_path) for word in words]
    with guarded(store, tmp_path / "out"):
        found, summary, _ = finished(start(*filled, "--json"))
    assert (found, summary["seconds"]["session"]) == (status, 0.0)
    assert text in summary["error"]
    assert not (tmp_path / "out").exists()


def _gone(process: subprocess.Popen[str]) -> None:
    """Wait until what the killed driver started has ended too: its pipes are closed then."""
    process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize(
    "kill", [signal.SIGINT, *(pytest.param(kill, marks=pytest.mark.slow) for kill in (signal.SIGKILL, signal.SIGHUP))]
)
def test_a_killed_run_publishes_nothing(kill: signal.Signals, golden_store: Stores, tmp_path: Path) -> None:
    """The next run sweeps what a killed one left and succeeds; one that is asked to end sweeps for itself.

    `make slow` kills it: so do tests/fault/test_process_kills.py, and one of Delta tables in its scan.
    """
    store = golden_store("trimmed-head")
    place = tmp_path / "place"
    place.mkdir()
    out = place / "out"
    words: list[str | Path] = [store.path, "--out", out, *broker_words(store)]
    # The scan does not end: so the driver waits for Spark when it is killed.
    fault = {"process": "worker", "event": "open", "path": "/commitlog/", "action": "sleep 1000"}
    fault["marker"] = str(tmp_path / "sleeps")
    process = start(*words, "--json", "--master", "local[2]", fault=fault)
    wait_until(lambda: (tmp_path / "sleeps.0").exists() or process.poll() is not None)
    if kill != signal.SIGKILL:
        # A terminal sends it to all that was started from there, the JVM as well; as it closes, the shell does once more.
        os.killpg(process.pid, kill)
    if kill != signal.SIGINT:
        os.kill(process.pid, kill)
    if kill != signal.SIGKILL:
        status, summary, _ = finished(process)
        assert (status, summary["error"]) == (128 + kill, "interrupted: nothing was published")
        assert list(place.iterdir()) == []
        return
    _gone(process)
    assert process.returncode == -kill
    assert not out.exists()
    assert any(path.name.startswith(".out.rmq-reindex-") for path in place.iterdir())
    status, summary, _ = run(*words)
    assert (status, summary["error"]) == (0, None)
    assert_is_rebuilt(out, store)
    assert [path.name for path in place.iterdir()] == ["out"]
