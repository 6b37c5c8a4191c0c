"""Where a run writes, and how what it wrote becomes visible: all of it or nothing.

In a local folder that is one rename (``output_local``). Behind a URI, and on mounts of object stores, where no folder can be
renamed, every build has a folder of its own and one small file names the one that counts (``output_builds``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator

from jobs import output_builds, output_local, pointers
from jobs.layout import CONFIG as CONFIG
from jobs.layout import MANIFEST as MANIFEST
from jobs.layout import PUBLISHED as PUBLISHED
from jobs.layout import TOPICS as TOPICS
from jobs.layout import Standing
from storage_format.errors import InputError
from storage_format.names import escape
from udfs import files
from udfs.stage import Stage


def check_places(inputs: list[str], out: str, overwrite: bool) -> str:
    """The real path of DIR. Raises InputError when it may not be written: inside an input or around it, or not empty."""
    if not files.no_rename(out):
        output_local.real_path(out)
    for place in inputs:
        if files.overlap(place, out):
            raise InputError(f"{escape(out)}: lies inside {escape(place)} or around it: name a folder apart from the input")
    return output_builds.check_place(out, overwrite) if files.no_rename(out) else output_local.check_place(out, overwrite)


@contextlib.contextmanager
def locked(target: str) -> Iterator[None]:
    """Hold DIR for one run: a second one is refused. Behind a URI nothing is held: each run has a build of its own."""
    with contextlib.nullcontext() if files.no_rename(target) else output_local.locked(target):
        yield


@contextlib.contextmanager
def staging(target: str, overwrite: bool = True, trim: bool = False) -> Iterator[Stage]:
    """A fresh staging folder; what earlier runs left is swept first, and this one's is removed whatever happens.

    Raises InputError when DIR may not be replaced: another run may have published there since it was checked.
    """
    opened = output_builds.staging(target, trim) if files.no_rename(target) else output_local.staging(target, overwrite)
    with opened as stage:
        yield stage


def standing(target: str) -> Standing | None:
    """The build that counts in DIR; None when there is none, or its manifest is not as it was published."""
    return output_builds.standing(target) if files.no_rename(target) else output_local.standing(target)


def kept(target: str) -> list[str]:
    """The digests of the manifests of all builds that are still there, where DIR keeps more than one."""
    return [pointer.digest for pointer in pointers.pointers(target)] if files.no_rename(target) else []


@contextlib.contextmanager
def sweeping(stage: Stage, target: str) -> Iterator[bool]:
    """Whether this run is the only one to DIR. While the body runs, others that begin know that something may be removed.

    Only what was seen before may be removed, and nothing of a build that is ``kept`` now.
    """
    with output_builds.sweeping(stage, target) if stage.build else contextlib.nullcontext(True) as alone:
        yield alone


def others_sweep(stage: Stage, target: str) -> bool:
    """Whether another run to DIR may be removing what no build that is ``kept`` needs. Ask when this one is staged."""
    return bool(stage.build) and output_builds.others_sweep(stage, target)


def publish(stage: Stage, target: str, overwrite: bool) -> None:
    """Make what was built visible, in one step. Raises InputError when DIR has been filled meanwhile."""
    if stage.build:
        output_builds.publish(stage, target, overwrite)
    else:
        output_local.publish(stage, target, overwrite)


def identity(folder: str) -> Hashable | None:
    """What tells the published build from any other, before and after; None when it cannot be known."""
    return pointers.identity(folder) if files.no_rename(folder) else output_local.identity(folder)


def settle(target: str) -> None:
    """Make publishing itself durable."""
    if not files.no_rename(target):
        output_local.settle(target)
