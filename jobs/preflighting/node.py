"""The log of a node of DLedger as a preflight takes it: which one it is, and what its own checkpoint knows of it."""

from __future__ import annotations

import os

from rocketmq_reindex import files
from rocketmq_reindex.jobs.preflighting.advice import Commands
from rocketmq_reindex.jobs.preflighting.losses import Loss
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store.first_bytes import no_record
from rocketmq_reindex.jobs.store.folders import entries_in
from rocketmq_reindex.jobs.store.settings import check_plain, committed_index
from rocketmq_reindex.storage_format.broker_start.listing import FILE, Listing
from rocketmq_reindex.storage_format.broker_start.loading import LogOutcome, Prediction
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.layouts import first_byte
from rocketmq_reindex.storage_format.record.layout import ENTRY_HEAD
from rocketmq_reindex.storage_format.showing import counted, escape
from rocketmq_reindex.udfs.scan.segments import is_of_dledger, lead_of


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
