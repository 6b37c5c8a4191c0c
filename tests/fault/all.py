"""``make fault``: every kind of fault in its full number, one after another; ``--kind`` takes one of them alone."""

from __future__ import annotations

import argparse
import subprocess
import sys

COUNTS = {
    "flips": 20_000,
    "truncations": 2_000,
    "sizes": 0,
    "salvage": 1_000,
    "keys": 10_000_000,
    "kill": 200,
    "speculation": 20,
    "operations": 1,
}
OF_PROCESSES = ("kill", "speculation", "operations")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.all", description=__doc__)
    parser.add_argument("--kind", choices=tuple(COUNTS))
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    failed = []
    for kind, count in COUNTS.items():
        if given.kind not in (None, kind):
            continue
        module = "tests.fault.sweep_processes" if kind in OF_PROCESSES else "tests.fault.sweep"
        words = ["--kind", kind, *([] if given.seed is None else ["--seed", str(given.seed)])]
        if kind == "keys":
            module, words = "tests.hostile.keys", []
        command = [sys.executable, "-m", module, *words, "--count", str(given.count or count)]
        print(f"== {kind}", flush=True)
        if subprocess.run(command, check=False).returncode:
            failed.append(kind)
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
