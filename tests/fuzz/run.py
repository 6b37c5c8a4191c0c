"""Fuzz: python -m tests.fuzz.run [--target NAME ...] [--seconds 60] [--jobs 2] [--seed N] [--folder DIR]

Each target runs as plain Python under guidance, then all inputs that it kept run through the compiled loops. Exit status 1 if
an input failed: its file is named, and repeats by python -m tests.fuzz.replay (with NUMBA_DISABLE_JIT=1 if it failed there).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import TARGETS
from tests.fuzz.replay import files, load

ROOT = Path(__file__).resolve().parents[2]
FINDINGS = Path(__file__).parent / "findings"
PATIENCE = 900
"""Seconds beside the time given: to start, and to end"""


@dataclass
class Outcome:
    target: str
    inputs: int
    coverage: str
    kept: int
    failure: str
    """what failed and how to repeat it; empty where nothing did"""


def prepare(target: str, seed: int, folder: Path) -> Path:
    """The corpus to begin with: seeds, the findings of earlier runs, and what an earlier run in ``folder`` kept."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(load(target).seeds(random.Random(seed))):
        (corpus / f"seed-{number}").write_bytes(data)
    for path in sorted(FINDINGS.glob(f"{target}-*")):
        shutil.copy(path, corpus)
    return corpus


def _words(said: str) -> str:
    """What a target said, without the progress of libFuzzer."""
    return "\n".join(line for line in said.splitlines() if not line.startswith(("#", "INFO")))[-6000:]


def _run(arguments: list[str], seconds: int, jit: bool) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0" if jit else "1"}
    command = [sys.executable, *arguments]
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", timeout=seconds, check=False
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 1, "", f"not done after {seconds} s: {error.stderr!r:.3000}")


def fuzz(target: str, seconds: int, seed: int, folder: Path) -> Outcome:
    corpus = prepare(target, seed, folder)
    known = set(folder.glob("*-*"))
    done = _run(["-m", "tests.fuzz.target", target, str(seconds), str(seed), str(folder)], seconds + PATIENCE, jit=False)
    crashes = sorted(set(folder.glob("*-*")) - known)
    executed = re.search(r"number_of_executed_units: (\d+)", done.stderr)
    coverage = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    outcome = Outcome(target, int(executed[1]) if executed else 0, " ".join(coverage[-1]) if coverage else "-", 0, "")
    if done.returncode or crashes:
        repeat = f"NUMBA_DISABLE_JIT=1 {sys.executable} -m tests.fuzz.replay {target} {' '.join(map(str, crashes))}"
        outcome.failure = f"exit {done.returncode}; repeat: {repeat}\n{done.stdout[-2000:]}{_words(done.stderr)}"
        return outcome
    outcome.kept = len(files([corpus]))
    again = _run(["-m", "tests.fuzz.replay", target, str(corpus)], PATIENCE, jit=True)
    if again.returncode:
        repeat = f"{sys.executable} -m tests.fuzz.replay {target} {corpus}"
        outcome.failure = f"compiled loops, exit {again.returncode}; repeat: {repeat}\n{_words(again.stderr)}"
    return outcome


def fuzz_all(targets: list[str], seconds: int, seed: int, jobs: int, folder: Path) -> list[Outcome]:
    """Run ``jobs`` targets at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(fuzz, target, seconds, seed, folder / target) for target in targets]
        return [task.result() for task in running]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description="Coverage-guided fuzzing.")
    parser.add_argument("--target", action="append", choices=TARGETS, help="one of them; may be repeated; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--seed", type=int, default=None, help="repeats the choices of an earlier run")
    parser.add_argument("--folder", type=Path, default=None, help="keeps the corpus for the next run")
    arguments = parser.parse_args()
    seed = arguments.seed or random.SystemRandom().randrange(1, 2**31)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="reindex-fuzz-"))
    print(f"seed {seed}, corpus and failures in {folder}", flush=True)
    failed = False
    for outcome in fuzz_all(arguments.target or list(TARGETS), arguments.seconds, seed, arguments.jobs, folder.resolve()):
        print(f"{outcome.target}: {outcome.inputs} inputs, coverage {outcome.coverage}, {outcome.kept} kept", flush=True)
        if outcome.failure:
            failed = True
            print(f"{outcome.target} FAILED: {outcome.failure}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
