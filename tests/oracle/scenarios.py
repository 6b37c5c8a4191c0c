"""Random stores of the real RocketMQ, many by one JVM, each with RocketMQ's own rebuild of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.golden.stores import read_files

FOLDER = Path(__file__).parent
REPO = FOLDER.parent.parent
VERSIONS = ("5.5.1", "5.5.0", "5.4.0", "5.3.4", "5.3.3", "4.9.8")
PLAIN, STALE, CLOSED = "", "stale", "closed"
UNLOADABLE = "oracle.Main$Failure: the store does not load"
"""Of a log that RocketMQ 5.3 or 5.4 writes and then cannot load: a record below its queue's end left an empty last file."""
UNCLEAN = "oracle.Main$Failure: the store did not shut down cleanly"
"""Of a truncated store of 4.9.8 now and then: it takes itself for behind with dispatching, and keeps its abort file."""
_OPTIONS = ("segment_size", "cq_file_size", "hash_slots", "index_items", "delay_levels", "lmq")


@dataclass(frozen=True)
class Scenario:
    """A store below ``path``: commitlog/, rebuilt/ and settings.json."""

    path: Path
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """What repeats it."""
        return f"RocketMQ {self.settings['version']}, SEED={self.settings['seed']} ({', '.join(self.settings['features'])})"

    @property
    def failure(self) -> str | None:
        """Why the real store made no rebuild, or None."""
        failure: str | None = self.settings["failure"]
        return failure

    def options(self) -> dict[str, Any]:
        """What makes a build give the broker's own bytes."""
        given = {name: self.settings[name] for name in _OPTIONS}
        return {**given, "broker_version": self.settings["version"][:3], "queue_order": "broker", "checkpoint": "broker"}

    @property
    def unusable(self) -> bool:
        """Whether the real store does not load or close what it wrote itself, as is known of its version."""
        return self.failure == UNCLEAN or (self.failure == UNLOADABLE and not self.keeps_empty_files)

    @property
    def keeps_empty_files(self) -> bool:
        """Whether this version starts on a queue whose last file is empty (``ConsumeQueue.correctMinOffset``).

        Of 5.3.4 and 5.4.0 it depends on the log's end: ours leaves such a file out.
        """
        return not self.settings["version"].startswith(("5.3", "5.4"))

    def rebuilt(self) -> dict[str, bytes]:
        """{relative path: bytes} of the broker's own rebuild."""
        return read_files(self.path / "rebuilt")


def java_home() -> dict[str, str]:
    """The environment of the oracle's JVM: the JDK that set-up chose, if it did."""
    chosen = REPO / ".java-home"
    return {**os.environ, **({"JAVA_HOME": chosen.read_text().strip()} if chosen.exists() else {})}


def make(version: str, seed: int, count: int, out: Path, kind: str = PLAIN, threads: int = 4) -> list[Scenario]:
    """The scenarios ``seed`` to ``seed + count - 1`` of one version, below ``out`` (new or empty).

    ``kind``: PLAIN, or STALE for stores that were truncated and written on, or CLOSED. The last two stay as the broker left
    them.

    Raises RuntimeError with what the JVM said, if it fails as a whole.
    """
    words = ["--seed", seed, "--count", count, "--threads", threads, "--out", out, *([f"--{kind}"] if kind else [])]
    done = subprocess.run(
        [FOLDER / "run", version, "Scenario", *(str(word) for word in words)],
        env=java_home(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{version}, seed {seed}: {done.stderr[-4000:]}")
    return list(read(out))


def read(out: Path) -> Iterator[Scenario]:
    """The scenarios below a folder, by seed."""
    for path in sorted((path for path in out.iterdir() if path.is_dir()), key=lambda path: int(path.name)):
        yield Scenario(path, json.loads((path / "settings.json").read_text()))
