"""``make fates N=10 SEED=...``: random lives of messages, and whether ``trace`` and ``consumers`` say what their clients saw.

    python -m tests.fates.sweep [--count 10] [--seed S] [--kinds plain,killed,...] [--messages 150] [--keep DIR]

plain: one broker, which is stopped at the end. killed: a broker that is killed amid the life, and at times at its end, too.
kept: the same, with all that is popped in RocksDB.
two: a cluster of two masters, of which one may be emptied, or both are killed. lone: two masters, of which one is killed while
the other one and all clients live on; it may come back. grpc: the gRPC client beside the Java one, with one master or two: it
also consumes lite topics, and POPs in order. grpc-killed: the same, and brokers and proxy are killed at once. grpc-lone: the
same, and one of two masters is killed.

Exit status 0: each message of each life is told as the clients saw it; 1: some are not, each told with its seed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fates.judge import numbers, wrong
from tests.fates.playing import play
from tests.fates.script import Script, draw

KINDS = ("plain", "killed", "kept", "two", "lone", "grpc", "grpc-killed", "grpc-lone")
SHOWN = 20
"""What is told one by one of a life"""


def script_of(kind: str, seed: int, count: int) -> Script:
    """The script of a seed."""
    some = random.Random(seed)
    kills = some.randint(1, 3)
    if kind == "two":
        return draw(seed, count=count, brokers=2, kills=kills if some.random() < 0.3 else 0)
    if kind.endswith("lone"):
        return draw(seed, count=count, brokers=2, grpc=kind == "grpc-lone", lone=True)
    if kind.startswith("grpc"):
        return draw(seed, count=count, brokers=some.choice((1, 2)), grpc=True, kills=kills if kind == "grpc-killed" else 0)
    return draw(seed, count=count, kills=0 if kind == "plain" else kills, kept=kind == "kept")


def run(kind: str, seed: int, count: int, judged: Counter[str], keep: Path | None = None) -> int:
    """How much is wrong in one life; tells it."""
    began, faults, told = time.monotonic(), list[str](), ""
    with tempfile.TemporaryDirectory(prefix="fates-") as folder:
        try:
            played = play(script_of(kind, seed, count), Path(folder))
            told = numbers(played)
            for fault in wrong(played, judged):
                faults.append(fault)
        except Exception:  # noqa: BLE001  told, and the next one goes on
            faults.append(traceback.format_exc())
        print(f"{kind}, SEED={seed}: {told}; {len(faults)} wrong; {time.monotonic() - began:.0f} s", flush=True)
        for fault in faults[:SHOWN]:
            print(f"{kind}, SEED={seed}: {fault}", flush=True)
        if faults and keep:
            shutil.copytree(folder, keep / f"{kind}-{seed}", dirs_exist_ok=True)
    return len(faults)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fates.sweep", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10, help="lives of each kind (10)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="the first one (random)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of lives ({','.join(KINDS)})")
    parser.add_argument("--messages", type=int, default=150, help="messages of a life (150)")
    parser.add_argument("--keep", type=Path, help="a folder for the stores that are told wrongly")
    args = parser.parse_args(words)
    print(f"SEED={args.seed} N={args.count}", flush=True)
    judged: Counter[str] = Counter()
    faults = [
        run(kind, seed, args.messages, judged, args.keep)
        for seed in range(args.seed, args.seed + args.count)
        for kind in args.kinds.split(",")
    ]
    told = ", ".join(f"{count} {what}" for what, count in judged.items())
    print(f"{len(faults)} lives, {sum(map(bool, faults))} wrong; judged: {told}", flush=True)
    return 1 if any(faults) else 0


if __name__ == "__main__":
    sys.exit(main())
