"""What to do about what a start loses, hides or refuses: sentences, and commands to paste into a shell."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketmq_reindex.jobs.building import advice as building_advice
from rocketmq_reindex.jobs.preflighting.model import StoreSizes
from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
from rocketmq_reindex.jobs.store.settings import StoreSettings
from rocketmq_reindex.storage_format.broker_start import loading as start_loading
from rocketmq_reindex.storage_format.showing import escape, shell
from rocketmq_reindex.storage_format.versions import line_of

RECOVER_MAX: Final = "commitLogRecoverMaxNum"
VERIFY: Final = (
    "verify the store, and do what it says: a rebuild makes units that are missing",
    "where verify finds none missing, these records have no place in their queue: a rebuild gives the same bytes",
)
OUT_OF_ORDER: Final = "verify the store, and do what it says: queue offsets repeat or leave gaps, and a build may refuse that"
NOT_READ: Final = "rebuild before the start; if the build refuses the log, run the repair that it names first"
IN_BROKERS_ORDER: Final = (
    (
        "rebuild with --queue-order broker: the recovery begins an empty file for a record below the end of a queue whose "
        "files are full, and in the broker's order most such records have a unit"
    ),
    (
        "if preflight says the same of the rebuilt store, its log ends with records that the broker's order leaves out, too: "
        "ask with --abort no what a start without the file abort does, and move that file away"
    ),
)
EXT_REBUILT: Final = ("rebuild before the start: that makes the units and consumequeue_ext anew",)
TIMERS_LOST: Final = (
    "restore config/timercheck, timerlog and timerwheel together from one backup",
    "or move them away and rebuild with --write-delay, which makes all three from the log",
)
TIMERS_ASTRAY: Final = "move the three timer files away and rebuild with --write-delay, which makes them from the log"
TIMERS_AGAIN: Final = "after a kill the broker's own store does the same; else restore the three timer files together"
RECHECK: Final = (
    "build with --consumequeue-type rocksdb, and fetch that; or start once with recheckReputOffsetFromCq=true in broker.conf: "
    "before it serves, the broker then dispatches the whole log again, the record at offset 0 too"
)
"""what mends queues in RocksDB; ``DefaultMessageStore.doRecheckReputOffsetFromCq`` finds no queue in its table"""
READ_FILES: Final = (
    "start with combineCQPreferCQType=default: the broker then reads the files; where these lack units, too, rebuild them"
)
DISPATCHED: Final = (
    "and start once with recheckReputOffsetFromCq=true in broker.conf: a node of 5.x else dispatches from what its own "
    "checkpoint calls committed on, and after an unclean stop cuts units of the last entries"
)
"""what else to do about records without a unit where DLedger has the log"""
_NODE_ALONE: Final = (
    "if no other node has these entries, rmq-reindex repair --to-plain makes a log without DLedger of all that is whole"
)
CONFIRMED: Final = "start once with enableControllerMode=false: the broker then confirms all in front of its last record"
OF_REFUSAL: Final = {
    "log-file-size": "give the broker.conf of this store; a short last segment starts when zeros fill it up: keep a copy of it",
    "log-file-name": "move it out of the commitlog",
    "queue-file-size": "give the broker.conf of this store, or rebuild",
    "queue-file-name": "move it out of the queue's folder",
    "ext-file-size": "give the broker.conf of this store, or rebuild",
    "ext-file-name": "move it out of the queue's folder in consumequeue_ext",
    "queue-type": "put the topic's attribute into config/topics.json, or move the folder away and rebuild with --topics-config",
    "index-folder": "move it out of index/",
    "checkpoint-not-a-file": "move it away and rebuild",
    "lock-not-a-file": "move it away",
    "lock-held": "stop the broker, or ask for a snapshot of the store",
    "abort-not-a-file": "move it away",
    "delay-levels": "set messageDelayLevel right",
    "queue-last-file-empty": "rebuild, and run preflight again: a start that failed may have left that file",
    "ext-unit": "rebuild, or start once with enableConsumeQueueExt=false: the broker then filters by the log alone",
    "checkpoint-logics-offset": "rebuild, or start once with enableAcceleratedRecovery=false",
    "record-too-large": building_advice.REPAIR_FIRST,
    "dispatch-stuck": "look first whether the disk of the missing segment is mounted; if it is lost, rebuild",
    "light-queue-offset": "rebuild, or start once with enableMultiDispatch=false: light queues then get no units",
    "combine-offsets": "start with combineCQPreferCQType=default: the broker then reads the files",
    "combine-too-far": "start with combineCQPreferCQType=default: the broker then reads the files",
    "epoch-file": "move it away where epochFileCheckpoint.bak is sound, which the broker then takes; else put back a backup",
    "rocksdb-check-point": "start once with enableAcceleratedRecovery=false",
    "confirmed-offset": CONFIRMED,
    "entry-file-size": f"give the broker.conf of this store; an index is made anew where its folder is moved away; else "
    f"{building_advice.COPIED}",
    "entry-file-name": "move it out of the folder of DLedger",
    "entry-files-apart": f"look first whether a disk is not mounted; else {building_advice.COPIED}",
    "entry-index": "move the index of DLedger away: the node makes it anew",
    "entries-cut-too-far": building_advice.COPIED,
    "rocksdb-two-places": "set useSeparateStorePathForRocksdbCQ as the broker had it, or move away the files that are not its",
}
"""what to do about a refusal, by its kind"""
REBUILT: Final = frozenset({
    "queue-file-size", "checkpoint-not-a-file", "queue-last-file-empty", "checkpoint-logics-offset", "dispatch-stuck",
    "light-queue-offset", "ext-file-size", "ext-unit",
})  # fmt: skip
"""refusals that a rebuild mends"""
CUT_SHORT: Final = "if it was cut, put the whole file back from a replica or a backup; else give the broker.conf of this store"


@dataclass(frozen=True)
class Loss:
    """One kind of loss, or of warning."""

    kind: str
    count: int
    """how many; -1 where it was not counted"""
    text: str
    advice: tuple[str, ...] = ()
    """what to do, each in a sentence"""
    commands: tuple[str, ...] = ()
    """commands that do it, to be pasted into a shell"""


class Advised(NamedTuple):
    """What avoids a loss: sentences, and commands to paste."""

    advice: tuple[str, ...]
    commands: tuple[str, ...]


class Commands:
    """The builds, fetches and repairs of one store, with the options that its sizes need."""

    def __init__(self, settings: PreflightSettings, sizes: StoreSizes, batch: bool, lmq: bool, is_node: bool = False) -> None:
        """``is_node``: the log is that of a node of DLedger."""
        self._settings, self._sizes, self._batch, self._lmq, self.is_node = settings, sizes, batch, lmq, is_node
        self._timers: tuple[str, ...] = ()
        self._places = dict[tuple[str, str], str]()
        """by what goes there: two builds that differ may both be followed, one after the other"""
        self._built = dict[str, str]()
        """the parts that are named, by command"""

    def take_timers(self, paths: Iterable[str]) -> None:
        """From now on a rebuild of all parts has timer files; ``paths`` are those of the store, which it takes the place of."""
        self._timers = tuple(paths)

    def rebuilt(self, only: str = "", until: int = -1, queue_order: str = "") -> str:
        """Return a build of all parts, or of those that are named, and the fetch that puts it into the store.

        With ``until`` it ends at this offset, where the broker cuts the log, and skips damage. ``queue_order``: its option.
        """
        store, build_key = self._settings.store, f"{only} {until} {queue_order} {self._timers}"
        out = self._place(build_key, ".rebuilt")
        parts = ["--only", only] if only else []
        words = [*building_advice.opening("build", self._read, out), *parts, *building_advice.options(self._read)]
        words += ["--queue-order", queue_order] if queue_order else []
        ext_size = self._settings.broker.cq_ext_file_size
        words += ["--cq-ext-file-size", str(ext_size)] if self._settings.has_ext and ext_size is not None else []
        words += ["--on-damage", "salvage", "--until-offset", str(until)] if until >= 0 else []
        # fetch takes such a build only if it is told that something is left out.
        steps = [words, building_advice.fetching(self._read, out, partial=bool(only) or until >= 0)]
        if self._timers and not only and until < 0:
            words += ["--write-delay"]
            words += ["--broker-conf", self._settings.broker_conf] if self._settings.broker_conf else []
            aside = self._place(build_key, ".timers")
            steps[1:1] = [["mkdir", aside], ["mv", *(os.path.join(store, name) for name in self._timers), aside]]
        command = " && ".join(map(shell, steps))
        self._built[command] = only
        return command

    def of_sizes(self, commands: Iterable[str]) -> list[str]:
        """Return a note on sizes that nothing shows, where one of these commands builds such files."""
        built = [self._built[command] for command in commands if command in self._built]
        unsized = [part for part in self._sizes.unsized if any(not only or part in only.split(",") for only in built)]
        return [] if self._settings.broker_conf else building_advice.of_sizes(unsized, "the build that is advised")

    def _place(self, build_key: str, ending: str) -> str:
        """Return a place for the result of one command, the same whenever that is advised."""
        if (build_key, ending) not in self._places:
            self._places[build_key, ending] = building_advice.place_beside(self._settings.store, ending, self._places.values())
        return self._places[build_key, ending]

    def repaired(self, *, extend: bool = False) -> str:
        """Return a repair of the log, with the files derived from it; the replica is a placeholder.

        ``extend``: with what the replica has behind the log's end.
        """
        out = building_advice.place_beside(self._settings.store, ".repaired")
        return building_advice.repair(self._read, out=out, more=("--extend",) if extend else ())

    def cut_to_log(self) -> str:
        """Return a repair of the log without a replica, which cuts the epochs of a controller group to it."""
        out = building_advice.place_beside(self._settings.store, ".cut")
        return building_advice.repair(self._read, out=out, replica=False)

    def mended(self) -> Advised:
        """Return what to do about a damaged log."""
        if self.is_node:
            return Advised((building_advice.COPIED, _NODE_ALONE), ())
        return Advised((building_advice.REPAIR_FIRST,), (self.repaired(),))

    def verified(self) -> str:
        """Return a verify of the store, which tells what a rebuild would make anew."""
        return shell([*building_advice.opening("verify", self._read, ""), *building_advice.options(self._read)])

    @property
    def _read(self) -> StoreSettings:
        """The settings by which the store is to be read."""
        settings, sizes = self._settings, self._sizes
        return StoreSettings(
            settings.store,
            commitlogs=settings.commitlogs or (settings.roots if settings.broker.dledger_node else ()),
            broker_version=line_of(settings.release),
            named=frozenset(["broker_version"] if settings.named else ()),
            cq_file_size=sizes.files.queue,
            batch_cq_file_size=sizes.files.batch,
            hash_slots=sizes.hash_slots,
            index_items=sizes.index_items,
            delay_levels=settings.broker.delay_levels,
            lmq=self._lmq,
            batch_topics=("",) if self._batch else (),
        )


# ---------------------------------------------------------------------------------------------------------------------- refused
# What to do about each reason for which a store does not load.


def refused(
    refusals: tuple[start_loading.Refusal, ...], loading: start_loading.Loading, commands: Commands, store: str, segment: int
) -> list[Loss]:
    """Return each kind of refusal once, with the number of files, the first of them, and what to do."""
    losses_found, newest = list[Loss](), max((entry.name for entry in loading.segments), default="")
    for kind in dict.fromkeys(refusal.kind for refusal in refusals):
        of_kind = [refusal for refusal in refusals if refusal.kind == kind]
        first = of_kind[0]
        others = f", and {len(of_kind) - 1:,} more" if len(of_kind) > 1 else ""
        text = f"{escape(first.path)}: {first.detail}{others}" if first.path else f"{first.detail}{others}"
        ready = (commands.rebuilt(),) if kind in REBUILT else commands.mended().commands if kind == "record-too-large" else ()
        advice: tuple[str, ...] = (OF_REFUSAL[kind],) if kind in OF_REFUSAL else ()
        cut = {_cut_off(refusal, newest, segment, store) for refusal in of_kind} if kind == "log-file-size" else {""}
        if cut == {"last"}:
            ready = (shell(["truncate", "-s", str(segment), os.path.join(store, first.path)]),)
        elif "inner" in cut:
            # Zeros would let the broker start, and consumers would miss what stood there without a word.
            mended = commands.mended()
            advice, ready = (CUT_SHORT, *mended.advice), mended.commands
        if kind == "queue-last-file-empty" and not os.path.lexists(os.path.join(store, first.path)):
            # The recovery begins it for a record that then gets no unit (ConsumeQueue.putMessagePositionInfo).
            advice, ready = IN_BROKERS_ORDER, (commands.rebuilt(queue_order="broker"),)
        losses_found.append(Loss(kind, len(of_kind), text, advice, ready))
    return losses_found


def _cut_off(refusal: start_loading.Refusal, newest: str, segment: int, store: str) -> str:
    """Return "last" for a segment that was only cut, behind the ``newest`` that loads, "inner" for one before it; else ""."""
    name, path = os.path.basename(refusal.path), os.path.join(store, refusal.path)
    is_cut = name.isdigit() and os.path.isfile(path) and 0 < os.path.getsize(path) < segment
    return "" if not is_cut else "last" if name > newest else "inner"
