"""A file ``abort`` in STORE: the broker did not stop cleanly, and starts by what the checkpoint says (recoverAbnormally)."""

from __future__ import annotations

import dataclasses

from jobs.building.settings import BuildSettings
from storage_format.checkpoint import SIZE, Checkpoint
from storage_format.names import escape
from udfs import files


def old_checkpoint(settings: BuildSettings) -> Checkpoint | None:
    """What STORE's own checkpoint says, where an ``abort`` lies there and a part is not built; None where that is not so."""
    store = settings.store_folder
    if not store or "checkpoint" not in settings.only or not _unbuilt(settings):
        return None
    return None if files.look(files.join(store, "abort")).kind == files.ABSENT else _read(files.join(store, "checkpoint"))


def vouched(settings: BuildSettings, checkpoint: Checkpoint, warnings: list[str]) -> Checkpoint:
    """The checkpoint; where a file ``abort`` lies in STORE, it says of what is not built no more than STORE's own did.

    The next start of that broker is an abnormal one (``CommitLog.recoverAbnormally``): it dispatches again from where the
    checkpoint says, and never gives a queue a unit that was lost from before.
    """
    old = old_checkpoint(settings)
    if old is None:
        return checkpoint
    unbuilt = _unbuilt(settings)
    warnings.append(
        f"{escape(settings.store_folder)}: has a file abort, so {' and '.join(unbuilt)} may lack what the broker had "
        "not written: the new checkpoint says no more of it than the old one, and the broker's next start dispatches again "
        "from there"
    )
    return dataclasses.replace(
        checkpoint,
        physic=min(checkpoint.physic, old.physic),
        logics=min(checkpoint.logics, old.logics),
        index=min(checkpoint.index, old.index) if "index" in unbuilt else checkpoint.index,
    )


def _unbuilt(settings: BuildSettings) -> list[str]:
    return [part for part in ("consumequeue", "index") if part not in settings.only]


def _read(path: str) -> Checkpoint:
    """The times in a checkpoint: 0 for what is not there or below it."""
    if files.look(path).kind != files.FILE:
        return Checkpoint()
    with files.Reader(path) as reader:
        found = Checkpoint.from_bytes(reader.read(0, min(reader.size(), SIZE)).ljust(SIZE, b"\0"))
    return Checkpoint(max(0, found.physic), max(0, found.logics), max(0, found.index))
