"""A broker of a controller group, and a node of DLedger: what its start makes of epochs and log, and what a role then does.

``AutoSwitchHAService`` reads the epochs when the store has loaded. The log is first recovered as that of any broker. Until the
controller gives it a role, records behind the confirmed offset get no unit; as master it dispatches them, too. Of a node of
DLedger: which log is its own, and what its own checkpoint knows of it.
"""

from __future__ import annotations

import os
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.preflighting.advice import CONFIRMED, Commands, Loss
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store import owner
from rocketmq_reindex.jobs.store.folders import entries_in, no_record
from rocketmq_reindex.jobs.store.settings import check_plain, committed_index
from rocketmq_reindex.storage_format import checkpoints, versions
from rocketmq_reindex.storage_format.broker_start.listing import FILE, Listing
from rocketmq_reindex.storage_format.broker_start.loading import LogOutcome, Prediction, Refusal
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import first_byte
from rocketmq_reindex.storage_format.record.layout import ENTRY_HEAD
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.scan.segments import is_of_dledger, lead_of

# ------------------------------------------------------------------------------------------------------------- controller group


_GROUPS_FROM: Final = (5,)
"""the release that has ``enableControllerMode``"""
_BEHIND: Final = "make the log whole by a repair with --extend: the store of another broker of the group is the replica"
_CUT: Final = "or repair without a replica, which also writes the epochs cut to the log: look first what the group then lacks"
_COMPARE: Final = "verify this store --against that of the broker that is, or will be, master: it says where the two part"


class StoreGroup:
    """What one store has of a controller group."""

    def __init__(self, settings: PreflightSettings, is_node: bool = False) -> None:
        """``is_node``: the log is that of a node of DLedger, and no broker is in a controller group, too."""
        self._settings = settings
        has_epochs = any(
            owner.read_epoch_file(settings.store, name) is not None for name in (checkpoints.FILE, checkpoints.BACKUP)
        )
        is_new = versions.numbers_of(settings.release) >= _GROUPS_FROM
        self.is_one = is_new and not is_node and (has_epochs if settings.broker.group is None else settings.broker.group)
        """the broker is one of a controller group"""
        self._taken = owner.taken_epochs(settings.store) if self.is_one else owner.TakenEpochs()
        self._is_unread = has_epochs and not self.is_one

    def refusals(self) -> tuple[Refusal, ...]:
        """Return why the broker does not start: ``CheckpointFile.read`` throws what nobody catches."""
        return (Refusal("epoch-file", self._taken.name, self._taken.stops),) if self._taken.stops else ()

    def found(self, prediction: Prediction, commands: Commands) -> tuple[list[Loss], list[Loss], list[str]]:
        """Return the losses, the warnings and the notes of a start. Raises OSError, and InputError."""
        if self._is_unread:
            return [], [], [f"{checkpoints.FILE}: a broker without enableControllerMode, or of 4.9, does not read it"]
        if not self.is_one or prediction.log is None:
            return [], [], []
        end, lost, warned = prediction.log.max_offset, list[Loss](), list[Loss]()
        if behind := self._taken.behind(end):
            text = (
                f"{counted(len(behind), 'epoch')}, from {behind[0].epoch} at offset {behind[0].start} on, behind the log's end "
                f"at {end}: as slave of a master with the same epochs the broker copies nothing"
            )
            either = commands.repaired(extend=True), commands.cut_to_log()
            lost.append(Loss("epoch-behind-log", len(behind), text, (_BEHIND, _CUT), either))
        if 0 <= prediction.cut_as_master < end:
            at, size = prediction.cut_as_master, counted(end - prediction.cut_as_master, "byte")
            text = f"no record begins at offset {at}, which is not confirmed: a master may cut its log there: {size}"
            mended = commands.mended()
            lost.append(Loss("log-cut-as-master", 1, text, (CONFIRMED, *mended.advice), mended.commands))
        with owner.opened_log(self._settings.roots) as log:
            tail = owner.suspect_tail(self._settings.store, log, end)
        if tail is not None and self._taken.entries:
            warned.append(Loss("log-tail-suspect", tail.records, f"{tail}: {owner.SUSPECT}", (_COMPARE,)))
        return lost, warned, [self._note(end)]

    def _note(self, end: int) -> str:
        """Return what a role does (``AutoSwitchHAService.changeToMaster``, ``AutoSwitchHAClient.doTruncate``)."""
        entries = self._taken.entries
        if not entries:
            return f"controller group: no epoch: as master the broker begins its first one at offset {end}"
        last = checkpoints.in_order(entries)[-1]
        return (
            f"controller group: {counted(len(entries), 'epoch')} in {self._taken.name}, the last one is {last.epoch}, from "
            f"offset {last.start} on: as master the broker keeps the log up to {end}; as slave it cuts what lies behind the "
            "offset up to which its epochs are its master's (verify --against)"
        )


# -------------------------------------------------------------------------------------------------------------- node of DLedger


def log_of_node(settings: PreflightSettings) -> str:
    """Return which of the folders of segments holds the log of the node; "" for a broker without DLedger.

    Raises InputError where the log is not that of such a broker, where its index is not beside it, and for what is not known.
    """
    roots, broker = settings.roots, settings.broker
    if broker.dledger is False:
        check_plain(roots, "which a broker without enableDLegerCommitLog=true does not read")
        return ""
    root = next((root for root in roots if is_of_dledger(root) and _is_its(root, broker.dledger_node)), "")
    if not root:
        for one in roots:
            if not is_of_dledger(one) and lead_of(one, entries_in(one)):
                raise InputError(
                    f"{escape(one)}: is a log of DLedger, but no dledger-<dLegerSelfId>/data: preflight needs its index and "
                    "checkpoint beside it, and does not look for them elsewhere (storePathDLedgerCommitLog)"
                )
        if broker.dledger:
            whose = f" of dLegerSelfId={escape(broker.dledger_node, 60)}" if broker.dledger_node else ""
            raise InputError(
                f"{', '.join(map(escape, roots))}: holds no log of DLedger{whose}: with enableDLegerCommitLog=true a start "
                "begins one, and copies that of its leader, if there is one: preflight does not know that"
            )
    elif settings.has_ext:
        raise InputError(
            f"{escape(settings.store)}: has consumequeue_ext: preflight does not know what a node of DLedger with "
            "enableConsumeQueueExt=true does at its start: name a --broker-conf without it if it is off"
        )
    return root


def _is_its(root: str, node: str) -> bool:
    """Return whether a log is that of the node of this name, and has a segment; "" is any node."""
    if not node:
        return True
    is_named = files.base(files.parent(root)) == f"dledger-{node}" and files.entry_of(root).kind == files.FOLDER
    return is_named and any(first_byte(entry.name) is not None for entry in files.listing(root))


def check_is_log(store: str, listing: Listing, log: LogOutcome | None, is_node: bool) -> None:
    """Raise InputError where a start keeps nothing of the log, and its first segment is none of RocketMQ.

    ``is_node``: it is a log of DLedger.
    """
    segments = [one for one in (listing.entries if is_node else listing.segments) if one.kind == FILE]
    if log is None or log.max_offset > log.min_offset or log.cut_records > 0 or not segments:
        return
    first = os.path.join(store, min(segments, key=lambda segment: segment.name).path)
    if fault := no_record(first, ENTRY_HEAD if is_node else 0):
        raise InputError(f"{fault}: put the commitlog in its place")


def uncommitted(root: str, prediction: Prediction) -> str:
    """Return a note on what a start of this node by itself leaves open: its group may know more, or less."""
    committed, log = committed_index(root), prediction.log
    known = f"its checkpoint calls entries up to index {committed} committed" if committed >= 0 else "no checkpoint says more"
    end = f", up to offset {log.max_offset}" if log is not None else ""
    return (
        f"{escape(root)}: a log of DLedger, of one node by itself: {known}, and this is the start of a node that leads "
        f"and commits all that it has{end}; behind another leader it drops what that one lacks, and copies what it has more"
    )


def committed_lost(root: str, prediction: Prediction, commands: Commands) -> list[Loss]:
    """Return the loss of entries that the node knows as committed, and that are not in the log after the start."""
    last, committed = prediction.last_entry, committed_index(root) if root else -1
    if last is None or committed <= last:
        return []
    # Of a log without an entry nothing says where it began.
    count = committed - last if last >= 0 else -1
    which = f"{counted(count, 'entry', 'entries')}" if count >= 0 else "entries that were not counted"
    has = f"the log has them up to {last}" if last >= 0 else "the node takes its log for empty"
    text = f"{which}: the node's checkpoint calls entries up to index {committed} committed, and after the start {has}"
    return [Loss("entries-committed-lost", count, text, commands.mended().advice)]
