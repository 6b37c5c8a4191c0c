"""The epochs of a controller group in a repair: they go with the log, and no record gets those of another master.

They are read before any byte of a log. A replica's say which master wrote what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.summary import Warnings
from rocketmq_reindex.jobs.repairing.options import RepairSettings
from rocketmq_reindex.jobs.repairing.replicas import log_folder
from rocketmq_reindex.jobs.store import owner
from rocketmq_reindex.storage_format import checkpoints as epochs
from rocketmq_reindex.storage_format.digest import new_digest
from rocketmq_reindex.storage_format.errors import InputError, RefusedError
from rocketmq_reindex.storage_format.layouts import COMMITLOG, INT64_MAX
from rocketmq_reindex.storage_format.showing import counted, escape, reason
from rocketmq_reindex.udfs.staging import StagingFolder

_NONE_READ: Final = "the store has none that a broker reads"
_COMPARE: Final = "verify the store --against the replica, and look which of the two is right"


def _has_file(store: str) -> bool:
    return any(files.entry_of(files.join(store, name)).kind == files.FILE for name in (epochs.FILE, epochs.BACKUP))


def _store_of(place: str) -> str:
    """Return the store of a folder of segments, or of a store."""
    return files.parent(place) if files.base(place) == COMMITLOG else place


def _log_end(roots: Sequence[str]) -> int:
    with owner.opened_log(roots) as log:
        return owner.log_end(log)


@dataclass
class GroupEpochs:
    """The epochs of one store: ``entries`` are those that the new log gets, as far as they begin in it.

    ``is_group`` is whether the store has such a file. ``replicas`` has the epochs of each replica; None for one without any.
    """

    is_group: bool
    entries: Sequence[epochs.Epoch]
    replicas: Sequence[Sequence[epochs.Epoch] | None]

    @classmethod
    def read(cls, settings: RepairSettings, warnings: Warnings) -> GroupEpochs:
        """Return the epochs, and warn of what they say before anything is taken. Raises OSError, and InputError."""
        store = settings.store
        if not store or not _has_file(store):
            own = cls(False, (), ())
            beside = "" if store else next((_store_of(root) for root in settings.roots if _has_file(_store_of(root))), "")
            if beside:
                warnings.warn(
                    f"{epochs.FILE}: is left out, since no STORE is named, and {escape(beside)} has one: name it as STORE, too"
                )
        else:
            own = cls(True, _own(store, warnings), ())
            with owner.opened_log(settings.roots) as log:
                for text in owner.suspected(store, log):
                    warnings.warn(f"{text}. The new log keeps them, and by its checkpoint they are confirmed")
        own.replicas = [_of_replica(number, place, warnings) for number, place in enumerate(settings.replicas, 1)]
        if own.entries and any(own.replicas):
            own._warn_of_parted(settings, warnings)
        return own

    def _warn_of_parted(self, settings: RepairSettings, warnings: Warnings) -> None:
        """Warn of replicas whose records another master wrote, by the epochs, somewhere in both logs."""
        end = _log_end(settings.roots)
        for number, (place, entries) in enumerate(zip(settings.replicas, self.replicas, strict=True), 1):
            parted = epochs.parted_at(self.entries, entries) if entries else INT64_MAX
            if parted < end and parted < _log_end([log_folder(place)]):
                warnings.warn(
                    f"--replica: replica {number}: by its epochs another master wrote what it has from offset {parted} on than "
                    f"what the store has: {_COMPARE}"
                )

    def take(self, replica: int, low: int, high: int, warnings: Warnings) -> None:
        """Take the epochs of the records in [low, high) of the log from ``replica`` (from 1), which gives these records.

        Raises RefusedError where the epochs of the store and of the replica say different masters of a record.
        """
        others = self.replicas[replica - 1]
        if not self.entries or others is None:
            if self.entries or others is not None:
                whose = f"replica {replica}" if self.entries else "the store"
                warnings.warn(
                    f"--replica: {whose} has no epochs: nothing says whether the masters of what was taken from offset {low} "
                    "on are those of the store"
                )
            if not self.is_group and others is not None:
                warnings.warn(f"{epochs.FILE}: is left out, since the store has none, and replica {replica} has one")
            return
        parted = epochs.parted_at(self.entries, others)
        if parted >= high:
            return
        mine = epochs.in_order(self.entries)
        if parted < low or mine != epochs.in_order(others)[: len(mine)]:
            raise RefusedError(
                f"--replica: replica {replica} goes on behind the log's end, and by its epochs another master wrote what it "
                f"has from offset {parted} on than what the store has: {_COMPARE}; without this replica nothing of it is taken"
            )
        self.entries = [*self.entries, *(epoch for epoch in others if epoch not in mine)]
        warnings.warn(
            f"{epochs.FILE}: has epochs of replica {replica}, too, from offset {parted} on, since records of these were taken: "
            "put this file in place together with the log"
        )

    def written(self, staging: StagingFolder, log_end: int, warnings: Warnings) -> list[dict[str, Any]]:
        """Write the epochs beside the new log, as far as they begin in it, and return their entry for the manifest."""
        if not self.is_group:
            return []
        behind = [epoch for epoch in self.entries if epoch.start > log_end]
        kept = [epoch for epoch in self.entries if epoch not in behind]
        if not kept:
            why = f"all begin behind the log's end at {log_end}" if behind else _NONE_READ
            warnings.warn(
                f"{epochs.FILE}: is left out, since {why}: a broker without it begins its first epoch where the log ends, and "
                "a slave that has epochs does not join it: put back a backup, or move the epochs of the whole group away"
            )
            return []
        if behind:
            warnings.warn(
                f"{epochs.FILE}: {counted(len(behind), 'epoch')}, from {behind[0].epoch} at offset {behind[0].start} on, left "
                f"out: the new log ends at {log_end}"
            )
        data = epochs.write_epochs(kept)
        files.write_bytes(staging.temporary, files.join(staging.tree, epochs.FILE), [data])
        size, digest = len(data), new_digest([data]).digest().hex()
        return [{"path": epochs.FILE, "size": size, "used": size, "digest": digest}]


def _of_replica(number: int, place: str, warnings: Warnings) -> Sequence[epochs.Epoch] | None:
    """Return the epochs of a replica; None for one without any. What is wrong with a replica is no error."""
    try:
        return owner.taken_epochs(_store_of(place)).entries or None
    except (OSError, InputError) as error:
        warnings.warn(f"--replica: replica {number}: its epochs cannot be read: {reason(error)}")
        return None


def _own(store: str, warnings: Warnings) -> Sequence[epochs.Epoch]:
    """Return the epochs that a broker has of this store. Raises OSError, and InputError."""
    taken = owner.taken_epochs(store)
    if taken.stops and taken.name == epochs.FILE:
        backup = owner.taken_epochs(store, (epochs.BACKUP,))
        if backup.entries:
            warnings.warn(
                f"{epochs.FILE}: no broker starts with it ({taken.stops}): is made of {backup.name}: the last change is missing"
            )
        return backup.entries
    if taken.entries and taken.name != epochs.FILE:
        warnings.warn(f"{epochs.FILE}: is made of {taken.name}, as a broker does: the last change is missing")
    return taken.entries
