"""Seeded logs by RocketMQ's own encoder, made once and kept in .bench/."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / ".bench"
GIB = 1 << 30


def make_log(preset: str, size: int, seed: int) -> Path:
    """The store whose commitlog is the log; ``size`` in bytes."""
    store = BENCH / f"{preset}-{size}-{seed}"
    if not store.exists():
        aside = BENCH / f".making-{store.name}"
        command = [ROOT / "tests/oracle/run", "5.3.3", "LogGen", preset, "--bytes", str(size), "--seed", str(seed)]
        subprocess.run([*map(str, command), "--out", str(aside)], check=True)
        aside.rename(store)
    return store


def warm_page_cache(store: Path) -> int:
    """Read the log once, as both sides of a race find it then; returns its bytes."""
    size = 0
    for segment in sorted((store / "commitlog").iterdir()):
        with segment.open("rb", buffering=0) as stream:
            while part := stream.read(16 << 20):
                size += len(part)
    return size
