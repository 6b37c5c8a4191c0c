"""A log without records, as of a disk that is not mounted: a build of it replaces one with records only on demand."""

from __future__ import annotations

import json
from typing import Final

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.publishing import output
from rocketmq_reindex.jobs.publishing.layout import MANIFEST_MAX
from rocketmq_reindex.jobs.store.segments import Commitlog
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.udfs import files

_BUILT_EMPTY: Final = "what is built of it is empty: is its disk mounted?"


def check_segments(settings: BuildSettings, log: Commitlog, target: str) -> list[str]:
    """Return warnings of folders without a segment. Raises InputError where an empty build would replace another."""
    warnings = [] if log.segments else _kept(settings, target)
    consequence = "nothing is built from it" if log.segments else _BUILT_EMPTY
    return [*warnings, *(f"{escape(root)}: holds no segment: {consequence}" for root in bare_roots(settings, log))]


def bare_roots(settings: StoreSettings, log: Commitlog) -> list[str]:
    """Return commitlog folders without a segment, as a disk that is not mounted leaves them."""
    folders = {files.parent(entry.path) for entry in log.entries}
    return [root for root in settings.roots if files.parent(files.join(root, "segment")) not in folders]


def check_records(settings: BuildSettings, log: Commitlog, records: int, size: int, target: str) -> list[str]:
    """Return warnings when the log has been read: ``records`` were found in ``size`` bytes. Raises InputError likewise."""
    if records or not log.segments:
        return []
    return [*_kept(settings, target), f"no record in {counted(size, 'byte')} of log: what is built of it is empty"]


def _kept(settings: BuildSettings, target: str) -> list[str]:
    """Raises InputError where DIR holds a build of some records, which stays there. In a dry run that is a warning."""
    known = 0 if settings.allow_empty else _records(target)
    if not known:
        return []
    roots = ", ".join(map(escape, settings.roots))
    what = f"a build of {counted(known, 'record')}" if known > 0 else "a build"
    text = (
        f"{roots}: holds no record, so {what} stays in {escape(settings.out)}: mount the log's disk, or name the right "
        "folder; --allow-empty replaces it all the same"
    )
    if not settings.dry_run:
        raise InputError(text)
    return [text]


def _records(target: str) -> int:
    """Returns the records of the build in DIR; 0 where there is none, -1 where that cannot be known."""
    if files.entry_of(target).kind != files.FOLDER:
        return 0
    standing = output.standing(target)
    if standing is None:
        return -1 if output.kept(target) else 0
    try:
        manifest = json.loads(files.read_bytes(files.join(standing.folder, output.MANIFEST), MANIFEST_MAX))
        return int(manifest["counts"]["records"])
    except (OSError, InputError, ValueError, KeyError, TypeError):
        return -1
