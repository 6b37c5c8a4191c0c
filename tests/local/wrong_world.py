"""A folder with a sound store and everything that a wrong command may name in its place."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any, Final

from tests.docs.worlds import damaged, whole
from tests.tools.local_engine import local_build

SIZES: Final[dict[str, Any]] = {"cq_file_size": 4000, "hash_slots": 500, "index_items": 1500, "broker_version": "5.3"}


def make_world(world: Path) -> None:
    """Fill ``world``; nothing in it is to be changed by a wrong command."""
    whole(world)
    (world / "of damaged").mkdir()
    damaged(world / "of damaged")
    for name, place in (("store", "damaged"), ("replica", "replica")):
        (world / "of damaged" / name).rename(world / place)
    shutil.rmtree(world / "of damaged")
    assert local_build(world / "store", world / "built", None, **SIZES).exit == 0
    assert local_build(world / "store", world / "part", None, only=("index", "checkpoint"), **SIZES).exit == 0
    (world / "empty").mkdir()
    _add_logs(world)
    (world / "file").write_text("hello\n")
    (world / "bad.conf").write_text("mappedFileSizeCommitLog=abc\n")
    (world / "empty.conf").write_text("mappedFileSizeCommitLog=\nbrokerName=b\n")
    (world / "huge.conf").write_text("mappedFileSizeConsumeQueue=99999999999999999999\n")
    (world / "levels.conf").write_text("messageDelayLevel=1s fast 3m\n")
    (world / "other.json").write_text('{"seconds": {}}')
    (world / "typo.conf").write_text("mapedFileSizeCommitLog=1048576\n")
    (world / "binary.conf").write_bytes(bytes(range(256)) * 16)
    (world / "my.cnf").write_text("[mysqld]\nport=3306\n")
    (world / "range.conf").write_text("mappedFileSizeConsumeQueue=-5\nmaxIndexNum=1\nmappedFileSizeCommitLog=3000000000\n")
    (world / "slots.conf").write_text("maxHashSlotNum=500\n")
    (world / "gone.conf").write_text(f"storePathRootDir={world}/nowhere\n")
    (world / "gone-log.conf").write_text(f"storePathCommitLog={world}/nowhere,{world}/file\n")
    (world / "dledger.conf").write_text(f"storePathRootDir={world}/dledger\nenableDLegerCommitLog=true\n")
    (world / "dledger-of-none.conf").write_text("enableDLegerCommitLog=true\n")
    (world / "broken.json").write_text("{")
    (world / "rows.jsonl").write_text('{"topic": "Orders", "storeTimestamp": 5, "body": "x"}\n')
    (world / "offsets.json").write_text('{"offsetTable": {"TopicA@GID_orders": {"0": 5, "1": 6}}}')
    os.mkfifo(world / "fifo")
    os.symlink("loop", world / "loop")
    os.symlink("nothing", world / "dangling")


def _add_logs(world: Path) -> None:
    """Folders with a log and nothing else, or the other way round."""
    shutil.copytree(world / "store" / "consumequeue", world / "nolog" / "consumequeue")
    for name in ("noindex", "holey"):
        shutil.copytree(world / "store" / "commitlog", world / name / "commitlog")
    second = world / "holey" / "commitlog" / "00000000000001048576"
    second.unlink()
    for name in ("text", "misnamed"):
        (world / name / "commitlog").mkdir(parents=True)
    (world / "text" / "commitlog" / "00000000000000000000").write_text("not a log\n" * 1000)
    (world / "dledger" / "dledger-n0" / "data").mkdir(parents=True)
    record = bytes(range(100))
    entry = struct.pack(">iiqqqiiii", 1, 48 + len(record), 0, 1, 0, 0, 0, 0, len(record)) + record
    (world / "dledger" / "dledger-n0" / "data" / f"{0:020d}").write_bytes(entry + bytes(4096))
    shutil.copy(world / "store" / "commitlog" / second.name, world / "misnamed" / "commitlog" / "00000000000000000000")


def state(world: Path) -> dict[str, tuple[int, ...]]:
    """What shows that something was written: each path with its size, times and inode."""
    found = dict[str, tuple[int, ...]]()
    for folder, folders, names in os.walk(world):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            found[path] = (seen.st_mode, seen.st_size, seen.st_mtime_ns, seen.st_ino)
    return found
