"""Spoils a store's checkpoint, abort file or log in one place."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

from tests.tools import spoil
from tests.tools.spoil_index import HEADER, index_paths, last_with_items
from tests.tools.spoiling import FAR, Kinds, NotHere, Sizes

CHECKPOINT = struct.Struct(">qqqqq")


def _checkpoint(store: Path, change: Callable[[list[int]], None]) -> None:
    path = store / "checkpoint"
    fields = list(CHECKPOINT.unpack_from(path.read_bytes()))
    change(fields)
    path.write_bytes(CHECKPOINT.pack(*fields).ljust(4096, b"\0"))


def checkpoint_removed(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    (store / "checkpoint").unlink()


def checkpoint_cut(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = store / "checkpoint"
    path.write_bytes(path.read_bytes().ljust(4200, b"\0")[: rng.choice((0, 17, 4095, 4097))])


def checkpoint_bytes(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = store / "checkpoint"
    data = bytearray(path.read_bytes())
    data[rng.choice((0, rng.randrange(40, 4096)))] |= 0x80
    path.write_bytes(data)


def checkpoint_stale(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[1] = rng.randrange(max(1, fields[1] - 10**9), fields[1])

    _checkpoint(store, change)


def checkpoint_ahead(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[0] = fields[1] = max(fields[:2]) + rng.randrange(1, 10**12)

    _checkpoint(store, change)


def checkpoint_index(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Below the end of a file that is full."""
    paths = [path for path in index_paths(store) if HEADER.unpack_from(path.read_bytes())[5] >= sizes.index_items]
    last = last_with_items(store) if paths else None
    ends = [HEADER.unpack_from(path.read_bytes())[1] for path in paths if path != last]
    if not ends:
        raise NotHere

    def change(fields: list[int]) -> None:
        fields[2] = min(max(ends) - 1, rng.choice((0, max(ends) - 1)))

    _checkpoint(store, change)


def checkpoint_absurd(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    """One field far ahead of the log, whatever the other says: 0, as after the broker's own rebuild, or the truth."""

    def change(fields: list[int]) -> None:
        fields[0] = rng.choice((0, fields[0]))
        fields[rng.randrange(2)] = max(fields) + rng.randrange(2 * 86_400_000, FAR)

    _checkpoint(store, change)


def checkpoint_index_ahead(store: Path, sizes: Sizes, rng: random.Random) -> None:
    """Far ahead of all, or just later than the end of a last file that is not full: a torn one would survive a crash."""
    far = rng.randrange(2 * 86_400_000, FAR)

    def change(fields: list[int]) -> None:
        last = last_with_items(store)
        end, count = (HEADER.unpack_from(last.read_bytes())[k] for k in (1, 5))
        ends = [HEADER.unpack_from(path.read_bytes())[1] for path in index_paths(store) if path != last]
        nearly = end + 1 not in ends and count < sizes.index_items
        fields[2] = rng.choice((end + 1, max(ends, default=end) + far)) if nearly else max([end, *fields[:2], *ends]) + far

    _checkpoint(store, change)


def checkpoint_master(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[3] = (1 << 51) + rng.randrange(1 << 60)

    _checkpoint(store, change)


def checkpoint_confirm(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    def change(fields: list[int]) -> None:
        fields[4] = FAR + rng.randrange(FAR)

    _checkpoint(store, change)


def abort_file(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    (store / "abort").write_bytes(b"")


def log_record(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    count = len(spoil.record_offsets(store))
    spoil.spoil_any(store, rng.randrange(count - 1), rng)


def log_segment(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    paths = spoil.segment_paths(store)
    if len(paths) < 4:
        raise NotHere
    spoil.remove_segment(store, rng.randrange(1, len(paths) - 2))


def log_short(store: Path, sizes: Sizes, rng: random.Random) -> None:  # noqa: ARG001
    path = spoil.segment_paths(store)[-1]
    if len(spoil.segment_paths(store)) < 2:
        raise NotHere
    path.write_bytes(path.read_bytes()[: -rng.randrange(1, 100)])


KINDS: Kinds = {
    "checkpoint-removed": (checkpoint_removed, "checkpoint-missing"),
    "checkpoint-cut": (checkpoint_cut, "checkpoint-size"),
    "checkpoint-bytes": (checkpoint_bytes, "checkpoint-bytes"),
    "checkpoint-stale": (checkpoint_stale, "checkpoint-stale"),
    "checkpoint-ahead": (checkpoint_ahead, "checkpoint-ahead"),
    "checkpoint-index": (checkpoint_index, "checkpoint-index"),
    "checkpoint-absurd": (checkpoint_absurd, "checkpoint-ahead"),
    "checkpoint-index-ahead": (checkpoint_index_ahead, "checkpoint-index-ahead"),
    "checkpoint-master": (checkpoint_master, "checkpoint-master"),
    "checkpoint-confirm": (checkpoint_confirm, "checkpoint-confirm"),
    "abort-file": (abort_file, "abort-file"),
    "log-record": (log_record, "log-damage"),
    "log-segment": (log_segment, "log-segment-missing"),
    "log-short": (log_short, "log-segment-short"),
}
