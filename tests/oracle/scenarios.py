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
VERSIONS = ("5.3.3", "4.9.8")
QUEUES_ALONE = "5.5.0"
"""Since 5.4 TAGS are indexed, too (``topic#T#tag``), and 5.5 has a sixth checkpoint field: queues alone are compared."""
UNLOADABLE = "oracle.Main$Failure: the store does not load"
"""Of a log that RocketMQ 5.3.3 writes and then cannot load: a record below its queue's end left an empty last file."""
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
        version = "4.9" if self.settings["version"].startswith("4.") else "5.3"
        return {**given, "broker_version": version, "queue_order": "broker", "checkpoint": "broker"}

    def compared(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """Of {relative path: bytes} what ours and the broker's own should have alike."""
        queues_alone = self.settings["version"] == QUEUES_ALONE
        return {path: content for path, content in files.items() if path.startswith("consumequeue/") or not queues_alone}

    def rebuilt(self) -> dict[str, bytes]:
        """{relative path: bytes} of the broker's own rebuild."""
        return read_files(self.path / "rebuilt")


def java_home() -> dict[str, str]:
    """The environment of the oracle's JVM: the JDK that set-up chose, if it did."""
    chosen = REPO / ".java-home"
    return {**os.environ, **({"JAVA_HOME": chosen.read_text().strip()} if chosen.exists() else {})}


def make(version: str, seed: int, count: int, out: Path, threads: int = 4, *, stale: bool = False) -> list[Scenario]:
    """The scenarios ``seed`` to ``seed + count - 1`` of one version, below ``out`` (new or empty).

    ``stale``: of stores that were truncated, left as the broker left them.

    Raises RuntimeError with what the JVM said, if it fails as a whole.
    """
    words = ["--seed", seed, "--count", count, "--threads", threads, "--out", out, *(["--stale"] if stale else [])]
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
