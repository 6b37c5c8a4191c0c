"""Commands that avoid a loss, ready to paste into a shell."""

from __future__ import annotations

import os
from collections.abc import Iterable

from rocketmq_reindex.jobs.building.advice import fetching, opening, options, place_beside, repair, shell
from rocketmq_reindex.jobs.preflighting.settings import PreflightSettings
from rocketmq_reindex.jobs.preflighting.sizes import StoreSizes
from rocketmq_reindex.jobs.store.settings import DELAY_LEVELS, StoreSettings
from rocketmq_reindex.storage_format.versions import line_of


class Commands:
    """The builds, fetches and repairs of one store, with the options that its sizes need."""

    def __init__(self, settings: PreflightSettings, sizes: StoreSizes, batch: bool, lmq: bool) -> None:
        self._settings, self._sizes, self._batch, self._lmq = settings, sizes, batch, lmq
        self._timers: tuple[str, ...] = ()
        self._places = dict[tuple[str, str], str]()
        """by what goes there: two builds that differ may both be followed, one after the other"""

    def take_timers(self, own: Iterable[str]) -> None:
        """From now on a rebuild of all parts has timer files; ``own`` are those of the store, which it takes the place of."""
        self._timers = tuple(own)

    def rebuilt(self, only: str = "", until: int = -1, queue_order: str = "") -> str:
        """A build of all parts, or of those that are named, and the fetch that puts it into the store.

        With ``until`` it goes up to this offset of the log, where the broker cuts it, and passes over damage. ``queue_order``
        is its ``--queue-order`` where that is not the default.
        """
        store, asked = self._settings.store, f"{only} {until} {queue_order} {self._timers}"
        out = self._place(asked, ".rebuilt")
        words = self._command("build", out)
        words += ["--only", only] if only else []
        words += self._options()
        words += ["--queue-order", queue_order] if queue_order else []
        words += ["--on-damage", "salvage", "--until-offset", str(until)] if until >= 0 else []
        # fetch takes such a build only if it is told that something is left out.
        steps = [words, fetching(self._read, out, partial=bool(only) or until >= 0)]
        if self._timers and not only and until < 0:
            words += ["--write-delay"]
            words += ["--broker-conf", self._settings.broker_conf] if self._settings.broker_conf else []
            aside = self._place(asked, ".timers")
            steps[1:1] = [["mkdir", aside], ["mv", *(os.path.join(store, name) for name in self._timers), aside]]
        return " && ".join(map(shell, steps))

    def _place(self, asked: str, ending: str) -> str:
        """A place for the result of one command, the same whenever that is advised."""
        if (asked, ending) not in self._places:
            self._places[asked, ending] = place_beside(self._settings.store, ending, self._places.values())
        return self._places[asked, ending]

    def repaired(self) -> str:
        """A repair of the log, with the files derived from it; the replica is a placeholder."""
        return repair(self._read, out=place_beside(self._settings.store, ".repaired"))

    def verified(self) -> str:
        """A verify of the store, which tells what a rebuild would make anew."""
        return shell([*self._command("verify", ""), *self._options()])

    def _command(self, name: str, out: str) -> list[str]:
        return opening(name, self._read, out)

    def _options(self) -> list[str]:
        return options(self._read)

    @property
    def _read(self) -> StoreSettings:
        """The settings by which the store is to be read."""
        settings, sizes = self._settings, self._sizes
        return StoreSettings(
            settings.store,
            commitlogs=settings.commitlogs,
            broker_version=line_of(settings.release),
            named=frozenset(["broker_version"] if settings.named else ()),
            cq_file_size=sizes.files.queue,
            batch_cq_file_size=sizes.files.batch,
            hash_slots=sizes.hash_slots,
            index_items=sizes.index_items,
            delay_levels=settings.broker.delay_levels or DELAY_LEVELS,
            lmq=self._lmq,
            batch_topics=("",) if self._batch else (),
        )
