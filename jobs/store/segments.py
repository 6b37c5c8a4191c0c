"""The commitlog's segments, listed by the same code on the driver as for Spark SQL's data sources; and what is no store."""

from collections.abc import Sequence

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segments import Commitlog, check_unchanged, entries_of, list_segments, meant_by, no_folder

__all__ = [
    "Commitlog",
    "check_has_parts",
    "check_is_folder",
    "check_is_store",
    "check_some_log",
    "check_unchanged",
    "entries_of",
    "list_segments",
    "meant_by",
]

_PARTS = ("commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint", "config")


def check_is_folder(store: str) -> None:
    """Raise InputError for a store that is no folder."""
    if wrong := no_folder(store):
        raise InputError(wrong)


def check_is_store(store: str) -> None:
    """Raise InputError for a folder of segments, or a part of a store, that was named in the place of a store."""
    if files.entry_of(files.join(store, "commitlog")).kind == files.ABSENT and (meant := meant_by(store)):
        raise InputError(f"{escape(store)}: is no store{meant}")


def check_some_log(roots: Sequence[str]) -> None:
    """Raise InputError where none of the folders ``roots`` can be one of segments. A disk of several may be lost."""
    wrong = list[InputError]()
    for root in roots:
        try:
            entries_of((root,))
        except InputError as error:  # noqa: PERF203  there are few folders
            wrong.append(error)
    if len(wrong) == len(roots):
        raise wrong[0]


def check_has_parts(store: str) -> None:
    """Raise InputError for a folder with nothing in it that a store has."""
    if all(files.entry_of(files.join(store, part)).kind == files.ABSENT for part in _PARTS):
        raise InputError(f"{escape(store)}: is no store: it has none of {', '.join(_PARTS)}")
