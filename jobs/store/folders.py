"""Folders of a store that may be broken: what lies in them, and why it cannot be read, without an end to the run."""

from __future__ import annotations

from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


def reason(error: Exception) -> str:
    """Why something could not be read, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return escape(str(error))


def entries(folder: str, notes: Notes) -> list[files.Entry] | None:
    """What lies in a folder, by name; None where there is no such folder. What keeps it from being listed is a note."""
    try:
        kind = files.look(folder).kind
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
    """The entries of a folder, none where it is not there. Raises what keeps it from being listed."""
    return files.listing(folder) if files.look(folder).kind == files.FOLDER else []
