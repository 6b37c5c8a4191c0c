"""The commitlog's segments, listed by the same code on the driver as for Spark SQL's data sources; and what is no store."""

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.scan.segments import Commitlog, check_unchanged, list_segments, meant_by

__all__ = ["Commitlog", "check_is_folder", "check_is_store", "check_unchanged", "list_segments", "meant_by"]


def check_is_folder(store: str) -> None:
    """Raise InputError for a store that is no folder."""
    if files.entry_of(store).kind != files.FOLDER:
        raise InputError(f"{escape(store)}: is no folder: STORE is the folder around commitlog/ and index/")


def check_is_store(store: str) -> None:
    """Raise InputError for a folder of segments that was named in the place of a store."""
    if files.entry_of(files.join(store, "commitlog")).kind == files.ABSENT and (meant := meant_by(store)):
        raise InputError(f"{escape(store)}: is no store{meant}")
