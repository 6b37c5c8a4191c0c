"""Publish where no folder can be renamed: a folder for each build, and a small file written last that makes it the one.

OUT/builds/BUILD/...               what a build wrote, as it lies in a store, with reindex.json
OUT/published/NUMBER-BUILD.json    that BUILD is complete; the highest NUMBER counts, of equal ones the last BUILD by name
OUT/work/BUILD/...                 what its tasks hand on while it runs; every minute it gets a new ``alive-NUMBER``
OUT/work/BUILD/sweeping            while it removes what earlier runs left elsewhere: in ``--tables``
OUT/work/rmq-reindex-verify-RUN/   what a verify hands on, where OUT/work is its ``--work``; it gets ``alive-NUMBER``, too

A new name is all that publishing takes, and no store shows half of a new name for long: what has no whole content yet does not
count. Two runs to one OUT never meet; the one that publishes last wins, unless it may not replace anything.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Iterator
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.files.digests import file_digest
from rocketmq_reindex.jobs.publishing import layout, local
from rocketmq_reindex.storage_format import digest as storage_format_digest, errors, showing
from rocketmq_reindex.udfs.staging import StagingFolder

_SWEEPING: Final = "sweeping"
_NAMES: Final = frozenset({layout.BUILDS, layout.POINTERS, layout.WORK})
KEPT: Final = 2
"""builds: the one that counts, and the one before, which somebody may still be fetching"""
DEAD_NANOSECONDS: Final = 3600 * 10**9
"""A run whose last sign of life is so much older than another's is taken for dead."""


def standing(out: str) -> layout.Standing | None:
    """Return the build that counts, if its manifest is the one that was published."""
    published = layout.pointers(out)
    if published:
        newest = published[-1]
        folder = layout.build_folder(out, newest.build)
        # Builds that were published since may have removed it.
        with contextlib.suppress(FileNotFoundError):
            if (
                newest.kind in storage_format_digest.KINDS
                and file_digest(files.join(folder, layout.MANIFEST), kind=newest.kind) == newest.digest
            ):
                return layout.Standing(folder, newest.digest)
    return None


def check_place(out: str, overwrite: bool | None) -> str:
    """Return OUT as it is. Raises InputError when it may not be written."""
    files.check_volume(out)
    shown, kind = showing.escape(out), files.entry_of(out).kind
    if not files.base(out):
        raise errors.InputError(f"{shown}: is a whole bucket or root folder: name a folder of its own")
    if kind not in (files.FOLDER, files.ABSENT):
        raise errors.InputError(f"{shown}: is not a folder: name another")
    if kind == files.FOLDER:
        published = layout.pointers(out)
        foreign = sorted(set(files.names(out)) - _NAMES)
        # Beside builds it does no harm: nothing there is replaced.
        if foreign and not (published and overwrite):
            raise errors.InputError(f"{shown}: holds {showing.escape(foreign[0])}, which no build writes: name an empty folder")
        if published and local.is_repaired(layout.build_folder(out, published[-1].build)):
            raise errors.InputError(f"{shown}: holds a repaired log, which nothing replaces: name another folder")
        if published and not overwrite:
            raise errors.InputError(
                f"{shown}: holds a build: name another folder{layout.OR_OVERWRITE if overwrite is False else ''}"
            )
    elif files.is_flat(out) and files.entry_of(_bucket(out)).kind == files.ABSENT:
        raise errors.InputError(f"{showing.escape(_bucket(out))}: is not there: make the bucket first")
    return out


def _bucket(path: str) -> str:
    while files.base(path):
        path = files.parent(path)
    return path


def _present(folder: str, names: re.Pattern[str] = layout.BUILD) -> set[str]:
    """Return the builds that have something in ``folder``, or what else has such ``names``."""
    if files.entry_of(folder).kind != files.FOLDER:
        return set()
    return {name for name in files.names(folder) if names.fullmatch(name)}


def sweep(out: str, own_build: str, leftovers: layout.Leftovers) -> None:
    """Remove builds that no pointer leads to and whose runs are dead, what dead verifies left in OUT/work, and published builds
    but for the last few.

    Clocks are the store's own: other runs' signs of life are compared with that of this one, ``own_build``.
    """
    _forget(out, layout.pointers(out), leftovers)
    now = layout.last_beat(files.join(out, layout.WORK, own_build))
    for verify in _present(files.join(out, layout.WORK), layout.VERIFY_NAME):
        if now - layout.last_beat(files.join(out, layout.WORK, verify)) >= DEAD_NANOSECONDS:
            leftovers.remove(files.join(out, layout.WORK, verify))
    for build in (_present(files.join(out, layout.BUILDS)) | _present(files.join(out, layout.WORK))) - {own_build}:
        work = files.join(out, layout.WORK, build)
        if now - layout.last_beat(work) < DEAD_NANOSECONDS:
            continue
        # Without its sign of life a run that was only asleep publishes no more.
        leftovers.remove(work)
        if build not in {pointer.build for pointer in layout.pointers(out)}:
            leftovers.remove(layout.build_folder(out, build))


@contextlib.contextmanager
def sweeping(staging: StagingFolder, out: str) -> Iterator[bool]:
    """Yield whether no other run is under way. A run that starts meanwhile sees that this one sweeps (``others_sweep``).

    Each run says that it is there before it looks, and this one says that it sweeps before it looks: of two at least one sees
    the other. Runs that died count until one that begins an hour later removes what they left.
    """
    mark = files.join(staging.root, _SWEEPING)
    files.write_bytes(staging.temporary, mark, [b"sweeping\n"])
    try:
        yield not _others(staging, out)
    finally:
        files.remove_tree(mark)


def others_sweep(staging: StagingFolder, out: str) -> bool:
    """Return whether another run to OUT may be removing files."""
    marks = (files.join(out, layout.WORK, build, _SWEEPING) for build in _others(staging, out))
    return any(files.entry_of(mark).kind != files.ABSENT for mark in marks)


def _others(staging: StagingFolder, out: str) -> set[str]:
    return _present(files.join(out, layout.WORK)) - {files.base(staging.root)}


def _forget(out: str, published: list[layout.Pointer], leftovers: layout.Leftovers) -> None:
    for pointer in published[:-KEPT]:
        folder = layout.build_folder(out, pointer.build)
        # First the file that leads to it: a reader meets a whole build or none.
        if leftovers.remove(files.join(out, layout.POINTERS, pointer.name)):
            leftovers.remove(folder)
        else:
            leftovers.add(folder, "its pointer stays")


@contextlib.contextmanager
def staging(target: str, trim: bool, leftovers: layout.Leftovers) -> Iterator[StagingFolder]:
    """Yield new folders for a build of this run; they are removed unless it was published."""
    build = uuid.uuid4().hex
    staging = StagingFolder(files.join(target, layout.WORK, build), layout.build_folder(target, build), trim)
    try:
        with layout.Alive(staging):
            for folder in (files.parent(staging.build), files.join(target, layout.POINTERS)):
                files.make_folder(folder)
            staging.make()
            # What cannot be swept now, the next run sweeps.
            with contextlib.suppress(OSError):
                sweep(target, build, leftovers)
            yield staging
    finally:
        try:
            if build not in {pointer.build for pointer in layout.pointers(target)}:
                leftovers.remove(staging.build)
        except OSError as error:
            leftovers.add(staging.build, files.why(error))
        finally:
            leftovers.remove(staging.root)


def publish(staging: StagingFolder, target: str, overwrite: bool, leftovers: layout.Leftovers) -> None:
    """Write the small file that makes the build count. Raises InputError when another run published meanwhile, or took this run
    for dead.
    """
    check_place(target, overwrite)
    if not layout.last_beat(staging.root):
        raise errors.InputError(
            f"{showing.escape(target)}: another run took this one for dead and removed its files: run it again"
        )
    digest = file_digest(files.join(staging.build, layout.MANIFEST))
    before = layout.pointers(target)
    pointer = layout.Pointer(before[-1].number + 1 if before else 1, files.base(staging.build), digest)
    text = json.dumps({"build": pointer.build, "manifest": digest, "digest": pointer.kind}).encode()
    files.write_bytes(staging.temporary, files.join(target, layout.POINTERS, pointer.name), [text, b"\n"])
    with contextlib.suppress(OSError):
        _forget(target, [*before, pointer], leftovers)
