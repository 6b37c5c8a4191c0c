"""Where a run writes, and how what it wrote becomes visible: all of it or nothing."""

import contextlib
import heapq
import uuid
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import builds, layout, local
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------------ parts
# Sorted lines that executors left in parts, merged. Little is held at once, however many lines and parts there are.

FAN_IN: Final = 256
"""Parts that are merged, and so held open, at once."""
_PIECES: Final = 1 << 12

Key = Callable[[bytes], Any]
"""What a line is sorted by"""
Entry = tuple[Any, bytes]


def entries(part: str, key: Key) -> Iterator[Entry]:
    """Yield (key, line) for each line of a part."""
    for line in files.lines(part):
        yield key(line), line


def few_parts(staging: StagingFolder, parts: list[str], key: Key) -> list[str]:
    """Merge parts until they are few enough to be open all at once. Return them. The merged parts are removed."""
    while len(parts) > FAN_IN:
        merged = []
        for low in range(0, len(parts), FAN_IN):
            group = parts[low : low + FAN_IN]
            path = files.join(staging.plans, f"merged-{uuid.uuid4().hex}")
            lines = (line + b"\n" for _, line in heapq.merge(*(entries(part, key) for part in group)))
            files.write_bytes(staging.temporary, path, joined(lines))
            for part in group:
                files.remove_tree(part)
            merged.append(path)
        parts = merged
    return parts


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield many small pieces as few larger ones: each costs a system call."""
    pieces = iter(pieces)
    while data := b"".join(islice(pieces, _PIECES)):
        yield data


# ----------------------------------------------------------------------------------------------------------------------- output
# In a local folder that is one rename (``jobs.publishing.local``). Behind a URI, and on mounts of object stores, where no
# folder can be renamed, every build has a folder of its own and one small file names the one that counts
# (``jobs.publishing.builds``).


def check_places(inputs: list[str], out: str, overwrite: bool | None, *, may_lack_manifest: bool = False) -> str:
    """Return the real path of DIR. Raises InputError when it may not be written: inside an input or around it, or not empty.

    ``overwrite`` is None where that is no option of the command. ``may_lack_manifest``: whether DIR holds a build is asked
    again later, where its manifest is not there.
    """
    if not files.no_rename(out):
        local.real_path(out)
    for place in inputs:
        if files.overlap(place, out):
            raise InputError(f"{escape(out)}: lies inside {escape(place)} or around it: name a folder apart from the input")
    layout.check_no_store_around(escape(out), out)
    if files.no_rename(out):
        return builds.check_place(out, overwrite)
    return local.check_place(out, overwrite, may_lack_manifest=may_lack_manifest)


def locked(target: str) -> contextlib.AbstractContextManager[None]:
    """Return a context in which DIR is locked for one run: a second one is refused.

        What killed runs left is cleared, also where this one has nothing to do.

    Behind a URI nothing is locked: each run has a build of its own.
    """
    return contextlib.nullcontext() if files.no_rename(target) else local.locked(target)


def staging(
    target: str, overwrite: bool = True, trim: bool = False, leftovers: layout.Leftovers | None = None
) -> contextlib.AbstractContextManager[StagingFolder]:
    """Return a context with a new staging folder, which is removed whatever happens.

    Behind a URI ``leftovers`` learns of what could not be removed. Raises InputError when DIR may not be replaced: another run
    may have published there since it was checked.
    """
    if files.no_rename(target):
        return builds.staging(target, trim, leftovers or layout.Leftovers())
    return local.staging(target, overwrite)


def standing(target: str) -> layout.Standing | None:
    """Return the build that counts in DIR; None when there is none, or its manifest is not as it was published."""
    return builds.standing(target) if files.no_rename(target) else local.standing(target)


def lacks_manifest(target: str) -> bool:
    """Return whether DIR is a local folder that holds something, but no manifest."""
    return not files.no_rename(target) and local.lacks_manifest(target)


def kept(target: str) -> list[str]:
    """Return the digests of the manifests of all builds that are still there, where DIR keeps more than one."""
    return [pointer.digest for pointer in layout.pointers(target)] if files.no_rename(target) else []


def sweeping(staging: StagingFolder, target: str) -> contextlib.AbstractContextManager[bool]:
    """Return a context with whether this run is the only one to DIR. Runs that start within it know that something may go.

    Only what was seen before may be removed, and nothing of a build that is ``kept`` now.
    """
    return builds.sweeping(staging, target) if staging.build else contextlib.nullcontext(True)


def others_sweep(staging: StagingFolder, target: str) -> bool:
    """Return whether another run to DIR may be removing what no ``kept`` build needs. Call it once this run is staged."""
    return bool(staging.build) and builds.others_sweep(staging, target)


def publish(staging: StagingFolder, target: str, overwrite: bool, leftovers: layout.Leftovers | None = None) -> None:
    """Make what was built visible, in one step. Raises InputError when DIR has been filled meanwhile."""
    if staging.build:
        builds.publish(staging, target, overwrite, leftovers or layout.Leftovers())
    else:
        local.publish(staging, target, overwrite)


def identity(folder: str) -> Hashable | None:
    """Return what identifies the build in a folder, before and after it is published; None when it cannot be known."""
    return layout.identity(folder) if files.no_rename(folder) else local.identity(folder)


def settle(target: str) -> None:
    """Make publishing itself durable."""
    if not files.no_rename(target):
        local.settle(target)
