"""The golden stores: what a real `DefaultMessageStore` wrote, and what its own rebuild gave."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocketmq_reindex.storage_format.versions import VERSIONS

FOLDER = Path(__file__).parent
NAMES = ("basic-4.9", "basic-5.3", "basic-5.5", "transactions-delay", "trimmed-head", "v2-ipv6-batch", "wide-keys")


@dataclass(frozen=True)
class GoldenStore:
    """An unpacked store: `path` holds commitlog/, consumequeue/, ..., `rebuilt/` and scenario.json."""

    name: str
    path: Path

    @property
    def broker_version(self) -> str:
        named = self.name.rpartition("-")[2]
        return named if named in VERSIONS else "5.3"

    def sizes(self) -> dict[str, int]:
        """File sizes the store was opened with, under the names of the command line's options."""
        opened = json.loads((self.path / "scenario.json").read_text())["store"]
        return {
            "cq_file_size": opened["cqSize"],
            "hash_slots": opened["slots"],
            "index_items": opened["indexNum"],
        }

    def size_words(self) -> list[str]:
        """The same as words of the command line."""
        return [word for name, value in self.sizes().items() for word in (f"--{name.replace('_', '-')}", str(value))]

    def broker_settings(self) -> dict[str, Any]:
        """What makes a build give the broker's own bytes."""
        return {
            **self.sizes(),
            "broker_version": self.broker_version,
            "queue_order": "broker",
            "checkpoint": "broker",
        }

    def rebuilt(self) -> dict[str, bytes]:
        """{relative path: bytes} of the broker's own rebuild."""
        return read_files(self.path / "rebuilt")


def read_files(root: Path) -> dict[str, bytes]:
    """{relative path: bytes} of consumequeue/, index/ and the checkpoint under `root`."""
    found = {}
    for top in ("consumequeue", "index", "checkpoint"):
        for path in sorted((root / top).rglob("*")) if (root / top).is_dir() else [root / top]:
            if path.is_file():
                found[path.relative_to(root).as_posix()] = path.read_bytes()
    return found


def index_in_order(files: dict[str, bytes]) -> list[bytes]:
    """The index files by name: the broker names them by its clock, we by offset."""
    return [content for path, content in sorted(files.items()) if path.startswith("index/")]


def unpack(name: str, into: Path) -> GoldenStore:
    """Unpack the archive `name` as `into/name`, unless it is there."""
    if not (into / name).is_dir():
        with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
            archive.extractall(into, filter="data")
    return GoldenStore(name, into / name)
