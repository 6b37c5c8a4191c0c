"""The options of ``rmq-reindex verify``, and the settings that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.options import BuildSettings, merged
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.tables_place import check_place, given_place
from rocketmq_reindex.jobs.publishing.layout import check_no_store_around, check_writable, is_work
from rocketmq_reindex.jobs.store.folders import check_apart
from rocketmq_reindex.jobs.store.settings import (
    Commitlog,
    StoreSettings,
    check_is_folder,
    check_plain,
    checked_paths,
    list_segments,
    roots_of,
)
from rocketmq_reindex.storage_format import showing
from rocketmq_reindex.storage_format.checks.differences import PARTS
from rocketmq_reindex.udfs.verify.queue_tasks import BesideFiles

# --------------------------------------------------------------------------------------------------------------------- settings
# Settings of a verify: those that it shares with a build, and its own.


@dataclass(frozen=True, kw_only=True)
class VerifySettings(StoreSettings):
    """All that decides what a verify reads and compares. Sizes that are not ``named`` are taken from the store's files."""

    only: tuple[str, ...] = option_table.default_of("only", "verify")
    sample: float = option_table.default_of("sample")
    against: str = ""
    report: str = ""
    work: str = ""
    tables: str = ""
    incremental: bool = False
    recheck: bool = False
    topics_config: str = ""
    """the file that the batch topics come from, if it is not STORE/config/topics.json"""
    database: str = ""
    """the folder of the RocksDB database, where the queues that are compared are there alone"""
    database_beside: str = ""
    """the folder of the RocksDB database, where there are ConsumeQueue files, too: it is compared with these"""
    beside: BesideFiles = field(default_factory=BesideFiles)
    """what that database has"""
    trimmed: bool = False
    """files may end with their last byte used, as those of a build behind a URI do"""
    index_names: Mapping[str, str] = field(default_factory=dict)
    """for such a build: the name that each IndexFile has in a store, by the name that it has there"""
    dispatched_entry: int = -1
    """index of the last entry of DLedger to which a unit of its record leads"""
    sizes_known: bool = True
    """False where neither the options nor the files say how many slots and items an IndexFile has"""

    @property
    def committed(self) -> int:
        """As in ``StoreSettings``; also what a broker has dispatched, which it does with no entry that is not committed."""
        return max(super().committed, self.dispatched_entry)

    def check(self) -> VerifySettings:
        """Return these settings with paths in their usual form.

        Raises UsageError for values that no verify can have, and InputError where something would be written into a store.
        """
        shared = self.checked_places() | {"against": checked_paths(self.against)[0]}
        checked = replace(self, **shared, tables=given_place(self.tables, self.incremental) if self.tables else "")
        for option, place in (("--report", self.report), ("--work", self.work)):
            # A build behind a URI has a folder for this in its own DIR.
            if place and not (option == "--work" and is_work(place, checked.store)):
                check_apart(option, place, checked.stores)
        for option, place in (("--work", self.work), ("--tables", checked.tables)):
            check_no_store_around(f"{option} {showing.escape(place)}", place)
        check_place(checked.tables, ())
        if self.report:
            check_writable("--report", self.report, b'"command": "verify"', "a summary of verify")
        return checked

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the settings, those of the store first."""
        yield from super().problems()
        if not self.store:
            yield "rmq-reindex verify: name a STORE: see --help"
        if not 0 < self.sample <= 1:
            yield f"--sample {self.sample}: take a share above 0 and up to 1, such as 0.1"
        if self.against and (self.sample < 1 or self.only != PARTS or self.commitlogs):
            yield "--against: compares two whole stores: leave out --sample, --only and --commitlog"
        if self.against and self.store and files.canonical(self.against) == files.canonical(self.store):
            yield f"--against {showing.escape(self.against)}: is STORE itself: name another store"
        if self.incremental and (self.sample < 1 or self.against):
            yield "--incremental: reads what is new of a whole log: leave out --sample and --against"
        if bool(self.tables) != self.incremental:
            yield "--incremental and --tables go together: what is known of the log is kept below --tables"
        if self.recheck and not self.incremental:
            yield "--recheck: goes with --incremental: a full verify reads everything anyway"
        if self.engine != "local" and self.master and not self.master.startswith("local") and not self.work:
            yield "--work: name a folder that all executors share: the run keeps index items there for a while"

    @property
    def stores(self) -> tuple[str, ...]:
        """All folders that are only read."""
        return (*self.inputs, *([self.against] if self.against else []))

    def logs(self) -> list[Commitlog]:
        """Return the log of the store and, with --against, of the other. Raises InputError for what is no log."""
        stores = [files.absolute(store) for store in (self.store, self.against) if store]
        for store in stores:
            check_is_folder(store)
        roots = [self.roots, *map(roots_of, stores[1:])]
        for folders in roots if self.against else ():
            check_plain(folders, "and --against compares plain logs alone")
        return [list_segments(root, self.segment_size) for root in roots]

    def located(self) -> VerifySettings:
        """Return these settings with an absolute STORE: executors have working folders of their own."""
        return replace(self, store=files.absolute(self.store))

    def mending_build(self, store: str = "") -> BuildSettings:
        """Return the build whose result this verify expects, and which it advises where something differs.

        ``store`` is what the advice calls the store.
        """
        shared = {setting.name: getattr(self, setting.name) for setting in fields(StoreSettings)}
        return BuildSettings(**(shared | {"store": store or self.store}), out="DIR", on_damage="salvage")


# ---------------------------------------------------------------------------------------------------------------------- options
# The options of ``rmq-reindex verify``: those that it shares with a build, and its own.


def verify_settings(given: dict[str, Any]) -> VerifySettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError and InputError."""
    topics_config = given.get("topics_config", "")
    values = merged(given)
    return VerifySettings(**values, topics_config=topics_config).check()


parse_verify: Final = options.reader("verify", verify_settings)
"""Return the settings that the arguments behind ``verify`` make. Raises UsageError and InputError."""
