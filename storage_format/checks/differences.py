"""The kinds of difference between a log and what is derived from it, and a tally of them: counts, and a few examples of each.

The names of the kinds are fixed: scripts use them. Each kind says which parts ``rmq-reindex build`` has to make anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.showing import counted, form

EXAMPLES_MAX: Final = 10
"""Examples that are kept of each kind; the others are only counted."""
QUEUES, INDEX, CHECKPOINT, LOG = layouts.QUEUES, layouts.INDEX, layouts.CHECKPOINT, "log"
PARTS: Final = (QUEUES, INDEX, CHECKPOINT, LOG)


def no_differences(pending: int) -> str:
    """Return the verdict on a store without differences, of whose records ``pending`` have no unit all the same."""
    if not pending:
        return "no differences"
    whose = f"{counted(pending, 'pending record')} at a queue's end {form(pending, 'has', 'have')} no unit"
    return f"no differences, but {whose}: no consumer gets {form(pending, 'it', 'them')}"


class Kind(NamedTuple):
    """One kind: ``part`` is what ``verify --only`` calls it, ``mend`` the parts of a build that mends it, ``advice`` what else
    to do."""

    part: str
    text: str
    mend: tuple[str, ...] = ()
    advice: str = ""


_QUEUE, _INDEX, _CHECKPOINT = (QUEUES,), (INDEX, CHECKPOINT), (CHECKPOINT,)
_ALL = (QUEUES, INDEX, CHECKPOINT)
_BOTH = "the files were compared with the log: where nothing else was found, RocksDB is wrong"
_EACH = "verify each store by itself: that tells which one is wrong"
_TIMERS_ANEW = (
    "move timerlog, timerwheel and config/timercheck away, and build with --write-delay, which makes them from the log"
)
KINDS: Final = {
    "log-damage": Kind(LOG, "bytes of the log that are no record", _ALL, "with --on-damage salvage or stop"),
    "log-segment-missing": Kind(LOG, "segment of the log missing", _ALL, "with --on-damage salvage or stop"),
    "log-segment-short": Kind(
        LOG, "last segment shorter than the others: a broker does not load it", (), "append zeros up to the others' size"
    ),
    "log-out-of-line": Kind(LOG, "record whose queue offset does not fit its queue", _ALL, "with --on-damage salvage"),
    "log-queue-gaps": Kind(
        LOG, "missing queue offsets, more than a build fills by itself", (), "build with a higher --max-fill"
    ),
    "epoch-file": Kind(
        LOG,
        "epochFileCheckpoint with a fault: the broker of a controller group may not start, or forget epochs",
        (),
        "copy epochFileCheckpoint.bak over it if that has the same epochs, else move both away on a slave",
    ),
    "epoch-offset": Kind(
        LOG,
        "epoch that begins where the log has no record, nor its end: replicas are not the same up to there",
        (),
        "compare the log with the master's by --against",
    ),
    "timer-beyond-log": Kind(
        LOG,
        "unit of timerlog that is still to be read, and whose message lies behind the log's end",
        (),
        _TIMERS_ANEW,
    ),
    "timer-other-record": Kind(
        LOG,
        "unit of timerlog that is still to be read, and leads to another record than its message, or to none",
        (),
        _TIMERS_ANEW,
    ),
    "queue-unit-missing": Kind(QUEUES, "record without a unit at its queue offset", _QUEUE),
    "queue-unit-extra": Kind(QUEUES, "unit where the log has none for the queue", _QUEUE),
    "queue-unit-no-record": Kind(QUEUES, "unit that points to no good record", _QUEUE),
    "queue-unit-other": Kind(QUEUES, "unit that points to another record than that of its queue offset", _QUEUE),
    "queue-unit-size": Kind(QUEUES, "unit with the wrong size", _QUEUE),
    "queue-unit-tags": Kind(QUEUES, "unit with the wrong tagsCode", _QUEUE),
    "queue-ext": Kind(
        QUEUES, "unit of consumequeue_ext with another store time, or without bits of a group that takes the message", _QUEUE
    ),
    "queue-unit-time": Kind(QUEUES, "unit in RocksDB with another store time than its record's", _QUEUE),
    "queue-end": Kind(
        QUEUES, "end of a queue in RocksDB that has no unit, or names a later place of the log than that", _QUEUE
    ),
    "rocksdb-unit-missing": Kind(QUEUES, "unit of ConsumeQueue files that RocksDB lacks", (), _BOTH),
    "rocksdb-unit-extra": Kind(QUEUES, "unit in RocksDB that ConsumeQueue files lack", (), _BOTH),
    "rocksdb-unit-differs": Kind(QUEUES, "unit in RocksDB that differs from that in ConsumeQueue files", (), _BOTH),
    "queue-unit-batch": Kind(QUEUES, "unit of a batch queue with wrong offsets, count or time", _QUEUE),
    "queue-shifted": Kind(QUEUES, "units shifted from a queue offset on", _QUEUE),
    "queue-pre-blank": Kind(QUEUES, "bytes before a queue's first unit that are not pre-blank, or pre-blank elsewhere", _QUEUE),
    "queue-file-size": Kind(QUEUES, "file of another size: a broker does not start on it", _QUEUE),
    "queue-file-name": Kind(QUEUES, "file whose name is no multiple of its size: a broker finds other units there", _QUEUE),
    "queue-file-stray": Kind(QUEUES, "what is no file of a queue among its files: a broker does not start on it", _QUEUE),
    "queue-file-empty": Kind(
        QUEUES, "file without a unit at a queue's end: 5.3 and 5.4 count a message too many, or do not start", _QUEUE
    ),
    "index-item-missing": Kind(INDEX, "key of a record without an item: no query finds it", _INDEX),
    "index-tag-missing": Kind(
        INDEX, "TAGS of a record without an item, which a broker of this version writes: no query by tag finds it", _INDEX
    ),
    "index-tag-extra": Kind(INDEX, "item of a record's TAGS, which a broker of this version does not write", _INDEX),
    "index-item-extra": Kind(INDEX, "item for which no record has a key", _INDEX),
    "index-item-hash": Kind(INDEX, "item with the wrong hash", _INDEX),
    "index-item-time": Kind(INDEX, "item with the wrong time", _INDEX),
    "index-chain-broken": Kind(INDEX, "index slot or link that does not lead to the next item: keys are not found", _INDEX),
    "index-chain-circular": Kind(INDEX, "circle of links: a broker's lookup never ends", _INDEX),
    "index-header": Kind(INDEX, "header field that is not what the items, or the file before, say", _INDEX),
    "index-order": Kind(INDEX, "files, or items in a file, not in the order of the log", _INDEX),
    "index-stray": Kind(INDEX, "bytes that are not zero where no item should be", _INDEX),
    "index-file-size": Kind(INDEX, "file of another size than its slots and items need", _INDEX),
    "index-file-name": Kind(INDEX, "no IndexFile by its name: a broker passes over it; on a folder 5.3 may not start", _INDEX),
    "checkpoint-missing": Kind(CHECKPOINT, "no checkpoint: a crash costs the whole index", _CHECKPOINT),
    "checkpoint-size": Kind(CHECKPOINT, "not 4,096 bytes", _CHECKPOINT),
    "checkpoint-bytes": Kind(CHECKPOINT, "negative fields, or bytes behind the fields", _CHECKPOINT),
    "checkpoint-stale": Kind(CHECKPOINT, "older than the last unit: after a crash more is dispatched again", _CHECKPOINT),
    "checkpoint-ahead": Kind(CHECKPOINT, "newer than the last record: units lost in a crash stay lost", _CHECKPOINT),
    "checkpoint-index": Kind(CHECKPOINT, "the next crash deletes IndexFiles that are newer than it says", _INDEX),
    "checkpoint-index-ahead": Kind(CHECKPOINT, "later than the IndexFile being filled: a crash leaves that torn", _INDEX),
    "checkpoint-master": Kind(CHECKPOINT, "masterFlushedOffset lies where no log reaches", _CHECKPOINT),
    "checkpoint-confirm": Kind(CHECKPOINT, "confirmPhyOffset lies behind the log's end", _CHECKPOINT),
    "checkpoint-offset-ahead": Kind(
        CHECKPOINT, "logicsPhysicalOffset lies behind the last record: units lost in a crash stay lost", _CHECKPOINT
    ),
    "abort-file": Kind(
        CHECKPOINT, "a file abort: the broker runs, or did not stop cleanly", (), "stop the broker; after a build remove it"
    ),
    "against-log-differs": Kind(LOG, "bytes of the log that differ", (), _EACH),
    "against-log-ends": Kind(LOG, "the log of one store goes on where the other's ends", (), "the shorter one is behind"),
    "against-queue-file": Kind(QUEUES, "ConsumeQueue file that only one store has", (), _EACH),
    "against-queue-unit": Kind(QUEUES, "units that differ", (), _EACH),
    "against-index-file": Kind(INDEX, "IndexFile that only one store has", (), _EACH),
    "against-index-item": Kind(INDEX, "IndexFiles that differ", (), _EACH),
}
"""Those that begin with against- come from ``verify A --against B`` only, all others from a store by itself."""

UNCHECKED: Final = {
    "FLAG": "nothing",
    "SYSFLAG": "the sizes of the hosts, and whether the record gives a unit",
    "BORNTIMESTAMP": "nothing",
    "BORNHOST": "nothing",
    "STORETIMESTAMP": "its second, where the record has an index item; at the log's end the checkpoint",
    "STOREHOST": "nothing",
    "RECONSUMETIMES": "nothing",
    "PREPAREDTRANSACTIONOFFSET": "nothing",
    "properties": "what decides on units and items: KEYS, UNIQ_KEY, TAGS, DELAY and the like",
}
"""Fields of a record that no checksum covers, unless it has ``__CRC32#``, and what of each a comparison sees all the same."""


@dataclass(frozen=True, order=True)
class Example:
    """One place: a path in the store, a number there (queue offset, item, byte, as the text says), and what is wrong."""

    where: str
    at: int
    text: str

    @property
    def among(self) -> str:
        """The queue's folder, or the file: ``consumequeue/TOPIC/QUEUE``, ``index/FILE``."""
        return "/".join(self.where.split("/", 3)[:3])


def spread(examples: Iterable[Example], count: int = EXAMPLES_MAX) -> list[Example]:
    """Return ``count`` of the examples, by path and number: one of each queue or file, then a second of each, and so on.

    What is left out of parts is left out of the whole, too, so parts may be spread before they are put together.
    """
    ranks: dict[str, int] = {}
    ranked = []
    for example in sorted(examples):
        rank = ranks[example.among] = ranks.get(example.among, -1) + 1
        ranked.append((rank, example))
    return [example for _, example in sorted(ranked)[:count]]


def _is_behind(example: Example, held: list[Example]) -> bool:
    """Return whether the example would come behind all of a full list. Where there are very many, most do."""
    if len(held) < EXAMPLES_MAX:
        return False
    among, last = example.among, held[-1]
    rank = sum(other <= example and other.among == among for other in held)
    last_rank = sum(other.among == last.among for other in held) - 1
    return (rank, example) >= (last_rank, last)


@dataclass
class Tally:
    """Counts by kind, and EXAMPLES_MAX examples of each, spread over queues and files. Memory does not grow with findings."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Example]] = field(default_factory=dict)

    def add(self, kind: str, count: int, path: str, at: int, text: str) -> None:
        """Count ``count`` of a kind, the first of them at the number ``at`` of the path ``path``. Raises KeyError for no
        kind."""
        if count:
            self._take(kind, count, [Example(path, at, text)])

    def merge(self, other: Tally) -> None:
        """Add the counts and the examples of another tally."""
        for kind, count in other.counts.items():
            self._take(kind, count, other.examples[kind])

    def _take(self, kind: str, count: int, examples: Iterable[Example]) -> None:
        if kind not in KINDS:
            raise KeyError(kind)
        self.counts[kind] = self.counts.get(kind, 0) + count
        held = self.examples.get(kind, [])
        new = [example for example in examples if not _is_behind(example, held)]
        if new or not held:
            self.examples[kind] = spread([*held, *new])

    def replace(self, kind: str, example: Example) -> None:
        """Keep one example instead of all of a kind."""
        self.examples[kind] = [example]

    @property
    def total(self) -> int:
        """The differences of all kinds."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """Return counts and examples as JSON takes them: {kind: [count, [[where, at, text], ...]]}."""
        return {
            kind: [count, [[e.where, e.at, e.text] for e in self.examples[kind]]] for kind, count in sorted(self.counts.items())
        }

    @classmethod
    def from_json(cls, differences: Mapping[str, Any]) -> Tally:
        """Return the inverse of ``to_json``."""
        tally = cls()
        for kind, (count, examples) in differences.items():
            tally._take(kind, count, [Example(*example) for example in examples])
        return tally
