"""Bring the files of a build here: several at once, each checked against its digest, zeros as holes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import Final

import numpy as np

from rocketmq_reindex.jobs.fetching.build import FoundBuild, Wanted
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.index.header import HEADER_SIZE, ITEM_SIZE
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files

PIECE: Final = 8 << 20
"""Bytes of one request; each thread holds one."""
_HOLE: Final = 1 << 16
"""So many zeros in a row are not written."""


def fetch_all(
    build: FoundBuild, parts: list[str], new: str, temporary: str, threads: int, count: Callable[[int], None]
) -> None:
    """The files of ``parts`` below ``new``. Raises InputError for the first that is not as the manifest says."""
    for part in parts:
        if "/" not in part and part not in ("checkpoint", "timerwheel"):
            files.make_folder(os.path.join(new, part), below=new)
    wanted = [file for file in build.wanted if part_of(file.path) in parts]
    for folder in sorted({os.path.dirname(file.path) for file in wanted}):
        files.make_folder(os.path.join(new, folder), below=new)
    waiting = iter(wanted)
    with ThreadPoolExecutor(threads, thread_name_prefix="fetch") as pool:

        def given(count: int) -> set[Future[int]]:
            # A few at a time: there may be millions.
            return {pool.submit(_fetch, build, file, new, temporary) for file in islice(waiting, count)}

        try:
            running = given(2 * threads)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    count(one.result())
                running |= given(len(done))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def part_of(path: str) -> str:
    """The part that a file belongs to, by name in a store."""
    return path if path.startswith("config/") else path.partition("/")[0]


def _fetch(build: FoundBuild, file: Wanted, new: str, temporary: str) -> int:
    source = files.join(build.folder, file.at)
    hasher, gap_end = new_digest(kind=build.kind), file.gap + ITEM_SIZE
    with files.Reader(source) as reader, files.writing(temporary, os.path.join(new, file.path)) as writer:
        stored = reader.size()
        if stored not in (file.size, file.used):
            raise InputError(
                f"{escape(source)}: has {stored:,} bytes instead of {file.used:,} or {file.size:,}: fetch again, or build again"
            )
        at = 0
        while at < file.used:
            # No piece holds both sides of an IndexFile's item 0.
            end = file.gap if at < file.gap < at + PIECE else at + PIECE
            piece = np.frombuffer(reader.read(at, min(end, file.used) - at), np.uint8)
            hasher.update(piece.data)
            for low in range(0, len(piece), _HOLE):
                block = piece[low : low + _HOLE]
                if block.any():
                    writer.write_at(at + low, block)
            at += len(piece)
            at = gap_end if file.gap and at == file.gap else at
        if file.gap and file.used == HEADER_SIZE:
            # An index file without items: its slots are zeros, and in the digest.
            for low in range(HEADER_SIZE, file.gap, PIECE):
                hasher.update(bytes(min(PIECE, file.gap - low)))
        if hasher.digest().hex() != file.digest:
            raise InputError(
                f"{escape(source)}: has digest {hasher.digest().hex()} instead of {file.digest}: fetch again, or build again"
            )
        writer.finish(file.size)
    return file.used
