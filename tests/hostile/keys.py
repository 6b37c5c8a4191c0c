"""All keys of a log in one slot: ``python -m tests.hostile.keys [--count 10000000]`` builds a tenth of them, then all.

The bytes of the index are compared with what they must be, and ten times the keys may take at most fifteen times as long.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.reference.index_file import key_hash
from tests.tools.encode import EPOCH, Message
from tests.tools.local_engine import local_build
from tests.tools.log_writer import LogWriter

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PER_RECORD = 16_000
"""Keys of one letter, a blank behind each: nearly all the properties that a record can hold."""
ITEM = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("seconds", ">i4"), ("before", ">i4")])


def write_log(folder: Path, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """A log of so many keys; returns the offset of each key's record."""
    keys = " ".join(LETTERS[k % len(LETTERS)] for k in range(PER_RECORD))
    with LogWriter(folder, 1 << 25) as writer:
        for low in range(0, count, PER_RECORD):
            text = keys[: 2 * min(PER_RECORD, count - low) - 1]
            writer.append(Message(topic="T", properties={"KEYS": text}))
        offsets = np.array([put.offset for put in writer.puts])
    return np.repeat(offsets, PER_RECORD)[:count]


def build(count: int, place: Path) -> float:
    """Seconds of a build of an index with one slot. Raises AssertionError for other bytes than expected."""
    offsets = write_log(place / "store" / "commitlog", count)
    begin = time.process_time()
    summary = local_build(
        place / "store", place / "out", only=("index",), hash_slots=1, index_items=count + 2, checkpoint="broker"
    )  # fmt: skip
    took = time.process_time() - begin
    assert (summary.exit, summary.items) == (0, count), summary.error
    (path,) = (place / "out" / "index").iterdir()
    content = np.fromfile(path, np.uint8)
    hashes = np.array([key_hash(f"T#{letter}") for letter in LETTERS])
    expected = np.zeros(count, ITEM)
    expected["hash"] = np.tile(np.resize(hashes, PER_RECORD), -(-count // PER_RECORD))[:count]
    expected["offset"], expected["before"] = offsets, np.arange(count)
    header = struct.pack(">qqqqii", EPOCH, EPOCH, offsets[0], offsets[-1], 1, count + 1)
    assert content[:44].tobytes() == header + struct.pack(">i", count)
    assert (content[64 : 64 + 20 * count].view(ITEM) == expected).all()
    assert not content[44:64].any()
    assert not content[64 + 20 * count :].any()
    return took


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.keys", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000_000)
    count = parser.parse_args().count
    with tempfile.TemporaryDirectory() as folder:
        build(1000, Path(folder) / "first")
        part = build(count // 10, Path(folder) / "part")
        whole = build(count, Path(folder) / "whole")
    print(f"keys: {count:,} in one slot in {whole:.2f} s, a tenth of them in {part:.2f} s")
    return 0 if whole < 15 * part + 0.5 else 1


if __name__ == "__main__":
    sys.exit(main())
