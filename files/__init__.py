"""One thin layer over files: all files of the input, the output and the staging folder are reached through it.

A plain path is a local or mounted file, which the calls of the operating system reach; pyarrow.fs reaches a URI.
"""

from rocketmq_reindex.files.entries import (
    ABSENT,
    FILE,
    FOLDER,
    OTHER,
    Entry,
    FileState,
    FolderStates,
    below,
    count_below,
    entry_of,
    listing,
    modified,
    names,
    outgrows_cache,
    states,
)  # fmt: skip
from rocketmq_reindex.files.folders import (
    allocated,
    clone,
    copy_in_store,
    free_bytes,
    handle_for_sync,
    link,
    make_folder,
    refuses,
    remove_tree,
    rename,
    sync,
    why,
)
from rocketmq_reindex.files.reading import CONFIG_MAX, MAPPED_MAX, Pages, Reader, head, lines, read_bytes
from rocketmq_reindex.files.systems import checked, is_flat, naming, no_rename, s3_options
from rocketmq_reindex.files.uris import (
    Uri,
    absolute,
    base,
    beside,
    canonical,
    check_volume,
    is_known,
    is_remote,
    join,
    option,
    overlap,
    parent,
    plain,
    split,
    within,
)  # fmt: skip
from rocketmq_reindex.files.writer import Writer, write_bytes, writing

__all__ = [
    "ABSENT", "CONFIG_MAX", "FILE", "FOLDER", "MAPPED_MAX", "OTHER", "Entry", "FileState", "FolderStates", "Pages",
    "Reader", "Uri", "Writer", "absolute", "allocated", "base", "below", "beside", "canonical", "check_volume", "checked",
    "clone", "copy_in_store", "count_below", "entry_of", "free_bytes", "handle_for_sync", "head", "is_flat", "is_known",
    "is_remote", "join", "lines", "link", "listing", "make_folder", "modified", "names", "naming", "no_rename", "option",
    "outgrows_cache", "overlap", "parent", "plain", "read_bytes", "refuses", "remove_tree", "rename", "s3_options", "split",
    "states", "sync", "why", "within", "write_bytes", "writing",
]  # fmt: skip
