"""A build by the project beside one by the reference: every way in which they differ, in words."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.engines.engine import Engine
from tests.golden.stores import read_files
from tests.reference.build import ReferenceBuild, reference_build
from tests.reference.log import merged
from tests.tools.local_engine import local_build

_RENAMED = {"include_topic": "include_topics", "exclude_topic": "exclude_topics"}
_OLD = ("old records may begin", "stale tail: ")
"""of what ``jobs.building.scanning`` says of damage that may be, or is, a stale tail"""
SMALL: dict[str, Any] = {"cq_file_size": 400, "hash_slots": 50, "index_items": 60}
"""File sizes at which small logs fill several files."""


def tells_of_old_records(summary: BuildResult) -> bool:
    """Whether a build of a log without a stale tail takes what lies behind damage for one, or for one perhaps.

    A clock may be set back right there, and queue offsets jump: the reference knows no stale tails.
    """
    return any(words in warning for warning in summary.warnings for words in _OLD)


def differences(
    store: Path, out: Path, engine: Engine | None = None, range_size: int = 0, commitlog: list[Path] | None = None,
    **settings: Any,
) -> list[str]:  # fmt: skip
    """Build ``store`` both ways into ``out`` (emptied first); settings by the reference's names."""
    shutil.rmtree(out, ignore_errors=True)
    truth = reference_build(store, commitlog, **settings)
    more = {"commitlogs": tuple(str(root) for root in commitlog)} if commitlog else {}
    # The reference builds of nothing, too.
    summary = local_build(store, out, engine, range_size=range_size, allow_empty=True, **project_settings(settings), **more)
    return compare(summary, out, truth)


def project_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The reference's names of settings as those of the project."""
    return {_RENAMED.get(name, name): value for name, value in settings.items() if value is not None}


def compare(summary: BuildResult, out: Path, truth: ReferenceBuild) -> list[str]:
    """What a build said and wrote into ``out`` beside the reference's build."""
    return [*_outcome(summary, truth), *_bytes(out, truth.files)]


def _outcome(summary: BuildResult, truth: ReferenceBuild) -> list[str]:
    found = []
    if summary.exit != truth.summary.exit:
        found.append(f"exit {summary.exit} ({summary.error}) instead of {truth.summary.exit} ({truth.summary.refused})")
    torn = [entry for entry in summary.damage if entry["reason"].startswith("torn tail")]
    damage = [(e["offset"], e["offset"] + e["length"]) for e in summary.damage if e not in torn]
    spans, expected = _merge(damage), merged(truth.summary.damage)
    if spans != expected:
        found.append(f"damage {spans} instead of {expected}")
    tail = truth.summary.torn_tail
    if [(e["offset"], e["length"]) for e in torn] != ([(tail.offset, tail.length)] if tail else []):
        found.append(f"torn tail {torn} instead of {tail}")
    if summary.exit in (0, 3):
        counts = [(name, getattr(summary, name), getattr(truth.summary, name)) for name in ("records", "units", "items")]
        found += [f"{name} {ours} instead of {theirs}" for name, ours, theirs in counts if ours != theirs]
    return found


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _bytes(out: Path, files: dict[str, bytes]) -> list[str]:
    ours = read_files(out) if out.exists() else {}
    ours.pop("reindex.json", None)
    found = [f"{name} is missing" for name in sorted(files.keys() - ours.keys())]
    found += [f"{name} is too many" for name in sorted(ours.keys() - files.keys())]
    for name in sorted(files.keys() & ours.keys()):
        if files[name] != ours[name]:
            at = next((k for k, (a, b) in enumerate(zip(ours[name], files[name], strict=False)) if a != b), -1)
            found.append(f"{name} differs from byte {at} on ({len(ours[name])} and {len(files[name])} bytes)")
    return found
