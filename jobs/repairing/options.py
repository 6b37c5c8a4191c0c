"""The options of ``rmq-reindex repair``; and what a repair changed, explained from its manifest (``--explain``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings, merged
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.publishing import layout
from rocketmq_reindex.jobs.publishing.layout import MANIFEST, MANIFEST_MAX
from rocketmq_reindex.jobs.store.settings import checked_paths, repeated
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, reason

# --------------------------------------------------------------------------------------------------------------------- settings
# Settings of a repair: those of a build of the repaired log, and what may stand in the place of damage.


@dataclass(frozen=True, kw_only=True)
class RepairSettings(BuildSettings):
    """What a repair takes and writes."""

    mends = True
    replicas: tuple[str, ...] = ()
    """folders or URIs of replicas and backups: each a store, or a folder of segments; the first that fits is taken"""
    extend: bool = False
    majority: bool = False
    link: option.Link = option_table.default_of("link")
    tombstones: bool = False
    include_broken: bool = False

    def check(self) -> RepairSettings:
        """Return these settings with paths in their usual form. Raises UsageError for values that no repair can have."""
        replicas = tuple(files.absolute(place) if place else place for place in checked_paths(*self.replicas))
        # What is still damage after the repair would be reported, not refused: nothing but a torn tail should be left.
        checked = replace(self, replicas=replicas, protected=(*self.protected, *replicas), on_damage="salvage", keep_zeros=True)
        return super(RepairSettings, checked).check()  # type: ignore[return-value]  # replace keeps the class

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings, those of a build first."""
        yield from super().problems()
        if self.include_broken and self.crc_on_recover:
            yield (
                "--include-broken: a broker takes records with a wrong body CRC only with checkCRCOnRecover=false: set it, "
                "and name its --broker-conf"
            )
        if self.crc == "none" and self.crc_on_recover:
            yield (
                "--crc none: a broker cuts the log at a wrong body CRC: leave it out, or set checkCRCOnRecover=false and name "
                "its --broker-conf"
            )
        if self.to_plain:
            yield from self._of_plain()
        if self.extend and not self.replicas:
            yield "--extend: takes what a replica has behind the log's end: name a --replica"
        if self.majority and len(self.replicas) < 2:
            yield "--majority: one of two logs is no majority: name two or more --replica"
        if any(not replica for replica in self.replicas):
            yield "--replica: is empty: name a store"
        own = {files.canonical(place) for place in (self.store, *self.roots) if place}
        if any(replica and files.canonical(replica) in own for replica in self.replicas):
            yield "--replica: is the log itself that is to be repaired: name another copy of it"
        # One copy that is named twice would be the majority of three logs.
        replicas = [replica for replica in self.replicas if replica]
        stores = [files.parent(replica) if files.base(replica) == "commitlog" else replica for replica in replicas]
        # Of URIs only equal text is one copy: two servers may have a bucket of one name.
        for number in repeated([(store,) if files.is_remote(store) else files.canonical(store) for store in stores]):
            yield f"--replica {escape(replicas[number])}: is named twice: name it once"

    def _of_plain(self) -> Iterator[str]:
        """Yield which options say nothing where the log is laid anew."""
        names = ("extend", "majority", "tombstones", "include_broken", "link")
        for name in names:
            if getattr(self, name) != getattr(RepairSettings, name):
                yield f"--{name.replace('_', '-')}: does not go with --to-plain, which lays all records anew: leave it out"

    def for_manifest(self) -> dict[str, Any]:
        """Return the settings that decide what is written, by the names of the manifest."""
        mine = {
            "replicas": len(self.replicas), "tombstones": self.tombstones, "include_broken": self.include_broken,
            "property_crc_forced": self.property_crc_forced,
        }  # fmt: skip
        # A manifest has these only where they are set.
        names = ("to_plain", "extend", "majority")
        return super().for_manifest() | mine | {name: True for name in names if getattr(self, name)}


# ---------------------------------------------------------------------------------------------------------------------- options


def repair_settings(given: dict[str, Any]) -> RepairSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    given.pop("explain", None)
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex repair: name a STORE, or --commitlog folders: see --help")
    if not values.get("out"):
        raise UsageError("rmq-reindex repair: name --out DIR for the result: see --help")
    return RepairSettings(**values).check()


parse_settings: Final = options.reader("repair", repair_settings)
"""Return the settings that the arguments behind ``repair`` make. Raises UsageError."""


def explained(arguments: Sequence[str]) -> str | None:
    """Return the manifest that ``--explain`` names, None without it. Raises UsageError where anything else is asked for."""
    if not any(word == "--explain" or word.startswith("--explain=") for word in arguments):
        return None
    given = vars(options.parser_of("repair").parse_args(arguments))
    others = [name for name, value in given.items() if name != "explain" and value not in (None, False)]
    if others or not given["explain"]:
        raise UsageError("--explain: name one manifest, and nothing else")
    return str(given["explain"])


# ---------------------------------------------------------------------------------------------------------------------- explain
# Explain a repair from its manifest. Its content is checked, since anybody may have edited it.

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
        zeros = int(repair.get("zeros", 0))
        sums = [int(repair[name]) for name in ("from_replica", "filled", "kept")]
    except FileNotFoundError:
        raise InputError(f"{escape(path)}: is not there: name the reindex.json of a repair") from None
    except OSError as error:
        raise InputError(f"{escape(path)}: {reason(error)}: name the reindex.json of a repair") from None
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise InputError(f"{escape(path)}: is no manifest of a repair: name its reindex.json") from None
    if "to_plain" in repair:
        yield f"a log of DLedger, laid anew as a plain one: {counted(segments, 'segment')}; offsets/ says where each record was"
    elif not ranges:
        now = f"{counted(zeros, 'byte')} of zeros fill its last segment, which was too short" if zeros else "is unchanged"
        yield f"{counted(segments, 'segment')}: the log was undamaged, and {now}"
    if not ranges:
        return
    yield f"{counted(segments, 'segment')}, {counted(len(ranges), 'damaged range')} of the log treated:"
    yield from lines
    yield f"in all: {sums[0]:,} bytes from a replica, {sums[1]:,} bytes lost, {sums[2]:,} bytes kept as they were"


def _manifest_of(place: str) -> str:
    """Return the manifest that ``place`` is, or that of the repair in this folder or published there."""
    if files.entry_of(place).kind != files.FOLDER:
        return place
    inner = files.join(place, MANIFEST)
    if files.entry_of(inner).kind == files.ABSENT and (published := layout.pointers(place)):
        inner = files.join(layout.build_folder(place, published[-1].build), MANIFEST)
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
