"""The folder for what the stages of a verify hand on to each other."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Iterator

from rocketmq_reindex.jobs.publishing.alive import VERIFY, Alive
from rocketmq_reindex.jobs.publishing.leftovers import Leftovers
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.staging import StagingFolder


@contextlib.contextmanager
def work_folder(place: str, left: Leftovers, is_here: bool = True) -> Iterator[StagingFolder]:
    """Make a folder for this run alone, which ``left`` removes whatever happens.

    On object stores and their mounts it shows signs of life, so that a later build to the same DIR can remove what a killed
    verify left in DIR/work. ``is_here``: all tasks run on this machine. Raises InputError where no folder can be made.
    """
    place = files.checked(place)
    alive = bool(place) and files.no_rename(place)
    if alive:
        files.check_volume(place)
        place = files.absolute(place)
        if not files.is_remote(place) and not os.path.isdir(files.parent(place)):
            raise InputError(f"--work {escape(place)}: lies in no folder: make that first")
        files.make_folder(place, below=files.parent(place))
        folder = files.join(place, f"{VERIFY}{uuid.uuid4().hex}")
    elif place and not os.path.isdir(place):
        raise InputError(f"--work {escape(place)}: is not a folder: make it first")
    elif not place and not is_here:
        raise InputError("--work: the executors may be on other machines: name a folder that all of them share")
    else:
        folder = tempfile.mkdtemp(prefix=VERIFY, dir=os.path.abspath(place) if place else None)
    staging = StagingFolder(folder)
    try:
        with Alive(staging) if alive else contextlib.nullcontext():
            staging.make()
            yield staging
    finally:
        left.remove(folder)
