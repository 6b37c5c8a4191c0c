"""The options of ``rmq-reindex repair``, and the settings that they make."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings, merged
from rocketmq_reindex.jobs.command import option, option_table, options
from rocketmq_reindex.jobs.store.settings import checked_paths, repeated
from rocketmq_reindex.storage_format import showing
from rocketmq_reindex.storage_format.errors import UsageError

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
            yield f"--replica {showing.escape(replicas[number])}: is named twice: name it once"

    def for_manifest(self) -> dict[str, Any]:
        """Return the settings that decide what is written, by the names of the manifest."""
        mine = {
            "replicas": len(self.replicas), "tombstones": self.tombstones, "include_broken": self.include_broken,
            "property_crc_forced": self.property_crc_forced,
        }  # fmt: skip
        # A manifest has these only where they are set.
        return super().for_manifest() | mine | {name: True for name in ("extend", "majority") if getattr(self, name)}


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
