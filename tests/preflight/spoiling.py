"""A store whose files are to be spoilt, and the source of chance that says which."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.preflight.settings import Sizes


@dataclass(frozen=True)
class Stores:
    """The files of a store, in order."""

    path: Path
    sizes: Sizes

    def segments(self) -> list[Path]:
        """Files of the commitlog."""
        return self._files("commitlog")

    def indexes(self) -> list[Path]:
        """IndexFiles."""
        return self._files("index")

    def queues(self) -> list[Path]:
        """Folders of queues."""
        return sorted(path for path in (self.path / "consumequeue").glob("*/*") if path.is_dir())

    def queue_files(self) -> list[Path]:
        """Files of all ConsumeQueues."""
        return [path for queue in self.queues() for path in sorted(queue.iterdir())]

    def _files(self, name: str) -> list[Path]:
        folder = self.path / name
        return sorted(folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True)
class Spoiler:
    """Changes files of ``store`` by the chance of ``rng``."""

    store: Stores
    rng: random.Random

    def overwrite(self, path: Path, at: int, data: bytes) -> None:
        """Bytes in the place of those at ``at``; the file keeps its size."""
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data[: max(0, path.stat().st_size - at)])

    def told(self, path: Path) -> str:
        """The path as a deed names it."""
        return str(path.relative_to(self.store.path))


def filled(path: Path) -> int:
    """Bytes of a file up to its last one that is not zero."""
    return len(path.read_bytes().rstrip(b"\0"))
