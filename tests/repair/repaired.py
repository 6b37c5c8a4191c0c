"""``rmq-reindex repair`` of a damaged store, in this process, and its result laid out as a store."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
from tests.repair.bases import Base
from tests.tools.local_engine import InlineEngine, local_build, local_repair

DERIVED = ("consumequeue/", "batchconsumequeue/", "index/", "checkpoint")


def repair(base: Base, store: Path, out: Path, seed: int, *replicas: Path) -> RepairResult:
    """One repair of ``store``, cut up and dealt out by chance."""
    rng = random.Random(f"repair {seed}")
    range_size = rng.choice((0, 0, rng.randrange(700, 5_000), rng.randrange(5_000, 60_000)))
    engine = InlineEngine(rng.randrange(1, 6), rng.randrange(1, 4))
    more = {"replicas": tuple(str(replica) for replica in replicas)} if replicas else {}
    return local_repair(store, out, engine, range_size=range_size, **base.build, **more)


def build(base: Base, store: Path, out: Path, on_damage: str = "fail") -> BuildResult:
    """A build of a log."""
    return local_build(store, out, on_damage=on_damage, **base.build)


def lay_out(base: Base, out: Path, store: Path, *, crashed: bool) -> None:
    """What an operator puts in place: all that the repair wrote but its own notes, and the old config/."""
    for name in ("commitlog", "consumequeue", "batchconsumequeue", "index"):
        if (out / name).exists():
            shutil.copytree(out / name, store / name)
    shutil.copyfile(out / "checkpoint", store / "checkpoint")
    if (base.path / "config").exists():
        shutil.copytree(base.path / "config", store / "config")
    if crashed:
        (store / "abort").touch()


def tree(folder: Path, names: tuple[str, ...] = ("",)) -> dict[str, bytes]:
    """{relative path: bytes} of the files below a folder whose paths begin with one of ``names``."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name.startswith(names)}
