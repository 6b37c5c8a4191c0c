"""Settings of a verify: those of the build whose result it expects, and its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rocketmq_reindex.jobs.building.settings import BuildSettings
from rocketmq_reindex.jobs.store.segments import Commitlog, list_segments
from rocketmq_reindex.storage_format.checks.differences import PARTS
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs import files


@dataclass(frozen=True)
class VerifySettings:
    """``build`` is what would be built; ``given`` the sizes that were named, the others are taken from the files.

    ``index_names``: for a build that lies as behind a URI the name in a store of each IndexFile, by the one that it has there.
    """

    build: BuildSettings
    given: frozenset[str] = frozenset()
    only: tuple[str, ...] = PARTS
    sample: float = 1.0
    against: str = ""
    report: str = ""
    work: str = ""
    json: bool = False
    trimmed: bool = False
    """files may end with their last byte used"""
    index_names: Mapping[str, str] = field(default_factory=dict)
    topics_config: str = ""
    """the file that the batch topics come from, if not STORE/config/topics.json"""
    sizes_known: bool = True
    """False where neither words nor files say how many slots and items an IndexFile has"""

    def check(self) -> VerifySettings:
        """Raises UsageError for what cannot be, and InputError where something would be written into a store."""
        if not 0 < self.sample <= 1:
            raise UsageError(f"--sample {self.sample}: take a share above 0 and up to 1, such as 0.1")
        if self.against and (self.sample < 1 or self.only != PARTS or self.build.commitlogs):
            raise UsageError("--against: compares two whole stores: leave out --sample, --only and --commitlog")
        if self.build.master and not self.build.master.startswith("local") and not self.work:
            raise UsageError("--work: name a folder that all executors share: the run keeps index items there for a while")
        for option, place in (("--report", self.report), ("--work", self.work)):
            if place:
                check_apart(option, place, self.stores)
        return self

    @property
    def stores(self) -> tuple[str, ...]:
        """all folders that are only read"""
        return (*self.build.inputs, *([self.against] if self.against else []))

    def logs(self) -> list[Commitlog]:
        """The log of the store and, with --against, of the other. Raises InputError for what is none."""
        stores = [files.absolute(store) for store in (self.build.store, self.against) if store]
        for store in stores:
            if files.look(store).kind != files.FOLDER:
                raise InputError(f"{escape(store)}: is not a folder: name a store")
        roots = [self.build.roots, *((files.join(store, "commitlog"),) for store in stores[1:])]
        return [list_segments(root, self.build.segment_size) for root in roots]


def check_apart(option: str, place: str, stores: Iterable[str]) -> None:
    """Raises InputError for a place inside of a store."""
    for store in stores:
        if files.within(place, store):
            raise InputError(f"{option} {escape(place)}: lies inside {escape(store)}, where nothing is written")


def at_its_place(build: BuildSettings) -> BuildSettings:
    """With an absolute STORE: executors have working folders of their own."""
    return dataclasses.replace(build, store=files.absolute(build.store))


def parse_only(text: str) -> tuple[str, ...]:
    """``index,log`` as parts, in their usual order. Raises UsageError."""
    asked = [word.strip() for word in text.split(",") if word.strip()]
    if not asked or any(word not in PARTS for word in asked):
        raise UsageError(f"--only {text!a}: take one or more of {', '.join(PARTS)}, separated by commas")
    return tuple(part for part in PARTS if part in asked)
