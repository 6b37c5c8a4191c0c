"""Explain what a repair changed, from its manifest. Its content is checked, since anybody may have edited it."""

import json
from collections.abc import Iterator
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.publishing import pointers
from rocketmq_reindex.jobs.publishing.layout import MANIFEST, MANIFEST_MAX
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import counted, escape, reason

_HOW: Final = {
    "replica": "taken from replica {replica}: nothing is lost",
    "filler": "lost: records stand there that no consumer sees",
    "kept": "kept as it was: a broker takes it only with checkCRCOnRecover=false",
}


def explain(place: str) -> Iterator[str]:
    """Yield lines for the manifest at ``place``, or of the repair in that folder. Raises InputError."""
    path = place
    try:
        path = _manifest_of(place)
        manifest = json.loads(files.read_bytes(path, MANIFEST_MAX))
        repair = manifest["repair"]
        ranges, segments = list(repair["ranges"]), int(repair["segments"])
        lines = [line for entry in ranges for line in _lines(entry)]
        sums = [int(repair[name]) for name in ("from_replica", "filled", "kept")]
    except FileNotFoundError:
        raise InputError(f"{escape(path)}: is not there: name the reindex.json of a repair") from None
    except OSError as error:
        raise InputError(f"{escape(path)}: {reason(error)}: name the reindex.json of a repair") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{escape(path)}: is no manifest of a repair: name its reindex.json") from None
    if not ranges:
        yield f"{counted(segments, 'segment')}: the log was undamaged, and is unchanged"
        return
    yield f"{counted(segments, 'segment')}, {counted(len(ranges), 'damaged range')} of the log treated:"
    yield from lines
    yield f"in all: {sums[0]:,} bytes from a replica, {sums[1]:,} bytes lost, {sums[2]:,} bytes kept as they were"


def _manifest_of(place: str) -> str:
    """Return the manifest that ``place`` is, or that of the repair in this folder or published there."""
    if files.entry_of(place).kind != files.FOLDER:
        return place
    inner = files.join(place, MANIFEST)
    if files.entry_of(inner).kind == files.ABSENT and (published := pointers.pointers(place)):
        inner = files.join(pointers.build_folder(place, published[-1].build), MANIFEST)
    return inner


def _lines(entry: dict[str, Any]) -> Iterator[str]:
    low, length = int(entry["offset"]), int(entry["length"])
    yield f"segment {escape(str(entry['segment']))}, bytes {low} to {low + length - 1} ({counted(length, 'byte')})"
    yield f"  damage   {escape(str(entry['reason']), 2000)}"
    yield f"  now      {_HOW[entry['how']].format(replica=escape(str(entry['replica'])))}"
    at, size = map(int, entry["damaged"])
    if (at, size) != (low, length):
        why = "records beside it differ from the replica's" if entry["how"] == "replica" else "that is too few for a record"
        yield f"  wider    the damage is {counted(size, 'byte')} at {at}; {why}, so neighbours went with it"
    if entry["how"] == "filler" and entry["old"]:
        records = int(entry["records"])
        listed = (
            f"{counted(records, 'record')} in them can still be read: {low:020d}.json"
            if records
            else "no record in them can be read"
        )
        yield f"  kept     quarantine/{low:020d} has the old bytes; {listed}"
    if entry["new"]:
        yield f"  digests  old {escape(str(entry['old']))}, new {escape(str(entry['new']))}"
