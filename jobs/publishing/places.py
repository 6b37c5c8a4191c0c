"""Which local folders may be DIR, and what in them is no build's."""

from __future__ import annotations

import json
import os
from typing import Any

from rocketmq_reindex.jobs.publishing.layout import (
    CONFIG,
    CONFIGS,
    MANIFEST,
    MANIFEST_MAX,
    OF_BROKERS,
    OR_OVERWRITE,
    PUBLISHED,
    REPAIRED,
    TOPICS,
)
from rocketmq_reindex.storage_format.digest import EARLIER_KIND, KINDS
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.digests import file_digest


def check_target(target: str, out: str, overwrite: bool | None, *, may_lack_manifest: bool = False) -> None:
    """Raise InputError when what stands at DIR may not be replaced. Asked at the start, and again before publishing.

    What else lies beside a build stays in DIR (``local``), unless it may be a broker's, or cannot be moved.
    """
    if os.path.lexists(target) and not os.path.isdir(target):
        raise InputError(f"{escape(out)}: is not a folder: name another")
    if os.path.isdir(target):
        names = sorted(os.listdir(target))
        if is_repaired(target):
            raise InputError(f"{escape(out)}: holds a repaired log, which nothing replaces: name another folder")
        others = strangers(target, names)
        is_build = MANIFEST in names or (may_lack_manifest and bool(names))
        if overwrite and is_build:
            others = [name for name in others if not _may_stay(target, name)]
        if others:
            what = "move it away, or name an empty folder" if is_build else "name an empty folder"
            raise InputError(f"{escape(out)}: holds {escape(others[0])}, which no build writes: {what}")
        if names and not overwrite:
            raise InputError(f"{escape(out)}: is not empty: name another folder{OR_OVERWRITE if overwrite is False else ''}")
        if names and not is_build:
            raise InputError(
                f"{escape(out)}: was not written by a build (it has no {MANIFEST}): name another folder, or move this one away"
            )
        if CONFIG in names and MANIFEST in names and (changed := _changed(target)):
            raise InputError(
                f"{escape(out)}: {changed} is not as a build drafted it: move {CONFIG} away to keep what was changed"
            )
        if os.path.ismount(target):
            raise InputError(f"{escape(out)}: is a mount point and cannot be replaced as a whole: name a folder below it")


def strangers(target: str, names: list[str]) -> list[str]:
    """Return which of ``names`` no build writes. What a build did not write in config/ is a broker's."""
    found = [name for name in names if name not in PUBLISHED]
    # A build's manifest is not read for it.
    if set(found) & set(REPAIRED) and is_repaired(target):
        found = [name for name in found if name not in REPAIRED]
    config = os.path.join(target, CONFIG)
    if CONFIG in names and (os.path.islink(config) or not os.path.isdir(config)):
        found.append(CONFIG)
    elif CONFIG in names:
        written = {TOPICS, *(_entries(os.path.join(target, MANIFEST))[1] if MANIFEST in names else CONFIGS)}
        found += [inner for name in sorted(os.listdir(config)) if (inner := f"{CONFIG}/{name}") not in written]
    return found


def is_repaired(target: str) -> bool:
    """Return whether a folder, local or behind a URI, holds what a repair wrote.

    Its commitlog/ is then no broker's, unless one has run there.
    """
    path = files.join(target, MANIFEST)
    if files.entry_of(path).kind != files.FILE:
        return False
    # The manifest may be long: the key stands before the list of files.
    for line in files.lines(path):
        if line.startswith((b' "repair": ', b' "files": ')):
            return line.startswith(b' "repair": ')
    return False


def _may_stay(target: str, name: str) -> bool:
    """Whether what no build writes can be moved into the new DIR."""
    return name.partition("/")[0] not in OF_BROKERS and not os.path.ismount(os.path.join(target, name))


def _changed(target: str) -> str:
    """The first file of config/ that is not as the manifest says: what somebody edited must not be lost. "" for none."""
    there = [name for name in CONFIGS if os.path.lexists(os.path.join(target, name))]
    if not there:
        return TOPICS
    kind, entries = _entries(os.path.join(target, MANIFEST))
    for name in there:
        path = os.path.join(target, name)
        if os.path.getsize(path) > MANIFEST_MAX:
            return name
        digest = file_digest(path, kind=kind) if kind in KINDS else None
        if entries.get(name, {}).get("digest") != digest or digest is None:
            return name
    return ""


def _entries(manifest: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """Returns the kind of a manifest's digests, and its entries of config/. A manifest may be long: it is read by lines."""
    kind, head, line, entries = EARLIER_KIND, b' "digest": ', b'  {"path": "%s/' % CONFIG.encode(), dict[str, dict[str, Any]]()
    with open(manifest, "rb") as lines:
        for found in lines:
            if found.startswith(head):
                kind = str(json.loads(found[len(head) :].strip(b" ,\n")))
            elif found.startswith(line):
                entry = json.loads(found.strip(b" ,\n"))
                entries[str(entry["path"])] = entry
            elif entries:
                break  # the files are sorted by path
    return kind, entries


def check_place(out: str, overwrite: bool | None, *, may_lack_manifest: bool = False) -> str:
    """Return the real path of DIR. Raises InputError when it may not be written.

    ``may_lack_manifest``: a folder without one may be a build's all the same, which is found out later (``put_back``).
    """
    target = real_path(out)
    if os.path.islink(out.rstrip("/")) and not os.path.exists(target):
        raise InputError(f"{escape(out)}: is a link that leads nowhere: name the folder itself")
    check_target(target, out, overwrite, may_lack_manifest=may_lack_manifest)
    parent = os.path.dirname(target)
    if not os.path.isdir(parent):
        raise InputError(f"{escape(parent)}: is not a folder: make it first")
    return target


def real_path(out: str) -> str:
    """Return the real path of DIR. Raises InputError for the root folder."""
    target = os.path.realpath(out)
    if target == "/":
        raise InputError(f"{escape(out)}: is the root folder: name a folder of its own")
    return target


def lacks_manifest(target: str) -> bool:
    """Return whether DIR is a folder that holds something, but nothing under the manifest's name."""
    return os.path.isdir(target) and bool(names := os.listdir(target)) and MANIFEST not in names
