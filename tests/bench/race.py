"""``make bench``: RocketMQ's own rebuild against ours, turn by turn on the same machine, same logs, warm page cache.

Three logs by the real encoder; first both must have written the same bytes. Then one log in several sizes, one executor of
one core against two on a standalone cluster, one core against two in a session of this machine, ``verify``, and what a start
costs, here and on a cluster. Each turn is
alone on the machine's cores; both sides see all of them. Prints each side's minimum, median and maximum and the ratio of the
medians; the figures go to a JSON file, of which ``tests.bench.page`` makes the page.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cluster import race_executors
from tests.bench.cores import race_cores
from tests.bench.logs import BENCH, GIB, MAKING, first_segments, log_bytes, log_folder, make_log, warm_page_cache
from tests.bench.machine import check_disk, describe_machine, fits_memory, steal_seconds
from tests.bench.same import check_same
from tests.bench.sides import Run, Session, run_command, run_peer
from tests.bench.starts import race_starts, race_submits
from tests.bench.verified import race_verify

LOGS = {"orders": 8, "small": 4, "large": 4}
"""Segments of 1 GiB each; --scale makes the segments smaller, not fewer."""
WORK = {"orders": 0.4, "small": 1.4, "large": 0.1}
"""What both sides write of a log, and ours stages, as a part of it: a unit a record, an item a key."""
TARGETS = {
    "orders": {"build": 6.0, "process": 2.6, "local": 4.5},
    "small": {"build": 8.5, "process": 4.0, "local": 8.0},
    "large": {"build": 1.5},
}
SIZES = (1, 2, 4, 8)
SIZES_TARGET = 4.2
PARTS = ("race", "sizes", "executors", "cores", "verify", "starts", "submits")
ENGINES = {"warm": 1.3, "start": 6.0}
"""At most: Spark's build in a warm session in times of the local engine's, and seconds that its whole command takes longer."""
WARM_UP = 3
"""Builds of a session that are not timed: the third no longer pays for what the first ones warm up."""
OURS, PEERS = BENCH / "ours", BENCH / "peer"

Turns = dict[str, Callable[[], Run]]


class Race:
    """One run of the bench: ``results`` is what the page is made of, written anew after each part."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.segment_size = max(1 << 20, int(GIB * min(given.scale, 1.0)) // 4096 * 4096)
        self.results: dict[str, Any] = {
            "command": given.command,
            "scale": self.segment_size / GIB,
            "rounds": given.rounds,
            "seed": given.seed,
            "machine": describe_machine(),
            "races": [],
        }

    def log(self, preset: str) -> Path:
        return make_log(preset, self.segment_size * LOGS[preset], self.given.seed, self.segment_size)

    def prepare(self) -> None:
        """Room is checked and logs are made before anything is measured."""
        BENCH.mkdir(exist_ok=True)
        for left in BENCH.glob(f"{MAKING}*"):
            shutil.rmtree(left)
        sizes = {preset: self.segment_size * LOGS[preset] for preset in self.given.logs}
        missing = sum(size for preset, size in sizes.items() if not log_folder(preset, size, self.given.seed).exists())
        work = {preset: int(WORK[preset] * size) + GIB for preset, size in sizes.items()}
        check_disk(missing, max(work.values()))
        self.results["warm"] = fits_memory(max(size + work[preset] for preset, size in sizes.items()))
        for preset in self.given.logs:
            self.log(preset)

    def rounds(self, turns: Turns) -> dict[str, list[Run]]:
        """All turns in each round, one after another."""
        runs: dict[str, list[Run]] = {name: [] for name in turns}
        for _ in range(self.given.rounds):
            for name, turn in turns.items():
                runs[name].append(turn())
        return runs

    @staticmethod
    def warm_build(session: Session, store: Path) -> Run:
        """A build whose workers have just been at work: Spark ends those that idle for a minute, as while others run."""
        session.run(first_segments(store, 1), OURS)
        return session.run(store, OURS)

    def race(self, preset: str, session: Session) -> None:
        """All rounds of one log."""
        store = self.log(preset)
        turns: Turns = {
            "peer": lambda: run_peer(store, PEERS),
            "build": lambda: self.warm_build(session, store),
            "process": lambda: run_command(store, OURS, self.given.master),
            "local": lambda: run_command(store, OURS, self.given.master, "local"),
        }
        warm_page_cache(store)
        # The session's first builds, and the store's first reading, are not timed; what they wrote is compared.
        turns["peer"]()
        first = [session.run(store, OURS).build]
        compared = check_same(OURS, PEERS)
        size = log_bytes(store)
        print(f"{preset}, {size / GIB:.3g} GiB: {compared} files equal, byte for byte", flush=True)
        first += [session.run(store, OURS).build for _ in range(WARM_UP - 1)]
        runs = self.rounds(turns)
        seconds = {
            "peer": [run.build for run in runs["peer"]],
            "peer process": [run.process for run in runs["peer"]],
            "build": [run.build for run in runs["build"]],
            "process": [run.process for run in runs["process"]],
            "local": [run.process for run in runs["local"]],
            "local build": [run.build for run in runs["local"]],
        }
        records = runs["build"][0].records
        print(f"  {records:,} records{'':<14}      min   median      max")
        for name, values in seconds.items():
            print(show(name, values, records))
        ratios = {
            "build": median(seconds["peer"]) / median(seconds["build"]),
            "process": median(seconds["peer"]) / median(seconds["process"]),
            "local": median(seconds["peer"]) / median(seconds["local"]),
        }
        for name, ratio in ratios.items():
            target = TARGETS[preset].get(name)
            print(f"  ratio of medians, {name}: {ratio:.2f}x" + (f", target {target}x" if target else ""), flush=True)
        engines = {
            "warm": median(seconds["build"]) / median(seconds["local build"]),
            "start": median(seconds["process"]) - median(seconds["local"]),
        }
        print(f"  warm Spark build to the local engine's: {engines['warm']:.2f}x, at most {ENGINES['warm']}x")
        print(f"  whole command with Spark: {engines['start']:.1f} s more, at most {ENGINES['start']:g} s", flush=True)
        self.results["races"].append(
            {
                "preset": preset,
                "bytes": size,
                "records": records,
                "files": compared,
                "first": first,
                "seconds": seconds,
                "ratios": ratios,
                "targets": TARGETS[preset],
                "engines": engines,
                "engines_targets": ENGINES,
                "runs": {name: [asdict(run) for run in found] for name, found in runs.items()},
            }
        )

    def sizes(self, session: Session) -> None:
        """``orders``: its first segments as logs of their own, sizes in turn."""
        store = self.log("orders")
        parts = {count: first_segments(store, count) for count in SIZES}
        warm_page_cache(store)
        turns: Turns = {}
        for count, part in parts.items():
            turns[f"peer {count}"] = lambda part=part: run_peer(part, PEERS)  # type: ignore[misc]
            turns[f"build {count}"] = lambda part=part: self.warm_build(session, part)  # type: ignore[misc]
        for _ in range(WARM_UP):
            turns[f"build {SIZES[1]}"]()
        runs = self.rounds(turns)
        found: list[dict[str, Any]] = [
            {
                "bytes": log_bytes(part),
                "records": runs[f"build {count}"][0].records,
                "peer": [run.build for run in runs[f"peer {count}"]],
                "build": [run.build for run in runs[f"build {count}"]],
            }
            for count, part in parts.items()
        ]
        print("orders by size" + " " * 20 + "      min   median      max")
        for one in found:
            for side in ("peer", "build"):
                print(show(f"{side}, {one['bytes'] / GIB:.3g} GiB", one[side], one["records"]))
        ratio = median(found[-1]["build"]) / median(found[1]["build"])
        print(f"  time({SIZES[-1] // SIZES[1]} x the log) / time(log): {ratio:.2f}, at most {SIZES_TARGET}", flush=True)
        self.results["sizes"] = {"found": found, "ratio": ratio, "target": SIZES_TARGET}

    def executors(self) -> None:
        """``orders``, its first quarter, on a cluster of its own."""
        store = first_segments(self.log("orders"), SIZES[1])
        warm_page_cache(store)
        self.results["executors"] = race_executors(store, OURS, self.given.rounds, WARM_UP)

    def cores(self) -> None:
        """``orders``, whole, in sessions of this machine."""
        store = self.log("orders")
        warm_page_cache(store)
        self.results["cores"] = race_cores(store, OURS, self.given.rounds, WARM_UP)

    def verify(self) -> None:
        """The first segment of ``orders``."""
        store = first_segments(self.log("orders"), 1)
        warm_page_cache(store)
        self.results["verify"] = race_verify(store, OURS, self.given.rounds, self.given.master)

    def starts(self) -> None:
        """The demo's store: all that it costs is the start."""
        self.results["starts"] = race_starts(self.given.rounds, self.given.master)

    def submits(self) -> None:
        """The first segment of ``orders``."""
        store = first_segments(self.log("orders"), 1)
        warm_page_cache(store)
        self.results["submits"] = race_submits(store, OURS, self.given.rounds)

    def run(self) -> None:
        self.prepare()
        begin, stolen = time.monotonic(), steal_seconds()
        if {"race", "sizes"} & set(self.given.parts):
            session = Session(self.given.master)
            self.results["session"] = session.start_seconds
            try:
                for preset in self.given.logs if "race" in self.given.parts else ():
                    self.race(preset, session)
                    self.keep(begin, stolen)
                if "sizes" in self.given.parts and "orders" in self.given.logs:
                    self.sizes(session)
                    self.keep(begin, stolen)
            finally:
                session.stop()
        for name in PARTS[2:]:
            if name in self.given.parts and "orders" in self.given.logs:
                getattr(self, name)()
                self.keep(begin, stolen)
        for folder in (OURS, PEERS):
            shutil.rmtree(folder, ignore_errors=True)

    def keep(self, begin: float, stolen: float) -> None:
        self.results["minutes"] = (time.monotonic() - begin) / 60
        self.results["stolen"] = (steal_seconds() - stolen) / (time.monotonic() - begin)
        self.given.json.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def show(name: str, seconds: list[float], records: int) -> str:
    middle = median(seconds)
    return f"  {name:<28} {min(seconds):8.2f} {middle:8.2f} {max(seconds):8.2f} s   {records / middle:12,.0f} records/s"


def words_of(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    """A list of words separated by commas, all of them known, for argparse."""

    def words(text: str) -> list[str]:
        found = [word for word in text.split(",") if word]
        if not found or set(found) - set(known):
            raise argparse.ArgumentTypeError(f"take one or more of {','.join(known)}")
        return found

    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=words_of(tuple(LOGS)), default=list(LOGS), help="presets, separated by commas")
    parser.add_argument("--parts", type=words_of(PARTS), default=list(PARTS), help="separated by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="of the logs' sizes: 0.125 takes 1 GiB of orders")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--command", default=" ".join(["python -m tests.bench.race", *sys.argv[1:]]), help="told on the page")
    parser.add_argument("--json", type=Path, default=BENCH / "results.json")
    Race(parser.parse_args()).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
