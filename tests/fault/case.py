"""One spoilt store and the settings it is built with; whether the build did as the reference does."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.engines.engine import Engine, Engines
from tests.golden.guard import guarded
from tests.reference.build import reference_build
from tests.reference.log import LogError
from tests.tools.compare import SMALL, compare, project_settings, tells_of_old_records
from tests.tools.local_engine import InlineEngine, run_build, single

Segments = dict[str, bytes]
POLICIES = ("fail", "stop", "salvage")
SECONDS_MAX = 120.0
"""Longer than this and a build of some tens of KiB, which takes a tenth of a second, counts as a hang."""


def nothing_more(_summary: BuildResult, _out: Path) -> list[str]:
    """The reference says all there is to say."""
    return []


@dataclass(frozen=True)
class Case:
    """``number`` of ``kind`` under ``seed`` names it; ``field`` says what was hit. ``settings`` by the reference's names."""

    kind: str
    seed: int
    number: int
    field: str
    segments: Segments
    settings: dict[str, Any]
    range_size: int = 0
    extra: Callable[[BuildResult, Path], list[str]] = nothing_more
    """what more there is to say against the outcome"""

    def __str__(self) -> str:
        return (
            f"--kind {self.kind} --seed {self.seed} --only {self.number}: {self.field}, range size {self.range_size}, "
            f"{ {name: value for name, value in self.settings.items() if name not in SMALL} }"
        )


def some_settings(rng: random.Random, **fixed: Any) -> dict[str, Any]:
    """Settings of any kind, those given aside; by the reference's names."""
    return {
        **SMALL,
        "on_damage": rng.choice((*POLICIES, "salvage")),
        "queue_order": rng.choice(("logical", "logical", "logical", "broker", "broker", "fail")),
        "crc": rng.choice(("body", "body", "all", "all", "none")),
        "checkpoint": rng.choice(("safe", "broker")),
        "broker_version": rng.choice(("5.5", "5.3", "4.9")),
        "lmq": rng.random() < 0.5,
        **fixed,
    }


def some_range_size(rng: random.Random) -> int:
    """0 is the plan's own."""
    return rng.choice((0, 0, 0, 1 << 12, 3000, 3000, 1700, 1100, 500))


def write_segments(segments: Segments, store: Path) -> None:
    folder = store / "commitlog"
    folder.mkdir(parents=True)
    for name, data in segments.items():
        (folder / name).write_bytes(data)


def build(case: Case, store: Path, out: Path, engines: Engines | None = None) -> BuildResult:
    """The project's build of a store that is already there."""
    words = BuildSettings(store=str(store), out=str(out), range_size=case.range_size, **project_settings(case.settings))
    engine: Engine = InlineEngine(2, 2)
    return run_build(words.check(), engines or single(engine))


def faults(case: Case, place: Path, engines: Engines | None = None, seconds: float = SECONDS_MAX) -> list[str]:
    """All that is wrong with the project's build of ``case``, in words; ``place`` is emptied before and after."""
    shutil.rmtree(place, ignore_errors=True)
    store, out = place / "in" / "store", place / "out" / "built"
    out.parent.mkdir(parents=True)
    write_segments(case.segments, store)
    try:
        return [*_wrong(case, store, out, engines, seconds), *_strays(place)]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _strays(place: Path) -> list[str]:
    beside = {"in", "in/store", "in/store/commitlog", "out", "out/built"}
    roots = {path.relative_to(place).as_posix() for path in [*place.glob("*"), *place.glob("*/*"), *place.glob("in/*/*")]}
    return [f"{path} was made outside the output" for path in sorted(roots - beside)]


def _wrong(case: Case, store: Path, out: Path, engines: Engines | None, seconds: float) -> list[str]:
    before = time.monotonic()
    try:
        with guarded(store, out):
            summary = build(case, store, out, engines)
    except Exception as error:  # noqa: BLE001  whatever comes out of a build but its own errors is a finding
        return [f"raised {type(error).__name__}: {error}"]
    took = time.monotonic() - before
    found = [f"took {took:.1f} s"] if took > seconds else []
    if out.exists() != (summary.exit in (0, 3)):
        found.append(f"exit {summary.exit}, output there: {out.exists()}")
    if bool(summary.error) != (summary.exit in (1, 5)):
        found.append(f"exit {summary.exit} with error {summary.error!r}")
    # What to do about an error stands in lines of its own, which begin with blanks.
    told = "".join([*summary.warnings, *(summary.error or "").split("\n  ")])
    if not (told.isascii() and told.isprintable()):
        found.append("a warning or error holds raw text of the log")
    try:
        truth = reference_build(store, **case.settings)
    except LogError as error:
        return found if summary.exit == 1 else [*found, f"exit {summary.exit}, where the input is to be refused: {error}"]
    if tells_of_old_records(summary):
        # Older records behind damage: the reference gives them the places of newer ones, which a build does not.
        # tests/builds/test_stale_tail.py holds what becomes of them.
        places = {entry["offset"] for entry in summary.damage}
        missed = [damage.offset for damage in truth.summary.damage[:1] if damage.offset not in places]
        return [*found, *(f"damage at {offset} is not told" for offset in missed)]
    return [*found, *compare(summary, out, truth), *case.extra(summary, out)]
