"""Folders of a store that may be broken: what lies in them, and why it cannot be read, without an end to the run."""

from __future__ import annotations

from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


def reason(error: Exception) -> str:
    """Return in a few words why something could not be read."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return escape(str(error))


def entries(folder: str, notes: Notes) -> list[files.Entry] | None:
    """Return the entries of a folder, by name; None where there is no such folder. Failures are added to ``notes``."""
    try:
        kind = files.entry_of(folder).kind
        if kind == files.ABSENT:
            return None
        if kind != files.FOLDER:
            notes.add("not a folder", f"{escape(folder)}: is not a folder")
            return []
        return files.listing(folder)
    except (OSError, ValueError) as error:
        notes.add("unreadable folder", f"{escape(folder)}: {reason(error)}")
        return []


def entries_of(folder: str) -> list[files.Entry]:
    """Return the entries of a folder; none where it does not exist. Raises OSError and ValueError where it cannot be listed."""
    return files.listing(folder) if files.entry_of(folder).kind == files.FOLDER else []
