"""A whole build from a store behind a URI to another, by the command line and its engine, and back on a disk by fetch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocketmq_reindex import files
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching.record import RECORD
from rocketmq_reindex.jobs.publishing import layout
from tests.fault.disk import tree
from tests.golden.stores import GoldenStore
from tests.tools.local_engine import local_build
from tests.tools.upload import upload


def entries_of(manifest: bytes) -> dict[str, Any]:
    """A manifest without where files lie: that is another's at each attempt."""
    found: dict[str, Any] = json.loads(manifest)
    for entry in found["files"]:
        entry.pop("at", None)
    return found


def published(out: str) -> str:
    """The folder of the build that counts."""
    return layout.build_folder(out, layout.pointers(out)[-1].build)


def build_by_command(golden: GoldenStore, place: str, tmp_path: Path, *words: str) -> None:
    """STORE and --out below ``place``: what is fetched equals a local build of the same store, byte for byte."""
    store, out = files.join(place, "store"), files.join(place, "out")
    upload(golden.path / "commitlog", files.join(store, "commitlog"), files.join(place, "aside"))
    words = ("--master", "local[2]", *words)
    run = subprocess.run(
        [sys.executable, "-m", "rocketmq_reindex", "build", store, "--out", out, *golden.size_words(), *words, "--json"],
        capture_output=True, text=True, timeout=900, check=False, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    # Files beside the log would show their version.
    local, alone, more = tmp_path / "local", tmp_path / "alone", dict[str, Any](golden.sizes())
    shutil.copytree(golden.path / "commitlog", alone / "commitlog")
    expected = local_build(alone, local, **more)
    told = json.loads(run.stdout)
    assert {name: told[name] for name in ("records", "units", "items", "files")} == {
        name: getattr(expected, name) for name in ("records", "units", "items", "files")
    }
    assert files.names(files.join(out, "work")) == []
    target = tmp_path / "target"
    target.mkdir()
    assert fetch([out, "--to", str(target)]) == 0
    for name in ("lock", RECORD):
        (target / name).unlink()
    truth = tree(local)
    assert truth is not None
    manifest = truth.pop("reindex.json")
    assert tree(target) == truth
    assert entries_of(files.read_bytes(files.join(published(out), "reindex.json"))) == entries_of(manifest)
