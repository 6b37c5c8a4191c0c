"""A build behind a URI: only its manifest says which file of a store each of its files is."""

from __future__ import annotations

import dataclasses

from rocketmq_reindex.jobs.fetching.build import find_build
from rocketmq_reindex.jobs.publishing import pointers
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.verifying.settings import VerifySettings
from rocketmq_reindex.udfs import files


def of_build(settings: VerifySettings) -> VerifySettings:
    """Return settings with the folder of the build that counts, where STORE is such an output or one of its builds.

    Other settings are returned as they are.
    Raises InputError for a manifest that is not as published, and where two stores are to be compared.
    """
    for store in (settings.store, settings.against) if settings.against else ():
        pointers.check_laid_out(store)
    if not pointers.identity(settings.store):
        return settings
    found = find_build(settings.store)
    sizes = {name: size for name, size in found.sizes.items() if name not in settings.named}
    names = {files.base(file.at): files.base(file.path) for file in found.wanted if file.path.startswith("index/")}
    changes = {
        **sizes,
        "store": found.folder,
        "named": settings.named | frozenset(SIZES),
        "trimmed": True,
        "index_names": names,
    }
    return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]  # names of VerifySettings
