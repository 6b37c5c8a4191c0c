"""Incremental builds and verifies on the engine of one machine: the bytes of full builds, and no Delta tables."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.cli import main
from tests.golden.stores import read_files
from tests.incremental.world import SALVAGE, World
from tests.tools.local_engine import local_build
from tests.tools.seeds import STEP, cases

LOCAL = ("--engine", "local", "--hash-slots", "7", "--index-items", "32", "--cq-file-size", "400")
ROWS = "--tables: keeps what is known of the log; --engine local writes no rows of Delta tables"


class LocalWorld(World):
    """The same world, built by the command on the engine of one machine."""

    def run(self, capsys: pytest.CaptureFixture[str], command: str, *words: str) -> dict[str, Any]:
        capsys.readouterr()
        status = main([command, *words, "--engine", "local", "--json"])
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert (found["exit"], found["error"]) == (status, None)
        return found

    def build_again(self, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
        words = (str(self.store), "--out", str(self.out), *SALVAGE, *LOCAL)
        return self.run(capsys, "build", *words, "--incremental", "--tables", str(self.tables), *more)

    def full_build(self) -> dict[str, bytes]:
        """By this process alone: to start others takes longer."""
        shutil.rmtree(self.full, ignore_errors=True)
        built = local_build(self.store, self.full, on_damage="salvage", hash_slots=7, index_items=32, cq_file_size=400)
        assert (built.exit in (0, 3), built.error) == (True, None)
        return read_files(self.full)

    def verify(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        words = (str(self.out), "--commitlog", str(self.log), "--incremental", "--tables", str(self.tables))
        return self.run(capsys, "verify", *words, *LOCAL)


@pytest.mark.usefixtures("inline_local")
def test_a_log_that_lives(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What is written is that of a full build after each change, and what is known is not read again."""
    world, rng = LocalWorld(tmp_path), random.Random(seed)
    world.append(rng, 120)
    first = world.build_again(capsys)
    assert first["notes"].count(ROWS) == 1
    assert first["incremental"]["ranges_known"] == 0
    again = world.build_again(capsys)
    assert again["incremental"]["nothing_new"]
    assert read_files(world.out) == world.full_build()
    # tests/incremental has the others.
    changes: list[Callable[[], None]] = [lambda: world.append(rng, 40), lambda: world.damage(rng), lambda: world.crash(rng)]
    for change in cases(changes, [changes[seed // STEP % 3]]):
        change()
        found = world.build_again(capsys)
        assert found["incremental"]["ranges_known"] > 0 or found["incremental"]["nothing_new"]
        assert read_files(world.out) == world.full_build()
    assert [path.name for path in world.tables.iterdir()] == ["_scans"], "no Delta table"
    assert list(world.tables.rglob("*.owed")), "a run on Spark learns that the rows are missing"


@pytest.mark.usefixtures("inline_local")
def test_a_verify_reads_what_is_new(tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    verify_what_is_new(LocalWorld(tmp_path), random.Random(seed), capsys)


def test_the_engines_own_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The tests before this one run the tasks in this process: no seed changes what the engine does with them."""
    verify_what_is_new(LocalWorld(tmp_path), random.Random(1), capsys)


def verify_what_is_new(world: LocalWorld, rng: random.Random, capsys: pytest.CaptureFixture[str]) -> None:
    world.append(rng, 150)
    world.build_again(capsys)
    first = world.verify(capsys)
    assert (first["findings"], first["incremental"]["ranges_known"]) == ([], 0)
    world.append(rng, 20)
    world.build_again(capsys)
    later = world.verify(capsys)
    assert later["findings"] == []
    assert 0 < later["incremental"]["ranges_known"] < later["incremental"]["ranges"]
    victim = min((world.out / "consumequeue").glob("*/*/*"))
    data = bytearray(victim.read_bytes())
    data[0] ^= 1
    victim.write_bytes(data)
    words = (str(world.out), "--commitlog", str(world.log), "--incremental", "--tables", str(world.tables), *LOCAL)
    assert main(["verify", *words]) == 4
