"""A file ``abort`` in STORE: the broker did not stop cleanly, and recovers from the checkpoint when it starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.storage_format.checkpoint import Checkpoint
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


def old_checkpoint(settings: BuildSettings) -> Checkpoint | None:
    """Return STORE's own checkpoint, where a file ``abort`` lies there and a part is not built; None otherwise."""
    return old_of(settings.store_folder, settings.only) if settings.store_folder else None


def old_of(store: str, parts: Collection[str]) -> Checkpoint | None:
    """Return the same for a store that gets new ``parts``."""
    if "checkpoint" not in parts or not unbuilt(parts):
        return None
    is_clean = files.entry_of(files.join(store, "abort")).kind == files.ABSENT
    return None if is_clean else read_times(files.join(store, "checkpoint"))


def unbuilt(parts: Collection[str]) -> list[str]:
    """Return the parts that stay as they are."""
    return [part for part in ("consumequeue", "index") if part not in parts]


def bounded(checkpoint: Checkpoint, old: Checkpoint, parts: Collection[str]) -> Checkpoint:
    """Return a new checkpoint that promises no more than the ``old`` one for the parts that stay."""
    less = dataclasses.replace(
        checkpoint,
        physic=min(checkpoint.physic, old.physic),
        logics=min(checkpoint.logics, old.logics),
        index=checkpoint.index if "index" in parts else min(checkpoint.index, old.index),
        logics_offset=min(checkpoint.logics_offset, old.logics_offset),
    )
    return less.loadable() if checkpoint.logics_offset else less


def vouched(settings: BuildSettings, checkpoint: Checkpoint, warnings: list[str]) -> Checkpoint:
    """Return the checkpoint. Where a file ``abort`` lies in STORE, it promises no more than STORE's own for what is not built.

    The next start of that broker is an abnormal one (``CommitLog.recoverAbnormally``, 5.3): it dispatches again from where the
    checkpoint says, and never gives a queue a unit that was lost from before.
    """
    old = old_checkpoint(settings)
    if old is None:
        return checkpoint
    warnings.append(
        f"{escape(settings.store_folder)}: has a file abort, so {' and '.join(unbuilt(settings.only))} may lack what the "
        "broker had not written: the new checkpoint says no more of it than the old one, and the broker's next start "
        "dispatches again from there"
    )
    return bounded(checkpoint, old, settings.only)
