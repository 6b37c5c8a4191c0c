"""A log that lives as in ``tests.incremental``, its store and its builds behind a URI. Builds come back by fetch."""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rocketmq_reindex import files
from rocketmq_reindex.jobs.commands import fetch
from rocketmq_reindex.jobs.fetching.record import RECORD
from rocketmq_reindex.jobs.publishing import layout
from tests.incremental.world import World
from tests.tools.faulty_runs import command
from tests.tools.faulty_s3 import faulty_s3

_AT = re.compile(rb', "at": "[^"]*"')
REFUSED = ("/entries/", "/data/", "/consumequeue/", "/builds/.*/index/", "/reindex.json", "/published/", "/_scans/.*/builds/")


class BucketWorld(World):
    """``out`` holds what a fetch of the build that counts lays out, and its manifest without where files lie.

    ``there`` is a folder behind a URI; one in a bucket without an endpoint: by the environment a door is no other place.
    ``tables``: where the scan store lies; with the builds when it is empty.
    """

    def __init__(self, root: Path, there: str, tables: str = "") -> None:
        super().__init__(root)
        self._there, self._tables = there, tables
        self._uploaded: dict[str, bytes] = {}

    def place(self, name: str, door: str = "") -> str:
        """Connections are kept by URI: behind another ``door`` are others."""
        return files.join(re.sub("region=[^&]*", f"region={door}", self._there) if door else self._there, name)

    def places(self, door: str = "") -> tuple[str, str, str]:
        """STORE, --out, --tables."""
        return self.place("store", door), self.place("out", door), self._tables or self.place("tables", door)

    @property
    def builds(self) -> str:
        return self.place("out")

    def pointers(self) -> list[layout.Pointer]:
        return layout.pointers(self.builds)

    def newest(self) -> str:
        """The folder of the build that counts."""
        return layout.build_folder(self.builds, self.pointers()[-1].build)

    def upload(self) -> None:
        now, log = {path.name: path.read_bytes() for path in self.segments()}, files.join(self.place("store"), "commitlog")
        for folder in (log, self.place("aside")):
            files.make_folder(folder)
        for name in self._uploaded.keys() - now.keys():
            files.remove_tree(files.join(log, name))
        for name, data in now.items():
            if self._uploaded.get(name) != data:
                files.write_bytes(self.place("aside"), files.join(log, name), [data])
        self._uploaded = now

    def run(self, *words: str, door: str = "") -> tuple[dict[str, Any], str]:
        """One incremental build."""
        store, out, tables = self.places(door)
        summary, said = command(store, out, *self.words, "--incremental", "--tables", tables, *words)
        assert "Traceback" not in said
        return summary, said

    def incremental(self, *more: str) -> dict[str, Any]:
        self.upload()
        summary, _ = self.run(*more)
        self.bring()
        return summary

    def bring(self) -> None:
        """Lay out what counts."""
        if self.pointers():
            shutil.rmtree(self.out, ignore_errors=True)
            self.out.mkdir()
            assert fetch([self.builds, "--to", str(self.out)]) == 0
            for name in ("lock", RECORD):
                (self.out / name).unlink()
            manifest = files.read_bytes(files.join(self.newest(), "reindex.json"))
            (self.out / "reindex.json").write_bytes(_AT.sub(b"", manifest))

    def refused(self, pattern: str) -> None:
        """An incremental build some of whose writes an S3 server refuses; it publishes all or nothing."""
        self.upload()
        before = self.pointers()
        with faulty_s3(os.environ["AWS_ENDPOINT_URL"], pattern) as (endpoint, count), mock.patch.dict(os.environ):
            os.environ["AWS_ENDPOINT_URL"] = f"http://{endpoint}"
            summary, _ = self.run(door=f"door-{endpoint.rpartition(':')[2]}")
        if count() and summary["exit"] == 1:
            assert "denied" in summary["error"].lower(), summary["error"]
            assert self.pointers() == before
        elif self.pointers() != before:
            self._remember()
            self.bring()

    def spoil_result(self, rng: random.Random) -> None:
        """Somebody removes or changes a file of the build that counts, in a later second than it was written in."""
        if not self.pointers():
            return
        folder = self.newest()
        some = sorted(entry.name for entry in files.below(folder) if entry.name.partition("/")[0] in ("consumequeue", "index"))
        path = files.join(folder, rng.choice(some))
        if rng.random() < 0.3:
            files.remove_tree(path)
            return
        data = bytearray(files.read_bytes(path) or b"\0")
        data[rng.randrange(len(data))] ^= 1
        written = files.modified(path)
        while files.modified(path) // 10**9 == written // 10**9:
            time.sleep(0.05)
            files.write_bytes(self.place("aside"), path, [data])


def live(world: BucketWorld, rng: random.Random, steps: int, *, bucket: bool) -> None:
    """A random life; each of its builds is compared with a full one on a disk."""
    world.append(rng, 120)
    world.build()
    does: list[Callable[[], None]] = [world.roll, world.expire, world.mend, world.allocate_ahead]
    does += [lambda: world.append(rng, rng.randrange(1, 40)), lambda: world.crash(rng), lambda: world.damage(rng)]
    does.append(lambda: world.spoil_result(rng))
    if bucket:
        does.append(lambda: world.refused(rng.choice(REFUSED)))
    for _ in range(steps):
        for do in rng.sample(does, rng.randrange(1, 4)):
            do()
        world.build(*rng.choice(((), (), ("--recheck",), ("--keep-zeros",))))
    summary = world.build()
    again = world.incremental()
    assert again["incremental"]["nothing_new"] or summary["exit"] == 5
