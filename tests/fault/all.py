"""``make fault``: every kind of fault in its full number, one after another; ``--kind`` takes one of them alone."""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.fault import sweep, sweep_processes

KEYS = "keys"


def command(kind: str, count: int | None, seed: int | None) -> list[str]:
    """The sweep of one kind; each knows its own full number."""
    words = ["-m", "tests.hostile.keys"]
    if kind != KEYS:
        module = sweep_processes if kind in sweep_processes.RUNS else sweep
        words = ["-m", module.__name__, "--kind", kind, *([] if seed is None else ["--seed", str(seed)])]
    return [sys.executable, *words, *([] if count is None else ["--count", str(count)])]


def main() -> int:
    kinds = [*sweep.KINDS, KEYS, *sweep_processes.RUNS]
    parser = argparse.ArgumentParser(prog="python -m tests.fault.all", description=__doc__)
    parser.add_argument("--kind", choices=kinds)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    failed = []
    for kind in [given.kind] if given.kind else kinds:
        print(f"== {kind}", flush=True)
        if subprocess.run(command(kind, given.count, given.seed), check=False).returncode:
            failed.append(kind)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
