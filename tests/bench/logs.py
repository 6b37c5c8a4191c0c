"""Seeded logs by RocketMQ's own encoder, made once and kept in .bench/."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / ".bench"
GIB = 1 << 30
MAKING = ".making-"


def log_folder(preset: str, size: int, seed: int) -> Path:
    return BENCH / f"{preset}-{size}-{seed}"


def make_log(preset: str, size: int, seed: int, segment_size: int = GIB) -> Path:
    """The store whose commitlog is the log; ``size`` in bytes."""
    store = log_folder(preset, size, seed)
    if not store.exists():
        aside = BENCH / f"{MAKING}{store.name}-{os.getpid()}"
        command = [ROOT / "tests/oracle/run", "5.3.3", "LogGen", preset, "--bytes", size, "--seed", seed]
        subprocess.run([str(word) for word in (*command, "--segment-size", segment_size, "--out", aside)], check=True)
        aside.rename(store)
    return store


def first_segments(store: Path, count: int) -> Path:
    """The store's first segments as a log of their own, by hard links: what a broker had written until then."""
    part = store.with_name(f"{store.name}-first-{count}")
    (part / "commitlog").mkdir(parents=True, exist_ok=True)
    for segment in segments(store)[:count]:
        link = part / "commitlog" / segment.name
        if not link.exists():
            link.hardlink_to(segment)
    return part


def segments(store: Path) -> list[Path]:
    return sorted((store / "commitlog").iterdir())


def log_bytes(store: Path) -> int:
    """The bytes of a log whose segments are full: files as long as they say."""
    return sum(segment.stat().st_size for segment in segments(store))


def warm_page_cache(store: Path) -> None:
    """Read the log once, as both sides of a race find it then."""
    for segment in segments(store):
        with segment.open("rb", buffering=0) as stream:
            while stream.read(16 << 20):
                pass
