"""What the start of a broker does to a store: ``DefaultMessageStore.load`` and ``start``, until all is dispatched.

By itself: it chooses among the kinds of start, none of which imports another.
"""

import dataclasses

from rocketmq_reindex.storage_format.broker_start import (
    kept as start_kept,
    loading,
    outcome as start_outcome,
    queue_state,
    store as start_store,
)
from rocketmq_reindex.storage_format.broker_start.database_start import CombinedStart, DatabaseStart
from rocketmq_reindex.storage_format.broker_start.dledger_start import DLedgerStart
from rocketmq_reindex.storage_format.broker_start.one_start import OneStart
from rocketmq_reindex.storage_format.errors import InputError, NoListener, ProgressListener
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.storage_format.versions import START_RULES


def predict(
    store: start_store.Store,
    settings: start_store.StartSettings,
    count_limit: int = INT64_MAX,
    spool: start_kept.Spool | None = None,
    progress: ProgressListener | None = None,
) -> loading.Prediction:
    """Return what a start of ``settings.release`` does to ``store``, up to where no record waits for dispatch.

    The caller has made sure that the files load: their sizes and names, a lock, folders that disagree. What only the recovery
    itself finds, and what then keeps the broker from starting, is in ``refusals``, with ``loads`` false.

    ``count_limit`` is how many bytes of the commitlog may be walked only to count what the broker itself does not read;
    where more would have to be, counts are -1. ``spool`` has room for some 120 bytes a record, by default in
    memory; ``progress`` is told how far the work is.

    Raises ValueError for a release that is not one of RELEASES, and InputError where what comes of a start on queues in
    RocksDB, or on a log of DLedger, is not known: it may depend on which of the broker's threads is first. Mirrors
    ``DefaultMessageStore.load`` (4.9.8 to 5.5.1).
    """
    if settings.release not in START_RULES:
        raise ValueError(f"no release {settings.release!a}: it is one of {', '.join(START_RULES)}")
    progress = progress or NoListener()
    kind = _kind_of(store)
    run = kind(store, settings, spool or start_kept.MemorySpool(), progress)
    try:
        started = run.start()
    except queue_state.LoadFailure as e:
        return loading.Prediction(settings.release, False, (loading.Refusal(e.kind, e.path, e.detail),))
    outcome = start_outcome.outcome(store, settings, started, count_limit, progress)
    return dataclasses.replace(
        outcome, ext_short=tuple(run.ext_short), ext_unreadable=tuple(run.ext_unreadable), set_back=tuple(run.set_back),
        last_entry=run.last_entry, cut_as_master=run.cut_as_master,
    )  # fmt: skip


def _kind_of(store: start_store.Store) -> type[OneStart]:
    if store.entries is None:
        return DatabaseStart if store.database else CombinedStart if store.combined else OneStart
    if store.database or store.combined:
        raise InputError("preflight does not know the start of a broker with a log of DLedger and queues in RocksDB")
    return DLedgerStart
