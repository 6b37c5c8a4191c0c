"""Look at a store: its log, queues, index, checkpoint, lock and earlier builds; and what to run next."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building import advice
from rocketmq_reindex.jobs.building.options import batch_topics_of
from rocketmq_reindex.jobs.building.store_signs import brokers
from rocketmq_reindex.jobs.command.options import reader
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.describing import queues as describing_queues
from rocketmq_reindex.jobs.fetching import build as fetching_build, record as fetching_record
from rocketmq_reindex.jobs.publishing.layout import check_laid_out
from rocketmq_reindex.jobs.store import config_databases, contents, fitting, folders, owner, queue, settings
from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from rocketmq_reindex.storage_format import errors, layouts, showing, versions as storage_format_versions
from rocketmq_reindex.version import __version__

# ---------------------------------------------------------------------------------------------------------------------- options
# The settings that the options of ``rmq-reindex info`` make.


def info_settings(given: Mapping[str, Any]) -> settings.StoreSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    roots = given.get("commitlogs", ())
    if not given["store"]:
        raise errors.UsageError("rmq-reindex info: name a STORE: see --help")
    try:
        store, *roots = map(files.checked, (given["store"], *roots))
    except errors.InputError as error:
        raise errors.UsageError(f"rmq-reindex info: {showing.escape(str(error))}") from None
    for number in settings.repeated([files.canonical(root) for root in roots]):
        raise errors.UsageError(f"--commitlog {showing.escape(roots[number])}: is named twice: name it once")
    return settings.StoreSettings(store, commitlogs=tuple(roots), json=bool(given.get("json")))


parse_info: Final = reader("info", info_settings)
"""Return the settings that the arguments behind ``info`` make. Raises UsageError."""

# ----------------------------------------------------------------------------------------------------------------------- result
# What ``info`` knows of a store, as one JSON object or as text.

TOPICS_SHOWN: Final = 10
PROBLEMS_SHOWN: Final = 20


@dataclass(repr=False)
class InfoResult(Result):
    """What is in a store. ``exit_status`` is 0 also where something is missing: ``problems`` says so."""

    version: str = __version__
    """of rocketmq-reindex"""
    store: str = ""
    log: dict[str, Any] = field(default_factory=dict)
    """``segments``, ``bytes``, ``segment_size``, ``first_offset``, ``end_offset``, ``first_time``, ``last_time``,
    ``missing`` bytes between segments, and ``elsewhere`` for what a build wrote, which has no log of its own"""
    topics: list[dict[str, Any]] = field(default_factory=list)
    """``topic``, ``queues``, ``queues_looked_into``, ``messages``, ``first_time`` and ``last_time``; the largest first"""
    queues: int = 0
    queues_looked_into: int = 0
    light_unlisted: int = 0
    """light queues that were not looked into: ``topics`` lacks theirs"""
    messages: int = 0
    """of the queues that were looked into, or of the sample"""
    sampled: int = 0
    """records of the log that were looked at, where no queue has a file"""
    sizes: dict[str, int] = field(default_factory=dict)
    """what the files show: ``cq_file_size``, ``batch_cq_file_size``, ``hash_slots``, ``index_items``"""
    fits: dict[str, Any] = field(default_factory=dict)
    """``versions`` of RocketMQ that fit what the files show, newest first, and the ``signs``"""
    index_files: int = 0
    clean_stop: bool = True
    """there is no file ``abort``"""
    broker: str | None = None
    """who holds the store's lock; None for nobody"""
    build: dict[str, Any] | None = None
    """``parts`` that a fetch put there, by the digest of their build's manifest"""
    problems: list[str] = field(default_factory=list)
    """what is missing, stale, or cannot be read"""
    next: dict[str, Any] = field(default_factory=dict)
    """``why``, and the ``commands`` to run next"""
    seconds: float = 0.0
    exit: int = 0
    error: str | None = None

    def _facts(self) -> dict[str, str]:
        log = self.log
        if not log:
            return {"store": self.store}
        return {
            "store": self.store,
            "log": _log(log),
            "stored": f"{log['first_time']} to {log['last_time']}",
            "queues": f"{showing.counted(len(self.topics), 'topic')}, {showing.counted(self.queues, 'queue')}",
            "messages": f"{self.messages:,}",
            "version": " or ".join(self.fits["versions"]) or "not known",
            "broker": self.broker or "none runs here",
            "problems": "; ".join(self.problems) or "none",
            "next": " && ".join(self.next["commands"]) or self.next["why"],
        }


def lines_of(result: InfoResult) -> list[str]:
    """Return the lines that people read; none for a run that failed."""
    if result.error or not result.log:
        return []
    log, lines = result.log, [f"store    {result.store}", f"log      {_log(result.log)}"]
    if log["first_time"] or log["last_time"]:
        lines.append(f"stored   {log['first_time'] or 'not known'} to {log['last_time'] or 'not known'}")
    lines += _queues(result)
    sizes = ", ".join(f"{name} {value}" for name, value in result.sizes.items())
    lines += [f"sizes    segment_size {log['segment_size']}{', ' if sizes else ''}{sizes}"] if log["segments"] else []
    lines.append(f"version  {_fits(result.fits)}")
    lines.append(f"broker   {result.broker or 'none runs here'}; {_stop(result)}")
    if result.build:
        parts = result.build["parts"]
        lines.append(f"build    fetched: {', '.join(f'{part} of {digest[:12]}' for part, digest in parts.items())}")
    lines += [f"problem  {text}" for text in result.problems[:PROBLEMS_SHOWN]]
    if len(result.problems) > PROBLEMS_SHOWN:
        lines.append(f"problem  {len(result.problems) - PROBLEMS_SHOWN} more, with --json")
    lines.append(f"next     {result.next['why']}")
    return lines + [f"    run  {command}" for command in result.next["commands"]]


def _log(log: dict[str, Any]) -> str:
    if log["elsewhere"]:
        return "elsewhere: a build writes none, and the broker's store has it"
    length = f"{showing.counted(log['segments'], 'segment')}, {showing.counted(log['bytes'], 'byte')}"
    return f"{length}: offsets {log['first_offset']} to {log['end_offset']}"


def _stop(result: InfoResult) -> str:
    return "the last stop was clean" if result.clean_stop else "the last stop was not clean (a file abort)"


def _fits(fits: dict[str, Any]) -> str:
    why = ", ".join(fits["signs"])
    return f"{' or '.join(fits['versions'])} ({why})" if why else "not known: no file shows one"


def _queues(result: InfoResult) -> list[str]:
    topics, queues = showing.counted(len(result.topics), "topic"), showing.counted(result.queues, "queue")
    if result.sampled:
        first = f"queues   no files; in a sample of {showing.counted(result.sampled, 'record')}: {topics}, {queues}"
    else:
        looked, others = showing.counted(result.queues_looked_into, "queue"), result.queues_looked_into < result.queues
        light = f", and {result.light_unlisted:,} light ones are not listed" if result.light_unlisted else ""
        partial = f" in the first {looked}; others were not looked into{light}" if others else ""
        first = f"queues   {topics}, {queues}, {showing.counted(result.messages, 'message')}{partial}"
    shown = [f"         {_topic(topic, bool(result.sampled))}" for topic in result.topics[:TOPICS_SHOWN]]
    hidden = len(result.topics) - len(shown)
    return [first, *shown, *([f"         {showing.counted(hidden, 'more topic')}, with --json"] if hidden else [])]


def _topic(topic: dict[str, Any], sampled: bool) -> str:
    queues, looked = showing.counted(topic["queues"], "queue"), topic["queues_looked_into"]
    if not sampled and not looked:
        return f"{topic['topic']}: {queues}, not looked into"
    partly = f"{looked:,} of " if not sampled and looked < topic["queues"] else ""
    stored = f", stored {topic['first_time']} to {topic['last_time']}" if topic["first_time"] else ""
    return f"{topic['topic']}: {showing.counted(topic['messages'], 'message')} in {partly}{queues}{stored}"


# ------------------------------------------------------------------------------------------------------------------- store look

_FOREIGN, _DAMAGE, _QUEUES, _INDEX, _DLEDGER = range(5)
_LISTED: Final = 3
"""topics that a problem names"""
_INDEX_SIZES: Final = frozenset({"hash_slots", "index_items"})
_EVERY_SIZE: Final = _INDEX_SIZES | {"cq_file_size"}
"""what a build of these parts has to know, as ``InfoResult.sizes`` names it"""


class StoreLook:
    """One look at a store. Nothing is written, and no file is read whole."""

    def __init__(self, settings: settings.StoreSettings, result: InfoResult) -> None:
        self._settings, self._result, self._store = settings, result, settings.store
        self._notes = folders.Notes(self._problem, self._problem)
        self._wrong = set[int]()
        """what is wrong, as it decides what to run next"""
        self._misnamed: tuple[str, str] | None = None
        """a segment's file, and where it lies by the name that its records give it"""

    def _problem(self, text: str) -> None:
        self._result.problems.append(text)

    def run(self) -> None:
        """Fill the result. Raises InputError for what is no store."""
        result, store = self._result, self._store
        result.store = showing.escape(store)
        settings.check_is_folder(store)
        if not self._settings.commitlogs:
            settings.check_is_store(store)
            check_laid_out(store)
            settings.check_has_parts(store)
        else:
            settings.entries_of(self._settings.roots)
        result.clean_stop = files.entry_of(files.join(store, layouts.ABORT)).kind == files.ABSENT
        running, unknown = brokers(self._settings)
        result.broker = running[0] if running else None
        result.problems += unknown
        # Of what a build wrote no log is missing.
        gone = files.entry_of(files.join(store, layouts.COMMITLOG)).kind == files.ABSENT
        elsewhere = gone and not self._settings.commitlogs and self._fetch_of_build() is not None
        notes = folders.Notes.silent() if elsewhere else self._notes
        with closing(contents.StoreLog(self._settings.roots, notes)) as log:
            damage = list[str]()
            result.log = describing_queues.describe_log(log, damage, elsewhere)
            result.problems += damage
            if damage and (wrong := describing_queues.misnamed(log)):
                segment, told = wrong
                self._misnamed = segment.path, files.join(files.parent(segment.path), f"{told:020d}")
                self._problem(
                    f"{showing.escape(segment.path)}: its first record says that the segment begins at {told}: its name should "
                    f"be {told:020d}"
                )
            elif damage and log.segments:
                nothing = result.log["last_time"] is None and describing_queues.foreign(log.segments[0])
                self._wrong.add(_FOREIGN if nothing else _DAMAGE)
            self._wrong.update({_DLEDGER} if any(segment.lead for segment in log.segments) else ())
            self._look_at_queues(log)
            self._look_at_index(log)
            result.problems += owner.group_problems(store, log)
        self._look_at_checkpoint()
        if not files.is_remote(store):
            record = fetching_record.Record.read(store)
            result.problems += record.notes
            result.build = {"parts": {part: laid.build for part, laid in record.laid.items()}} if record.laid else None
        self._notes.close()
        result.next = self._next()

    def _look_at_queues(self, log: contents.StoreLog) -> None:
        result = self._result
        found = describing_queues.describe_queues(self._store, log, self._notes)
        result.topics, result.queues, result.messages = found.topics, found.queues, found.messages
        result.queues_looked_into, result.sampled, result.light_unlisted = found.looked_into, found.sampled, found.unlisted
        for name, folder, unit in fitting.QUEUES:
            if size := fitting.sampled_sizes(files.join(self._store, folder), unit).usual:
                result.sizes[name] = size
        self._wrong.update({_QUEUES} if found.broken and result.log["segments"] else ())
        if found.unread:
            self._problem(found.unread)
        elif result.log["segments"]:
            self._judge_queues(found, log)

    def _judge_queues(self, queues: describing_queues.QueueContents, log: contents.StoreLog) -> None:
        self._judge_batch_queues(log)
        if queues.last >= log.end:
            self._problem(queue.behind_log(queues.folder, f"units up to {queues.reach}", log.end))
        if not queues.looked_into:
            self._wrong.add(_QUEUES)
            self._problem(f"{layouts.QUEUES}/: no queue has a file")
        elif queues.looked_into == queues.queues:
            config = config_databases.topic_names(self._store)
            known = queues.names | (config or frozenset())
            behind = describing_queues.undispatched(log, queues.reach, known)
            if behind.lacking:
                self._wrong.add(_QUEUES)
            if text := behind.problem(queues, config is None):
                self._problem(text)

    def _judge_batch_queues(self, log: contents.StoreLog) -> None:
        """Look whether records of batch topics have files: only these topics' configuration says that they should."""
        try:
            batch = batch_topics_of(self._store, told := list[str]())
        except errors.InputError as error:
            self._problem(str(error))
            return
        for text in told:
            self._problem(text)
        self._settings = replace(self._settings, batch_topics=batch)
        folder = files.join(self._store, layouts.BATCH_QUEUES)
        if batch and next(fitting.queue_files(folder), None) is None and describing_queues.sampled_topics(log) & set(batch):
            self._wrong.add(_QUEUES)
            self._problem(f"{layouts.BATCH_QUEUES}/: no queue has a file, and the log has records of batch topics")

    def _look_at_index(self, log: contents.StoreLog) -> None:
        result, index_files = self._result, fitting.index_files(self._store)
        result.index_files = len(index_files)
        sizes = fitting.newest_index_sizes(index_files)
        if sizes is not None:
            result.sizes |= {"hash_slots": sizes.slots, "index_items": sizes.items}
        if not index_files and result.log["segments"]:
            self._wrong.add(_INDEX)
            self._problem("index/: has no IndexFile: no query by key finds anything, and no broker makes them anew")
        if text := fitting.index_ends_early(index_files, log):
            self._problem(text)
        signs = fitting.of_store(self._store, log, sizes)
        fits = fitting.fit(signs)
        result.fits = {"versions": list(fits.versions) if signs else [], "signs": [sign.text for sign in signs]}

    def _look_at_checkpoint(self) -> None:
        path = files.join(self._store, layouts.CHECKPOINT)
        if files.entry_of(path).kind != files.FILE:
            self._problem("checkpoint: is not there: the next start after a crash deletes the index")
            self._wrong.add(_INDEX)
            return
        try:
            times = owner.read_times(path)
        except (OSError, errors.InputError) as error:
            self._problem(f"{showing.escape(path)}: {showing.reason(error)}")
            return
        if not times.physic:
            self._problem("checkpoint: says nothing of the log: the next start after a crash reads all of it")

    def _next(self) -> dict[str, Any]:
        result, settings = self._result, self._settings
        if not result.log["segments"]:
            return self._without_log()
        if _FOREIGN in self._wrong:
            return self._with_a_log("what lies in the folder of the log is no commitlog: name the right folder")
        if result.broker:
            return {"why": "a broker runs here: stop it, or go on with a copy", "commands": []}
        if self._misnamed:
            path, meant = self._misnamed
            # Not where a file has that name; a bucket has no command for it.
            free = not files.is_remote(path) and files.entry_of(meant).kind == files.ABSENT
            renaming = [showing.shell(["mv", "-n", path, meant])] if free else []
            return {"why": "a segment has another segment's name: give it its own, and look again", "commands": [
                *renaming, showing.shell(advice.opening("info", settings, ""))]}  # fmt: skip
        if {_DLEDGER, _DAMAGE} <= self._wrong:
            copied = "the log is damaged: its node copies it from the leader, once dledger-.../ is moved away"
            return {"why": copied, "commands": []}
        if _DAMAGE in self._wrong:
            options, note = self._not_shown(_EVERY_SIZE)
            return {"why": f"the log is damaged: a repair loses least{note}", "commands": [
                " ".join([advice.repair(settings), *options])]}  # fmt: skip
        in_rocksdb = rocksdb_queues(self._store)
        if _QUEUES in self._wrong:
            kind = ["--consumequeue-type", "both" if in_rocksdb.beside else "rocksdb"] if in_rocksdb else []
            return self._build("build the derived files, and put them in place", _EVERY_SIZE, kind)
        if _INDEX in self._wrong:
            return self._build("build the index, and put it in place", _INDEX_SIZES, ["--only", "index,checkpoint"])
        no_problem = "" if result.problems else "no problem was seen; "
        if in_rocksdb or any(map(files.is_remote, settings.roots)):
            return self._verify(no_problem)
        version = ["--broker-version", versions[0]] if (versions := result.fits["versions"]) else []
        commands = [showing.shell([*advice.opening("preflight", settings, ""), *version])]
        return {"why": f"{no_problem}this says what the next start of the broker does", "commands": commands}

    def _verify(self, no_problem: str) -> dict[str, Any]:
        """Return the verify, for queues in RocksDB, which no start compares with the log, and for a store in a bucket."""
        why = f"{no_problem}this compares the queues, the index and the checkpoint with the log"
        return {"why": why, "commands": [showing.shell(advice.opening("verify", self._settings, ""))]}

    def _without_log(self) -> dict[str, Any]:
        if (fetch := self._fetch_of_build()) is not None:
            why = "this is what a build wrote, and no store: a fetch puts it into the broker's store (STORE)"
            return {"why": why, "commands": [showing.shell(fetch)]}
        return self._with_a_log("there is no log to build from: name its folder")

    def _with_a_log(self, why: str) -> dict[str, Any]:
        return {"why": why, "commands": [showing.shell(["rmq-reindex", "info", self._store, "--commitlog", "DIR"])]}

    def _fetch_of_build(self) -> list[str] | None:
        """Return the fetch of the build that was named in a store's place; None where none was.

        A repair has a log of its own: where that is gone its folder is a store like any other.
        """
        try:
            build = fetching_build.find_build(self._store)
        except (OSError, errors.InputError):
            return None
        if layouts.COMMITLOG in build.own:
            return None
        partial = ["--partial"] if build.log.left_out else []
        return ["rmq-reindex", "fetch", self._store, "--to", advice.STORE, *partial]

    def _build(self, why: str, sizes: frozenset[str], more: Sequence[str] = ()) -> dict[str, Any]:
        """Return the build with ``more`` options, of all parts or those that they name, and the fetch of it."""
        settings, out = self._settings, advice.place_beside(self._store, ".rebuilt")
        hidden_options, note = self._not_shown(sizes)
        partial = "--only" in more
        chosen_options = [*more] if partial else [*advice.options(settings), *more]
        build = [*advice.opening("build", settings, out), *chosen_options, *hidden_options]
        fetch = advice.fetching(settings, out, partial=partial)
        note += f"; {advice.STORE} is the broker's own store, on its disk" if files.is_remote(settings.store) else ""
        return {"why": f"{why}{note}", "commands": [showing.shell(build), showing.shell(fetch)]}

    def _not_shown(self, sizes: frozenset[str]) -> tuple[list[str], str]:
        """Return the options for what no file shows, with places for the broker's file and version, and what these are.

        ``sizes`` are those that the command needs. Beside a bare log config/ is made from it, too.
        """
        result, words, notes = self._result, list[str](), list[str]()
        if self._settings.batch_topics and "cq_file_size" in sizes:
            sizes |= {"batch_cq_file_size"}
        if sizes - result.sizes.keys():
            words += ["--broker-conf", advice.BROKER_CONF]
            notes.append(f"{advice.BROKER_CONF} is the broker's own file of settings")
        if not storage_format_versions.alike(result.fits["versions"]):
            words += ["--broker-version", advice.VERSION]
            notes.append(f"{advice.VERSION} its release")
        if _QUEUES in self._wrong and files.entry_of(settings.topics_config(self._store)).kind == files.ABSENT:
            words += ["--write-topics", "--write-delay"]
        return words, f"; {', '.join(notes)}: the files do not show them" if notes else ""
