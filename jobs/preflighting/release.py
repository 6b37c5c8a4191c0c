"""Where the version comes from whose start is worked out."""

from __future__ import annotations

from contextlib import closing

from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.store.index_files import IndexSizes
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.versions import of_store
from rocketmq_reindex.storage_format.checks.fitting import fit
from rocketmq_reindex.storage_format.errors import InputError


def release_from(settings: PreflightSettings, sizes: IndexSizes) -> str:
    """Return where the version comes from, in words: the option, or the default, and what the store's files fit then.

    The broker that starts need not be the one that wrote the store, so nothing is taken from the files. ``sizes`` are those of
    the IndexFiles.
    """
    if settings.named:
        return f"--broker-version {settings.broker_version}"
    try:
        with closing(StoreLog(settings.roots, Notes.silent())) as log:
            signs = of_store(settings.store, log, sizes)
    except (OSError, InputError):
        # A broker that does not start is told by its own reasons.
        signs = []
    shown = f"the store's files fit {' or '.join(fit(signs).versions)}" if signs else "no file of the store shows one"
    return f"by default; {shown}: --broker-version names another"
