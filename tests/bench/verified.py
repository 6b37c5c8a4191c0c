"""How long a whole ``verify`` takes on a store of 1 GiB, with each engine, in turn."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.sides import run_command, run_verify

TARGET = 4.0
"""seconds, with ``--engine local``"""
ENGINES = ("local", "spark")


def race_verify(store: Path, out: Path, rounds: int, master: str) -> dict[str, Any]:
    """Seconds of the whole command by engine. ``store`` is a log; ``out`` becomes its build."""
    run_command(store, out, master, "local")
    seconds: dict[str, list[float]] = {engine: [] for engine in ENGINES}
    for number in range(-1, rounds):
        for engine, found in seconds.items():
            took = run_verify(store, out, master, engine)
            if number >= 0:
                found.append(took)
    print("verify, 1 GiB of orders" + " " * 11 + "      min   median      max")
    for engine, values in seconds.items():
        print(f"  {engine:<28} {min(values):8.2f} {median(values):8.2f} {max(values):8.2f} s", flush=True)
    return {"seconds": seconds, "target": TARGET}
