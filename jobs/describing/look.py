"""Look at a store: its log, queues, index, checkpoint, lock and earlier builds; and what to run next."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from rocketmq_reindex.jobs.building import advice
from rocketmq_reindex.jobs.building.options import read_batch_topics
from rocketmq_reindex.jobs.building.running_broker import brokers
from rocketmq_reindex.jobs.describing.log_span import describe_log, foreign
from rocketmq_reindex.jobs.describing.queues import (
    Queues,
    Undispatched,
    configured,
    describe_queues,
    sampled_topics,
    undispatched,
)
from rocketmq_reindex.jobs.describing.summary import InfoSummary
from rocketmq_reindex.jobs.fetching.record import Record
from rocketmq_reindex.jobs.store import rocksdb
from rocketmq_reindex.jobs.store.checkpoint import read_times
from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.jobs.store.segments import check_has_parts, check_is_folder, check_is_store, entries_of
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.jobs.store.sizes import QUEUES, index_files, newest_index_sizes, queue_files, sampled_sizes
from rocketmq_reindex.jobs.store.versions import of_store
from rocketmq_reindex.storage_format.checks.fitting import fit
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.storage_format.plurals import counted
from rocketmq_reindex.storage_format.versions import alike
from rocketmq_reindex.udfs import files

_FOREIGN, _DAMAGE, _QUEUES, _INDEX = range(4)
_LISTED: Final = 3
"""topics that a problem names"""
_INDEX_SIZES: Final = frozenset({"hash_slots", "index_items"})
_EVERY_SIZE: Final = _INDEX_SIZES | {"cq_file_size"}
"""what a build of these parts has to know, as ``InfoSummary.sizes`` names it"""


class Look:
    """One look at a store. Nothing is written, and no file is read whole."""

    def __init__(self, settings: StoreSettings, summary: InfoSummary) -> None:
        self._settings, self._summary, self._store = settings, summary, settings.store
        self._notes = Notes(self._problem, self._problem)
        self._wrong = set[int]()
        """what is wrong, as it decides what to run next"""

    def _problem(self, text: str) -> None:
        self._summary.problems.append(text)

    def run(self) -> None:
        """Fill the summary. Raises InputError for what is no store."""
        summary, store = self._summary, self._store
        summary.store = escape(store)
        check_is_folder(store)
        if not self._settings.commitlogs:
            check_is_store(store)
            check_has_parts(store)
        else:
            entries_of(self._settings.roots)
        summary.clean_stop = files.entry_of(files.join(store, "abort")).kind == files.ABSENT
        running, unknown = brokers(self._settings)
        summary.broker = running[0] if running else None
        summary.problems += unknown
        with closing(StoreLog(self._settings.roots, self._notes)) as log:
            damage = list[str]()
            summary.log = describe_log(log, damage)
            summary.problems += damage
            if damage and log.segments:
                nothing = summary.log["last_time"] is None and foreign(log.segments[0].path)
                self._wrong.add(_FOREIGN if nothing else _DAMAGE)
            self._look_at_queues(log)
            self._look_at_index(log)
        self._look_at_checkpoint()
        if not files.is_remote(store):
            record = Record.read(store)
            summary.problems += record.notes
            summary.build = {"parts": {part: laid.build for part, laid in record.laid.items()}} if record.laid else None
        self._notes.close()
        summary.next = self._next()

    def _look_at_queues(self, log: StoreLog) -> None:
        summary = self._summary
        if in_rocksdb := rocksdb.rocksdb_queues(self._store):
            self._problem(f"{in_rocksdb}: these are not looked into")
        found = describe_queues(self._store, log, self._notes)
        summary.topics, summary.queues, summary.messages = found.topics, found.queues, found.messages
        summary.queues_looked_into, summary.sampled = found.looked_into, found.sampled
        for name, folder, unit in QUEUES:
            if size := sampled_sizes(files.join(self._store, folder), unit).usual:
                summary.sizes[name] = size
        if not in_rocksdb and summary.log["segments"]:
            self._judge_queues(found, log)

    def _judge_queues(self, found: Queues, log: StoreLog) -> None:
        self._judge_batch_queues(log)
        if not found.looked_into:
            self._wrong.add(_QUEUES)
            self._problem("consumequeue/: no queue has a file")
        elif found.looked_into == found.queues:
            config = configured(self._store)
            self._judge_end(undispatched(log, found.reach, found.names | (config or frozenset())), found.reach, config is None)

    def _judge_batch_queues(self, log: StoreLog) -> None:
        """Look whether records of batch topics have files: only these topics' configuration says that they should."""
        config, folder = files.join(self._store, "config", "topics.json"), files.join(self._store, "batchconsumequeue")
        if files.entry_of(config).kind != files.FILE:
            return
        try:
            batch = read_batch_topics(config)
        except UsageError as error:
            self._problem(str(error).removeprefix("--topics-config "))
            return
        self._settings = replace(self._settings, batch_topics=batch)
        if batch and next(queue_files(folder), None) is None and sampled_topics(log) & set(batch):
            self._wrong.add(_QUEUES)
            self._problem("batchconsumequeue/: no queue has a file, and the log has records of batch topics")

    def _judge_end(self, behind: Undispatched, reach: int, unsure: bool) -> None:
        """Say which records at the log's end have no unit. ``unsure``: nothing says which topics there should be."""
        if behind.lacking:
            self._wrong.add(_QUEUES)
            self._problem(
                f"consumequeue/: its last unit is of the record that ends at {reach}; "
                f"{counted(behind.lacking, 'record')} behind it, or more, have none"
            )
        elif behind.deleted and unsure:
            topics = ", ".join(map(escape, sorted(behind.topics)[:_LISTED]))
            of = counted(behind.deleted, "record") + (" is" if behind.deleted == 1 else " are")
            self._problem(
                f"consumequeue/: behind {reach} {of} of topics without a queue ({topics}): if nobody deleted these, a build "
                "makes their queues again"
            )

    def _look_at_index(self, log: StoreLog) -> None:
        summary, found = self._summary, index_files(self._store)
        summary.index_files = len(found)
        sizes = newest_index_sizes(found)
        if sizes is not None:
            summary.sizes |= {"hash_slots": sizes.slots, "index_items": sizes.items}
        if not found and summary.log["segments"]:
            self._wrong.add(_INDEX)
            self._problem("index/: has no IndexFile: no query by key finds anything, and no broker makes them anew")
        signs = of_store(self._store, log, sizes)
        fits = fit(signs)
        summary.fits = {"versions": list(fits.versions) if signs else [], "signs": [sign.text for sign in signs]}

    def _look_at_checkpoint(self) -> None:
        path = files.join(self._store, "checkpoint")
        if files.entry_of(path).kind != files.FILE:
            self._problem("checkpoint: is not there: the next start after a crash deletes the index")
            self._wrong.add(_INDEX)
            return
        try:
            times = read_times(path)
        except (OSError, InputError) as error:
            self._problem(f"{escape(path)}: {reason(error)}")
            return
        if not times.physic:
            self._problem("checkpoint: says nothing of the log: the next start after a crash reads all of it")

    def _next(self) -> dict[str, Any]:
        summary, settings = self._summary, self._settings
        if not summary.log["segments"]:
            return {"why": "there is no log to build from: name its folder", "commands": [
                advice.shell(["rmq-reindex", "info", self._store, "--commitlog", "DIR"])]}  # fmt: skip
        if _FOREIGN in self._wrong:
            return {"why": "what lies in the folder of the log is no commitlog: name the right folder", "commands": [
                advice.shell(["rmq-reindex", "info", self._store, "--commitlog", "DIR"])]}  # fmt: skip
        if summary.broker:
            return {"why": "a broker runs here: stop it, or go on with a copy", "commands": []}
        if _DAMAGE in self._wrong:
            more, note = self._not_shown(_EVERY_SIZE)
            return {"why": f"the log is damaged: a repair loses least{note}", "commands": [
                " ".join([advice.repair(settings), *more])]}  # fmt: skip
        if _QUEUES in self._wrong:
            return self._build("build the derived files, and put them in place", _EVERY_SIZE)
        if _INDEX in self._wrong:
            return self._build("build the index, and put it in place", _INDEX_SIZES, "index,checkpoint")
        versions = summary.fits["versions"]
        version = ["--broker-version", versions[0]] if versions else []
        told = [advice.shell([*advice.opening("preflight", settings, ""), *version])]
        seen = "" if summary.problems else "no problem was seen; "
        return {"why": f"{seen}this says what the next start of the broker does", "commands": told}

    def _build(self, why: str, sizes: frozenset[str], only: str = "") -> dict[str, Any]:
        """Return the build of all parts, or of ``only``, and the fetch that puts it in place."""
        settings, out = self._settings, advice.place_beside(self._store, ".rebuilt")
        more, note = self._not_shown(sizes)
        asked = ["--only", only] if only else advice.options(settings)
        build = [*advice.opening("build", settings, out), *asked, *more]
        fetch = advice.fetching(settings, out, partial=bool(only))
        return {"why": f"{why}{note}", "commands": [advice.shell(build), advice.shell(fetch)]}

    def _not_shown(self, sizes: frozenset[str]) -> tuple[list[str], str]:
        """Return the options for what no file shows, with places for the broker's file and version, and what these are.

        ``sizes`` are those that the command needs. Beside a bare log config/ is made from it, too.
        """
        summary, words, told = self._summary, list[str](), list[str]()
        if self._settings.batch_topics and "cq_file_size" in sizes:
            sizes |= {"batch_cq_file_size"}
        if sizes - summary.sizes.keys():
            words += ["--broker-conf", advice.BROKER_CONF]
            told.append(f"{advice.BROKER_CONF} is the broker's own file of settings")
        if not alike(summary.fits["versions"]):
            words += ["--broker-version", advice.VERSION]
            told.append(f"{advice.VERSION} its release")
        if _QUEUES in self._wrong and files.entry_of(files.join(self._store, "config", "topics.json")).kind == files.ABSENT:
            words += ["--write-topics", "--write-delay"]
        return words, f"; {', '.join(told)}: the files do not show them" if told else ""
