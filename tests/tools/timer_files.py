"""Write the files of a broker's timer messages into a store."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rocketmq_reindex.storage_format.delay.timer_files import TimerFile


def put_files(store: Path, files: Iterable[TimerFile]) -> None:
    """Each with its full size; what is no part of it is zeros."""
    for file in files:
        path = store.joinpath(*file.path)
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as out:
            out.truncate(file.size)
            for offset, data in file.parts():
                out.seek(offset)
                out.write(data)
