"""The options of ``rmq-reindex repair``, and the settings that they make."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rocketmq_reindex.jobs.building.options import add_delay_options, add_store_options, default, merged
from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.publishing.layout import SIZES
from rocketmq_reindex.jobs.store.settings import checked_paths
from rocketmq_reindex.jobs.watching.options import add_watch_options
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.udfs import files
from rocketmq_reindex.udfs.files.folders import LINKS, REFLINK

# --------------------------------------------------------------------------------------------------------------------- settings
# Settings of a repair: those of a build of the repaired log, and what may stand in the place of damage.


@dataclass(frozen=True, kw_only=True)
class RepairSettings(BuildSettings):
    """What a repair takes and writes."""

    replicas: tuple[str, ...] = ()
    """folders or URIs of replicas and backups: each a store, or a folder of segments; the first that fits is taken"""
    extend: bool = False
    """also take what a replica has behind the end of the log"""
    majority: bool = False
    """take a sound record that most of the logs have otherwise from them"""
    link: str = REFLINK
    """one of LINKS: how unchanged segments may share their bytes with the damaged log's"""
    tombstones: bool = False
    """put an ordinary record at each queue offset that is known to be lost"""
    include_broken: bool = False
    """keep records whose frame is sound and whose body CRC is wrong"""

    @property
    def strict_lmq(self) -> bool:
        return self.lmq

    @property
    def need_crc(self) -> bool:
        return self.property_crc_forced

    @property
    def may_be_short(self) -> bool:
        return True

    @property
    def may_overwrite(self) -> bool:
        return False

    def check(self) -> RepairSettings:
        """Return these settings with paths in their usual form. Raises UsageError for values that no repair can have."""
        replicas = tuple(files.absolute(place) if place else place for place in checked_paths(*self.replicas))
        # What is still damage after the repair would be reported, not refused: nothing but a torn tail should be left.
        checked = replace(self, replicas=replicas, protected=(*self.protected, *replicas), on_damage="salvage", keep_zeros=True)
        return super(RepairSettings, checked).check()  # type: ignore[return-value]  # replace keeps the class

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings, those of a build first."""
        yield from super().problems()
        if self.link not in LINKS:
            yield f"--link {self.link!a}: take one of {', '.join(LINKS)}"
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
        if self.extend and not self.replicas:
            yield "--extend: takes what a replica has behind the log's end: name a --replica"
        if self.majority and len(self.replicas) < 2:
            yield "--majority: one of two logs is no majority: name two or more --replica"
        if any(not replica for replica in self.replicas):
            yield "--replica: is empty: name a store"
        own = {files.canonical(place) for place in (self.store, *self.roots) if place}
        if any(replica and files.canonical(replica) in own for replica in self.replicas):
            yield "--replica: is the log itself that is to be repaired: name another copy of it"

    def for_manifest(self) -> dict[str, Any]:
        """Return the settings that decide what is written, by the names of the manifest."""
        mine = {
            "replicas": len(self.replicas), "tombstones": self.tombstones, "include_broken": self.include_broken,
            "property_crc_forced": self.property_crc_forced,
        }  # fmt: skip
        return super().for_manifest() | mine | self._more()

    def _more(self) -> dict[str, Any]:
        """Settings that a manifest has only where they are set."""
        return {name: True for name in ("extend", "majority") if getattr(self, name)}


# ---------------------------------------------------------------------------------------------------------------------- options
# The options of ``rmq-reindex repair``, and the settings that they make.


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``rmq-reindex repair``. Options left out are absent, so that --broker-conf can tell."""
    parser = command_parser(
        "rmq-reindex repair",
        "Write a new commitlog that a broker accepts whole, and the files derived from it. The old one is only read.",
        absent=True,
    )
    add = parser.add_argument
    add("store", nargs="?", metavar="STORE", help="store folder or URI: the segments are in STORE/commitlog")
    add(
        "--out", metavar="DIR", help="new folder or URI for the result, apart from STORE; it must not be there yet, or be empty"
    )
    add(
        "--replica", dest="replicas", action="append", metavar="STORE2",
        help="store of a replica, or a backup: lost bytes come from it where both logs are sure to be the same (repeatable)",
    )  # fmt: skip
    add(
        "--extend", action="store_true",
        help="where a replica goes on behind the log's end, take that, too: the log then ends where the replica does",
    )  # fmt: skip
    add(
        "--majority", action="store_true",
        help="take a sound record from the replicas where most of the logs have other bytes, which no CRC covers",
    )  # fmt: skip
    add(
        "--link", choices=LINKS,
        help="let unchanged segments share their bytes with the old ones: reflink where the file system can, hard links "
        f"for those before the log's end, or none: copy ({default('link', RepairSettings)})",
    )  # fmt: skip
    add(
        "--tombstones", action="store_true",
        help="put a record with the tag __LOST__ at each queue offset that is known to be lost",
    )  # fmt: skip
    add(
        "--include-broken", action="store_true",
        help="keep records whose body CRC alone is wrong, for a broker with checkCRCOnRecover=false (see --broker-conf)",
    )  # fmt: skip
    add(
        "--explain",
        metavar="MANIFEST",
        help="tell what an earlier repair changed: DIR/reindex.json; no other option goes with it",
    )
    add("--write-topics", action="store_true", help="also draft DIR/config/topics.json from the log")
    add_delay_options(parser)
    add_store_options(parser)
    add_watch_options(parser)
    return parser


def parse_settings(arguments: Sequence[str]) -> RepairSettings:
    """Return the settings that the arguments behind ``repair`` make. Raises UsageError."""
    return repair_settings(vars(build_parser().parse_args(arguments)))


def repair_settings(given: dict[str, Any]) -> RepairSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    given.pop("explain", None)
    values = merged(given)
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex repair: name a STORE, or --commitlog folders: see --help")
    if not values.get("out"):
        raise UsageError("rmq-reindex repair: name --out DIR for the result: see --help")
    return RepairSettings(**values, named=frozenset((*SIZES, "broker_version")) & values.keys()).check()


def explained(arguments: Sequence[str]) -> str | None:
    """Return the manifest that ``--explain`` names, None without it. Raises UsageError where anything else is asked for."""
    if not any(word == "--explain" or word.startswith("--explain=") for word in arguments):
        return None
    given = vars(build_parser().parse_args(arguments))
    others = [name for name, value in given.items() if name != "explain" and value not in (None, False)]
    if others or not given["explain"]:
        raise UsageError("--explain: name one manifest, and nothing else")
    return str(given["explain"])
