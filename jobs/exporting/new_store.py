"""A small store of its own that boots: a new commitlog of chosen records, and all that a broker derives from it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from rocketmq_reindex import files
from rocketmq_reindex.jobs.building.full import FullBuild
from rocketmq_reindex.jobs.building.inputs import as_store_shows
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.building.run import Build, Unrecorded
from rocketmq_reindex.jobs.building.summary import BuildResult
from rocketmq_reindex.jobs.engines.local import LocalEngines
from rocketmq_reindex.jobs.publishing.layout import SIZES, TOPICS
from rocketmq_reindex.jobs.store import config_databases
from rocketmq_reindex.jobs.store.folders import Notes
from rocketmq_reindex.jobs.store.settings import topics_config
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, ProgressListener, RefusedError
from rocketmq_reindex.storage_format.record import layout as r, making
from rocketmq_reindex.storage_format.record.making import Texts
from rocketmq_reindex.storage_format.scan.ranges import Segment
from rocketmq_reindex.storage_format.showing import escape
from rocketmq_reindex.udfs.exporting import sinks
from rocketmq_reindex.udfs.exporting.formats import NewRecords
from rocketmq_reindex.udfs.staging import StagingFolder

# ------------------------------------------------------------------------------------------------------------------------- log


def has_unit(sys_flag: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which records with these SYSFLAGs get a unit (bool), as ``record.columns.gives_unit`` says it of one."""
    return np.isin(sys_flag & r.FLAG_TRANSACTION_MASK, (r.TRANSACTION_NONE, r.TRANSACTION_COMMIT))


def _are_batches(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which records are batches (bool): one that has INNER_NUM alone is none."""
    return np.asarray(rows.column("sysFlag").to_numpy().astype(np.int64) & r.FLAG_INNER_BATCH != 0, np.bool_)


OFFSETS: Final = "offsets.parquet"
"""where each record was, and where it is now"""
_OLD: Final = {"consumeQueueOffset": "oldConsumeQueueOffset", "commitLogOffset": "oldCommitLogOffset"}
_OFFSET_ROWS: Final = 1 << 17
_BLANK, _MAGIC_V2 = (magic.to_bytes(4, "big", signed=True) for magic in (r.MAGIC_BLANK, r.MAGIC_V2))


class StoreSink:
    """Writes records one after another into a new commitlog below ``root``: each queue counts from 0 on.

    The table OFFSETS says where each record was before, if it was in a log.
    """

    def __init__(self, root: str, segment_size: int, like: BuildSettings, plain: Collection[str] = ()) -> None:
        """Begin a log for a broker as ``like`` says it. ``plain`` are topics that are known to have no batch queues."""
        self._root, self._segment_size, self._like, self._plain = root, segment_size, like, plain
        self._batch_topics = set(like.batch_topics)
        self._file: Any = None
        self._segment, self._end = -1, 0
        self._next: dict[tuple[str, int], int] = {}
        self._offsets: list[pa.RecordBatch] = []
        self._table: pq.ParquetWriter | None = None
        os.makedirs(os.path.join(root, layouts.COMMITLOG))

    @property
    def like(self) -> BuildSettings:
        """The settings, with the topics of all batches that were written."""
        return dataclasses.replace(self._like, batch_topics=tuple(sorted(self._batch_topics)))

    def add(self, encoded: NewRecords) -> None:
        """Append records. Raises InputError for one that fits into no segment, or is none that the broker takes."""
        records, rows, place = encoded.records, encoded.rows, encoded.place
        self._check_version(encoded)
        self._note_batches(rows, place)
        try:
            phy_offsets = making.places(records.sizes, self._end, self._segment_size)
        except ValueError as error:
            raise InputError(f"{place(int(records.sizes.argmax()))}: {error}: give a larger --segment-size") from None
        queue_offsets = self._queue_offsets(rows)
        wrong = making.settle(records, phy_offsets, queue_offsets)
        if wrong >= 0:
            topic = escape(rows.column("topic")[wrong].as_py(), 80)
            what = f"a record of topic {topic}, queue {rows.column('queueId')[wrong]}"
            raise InputError(f"{place(wrong)}: {what}: is none that a broker takes")
        self._append(records, phy_offsets)
        self._note_offsets(rows, phy_offsets, queue_offsets)

    def _check_version(self, encoded: NewRecords) -> None:
        records, rows, place = encoded.records, encoded.rows, encoded.place
        rules = self._like.rules
        if not rules.record_v2:
            magic = records.data[records.offsets[:-1, None] + np.arange(r.AT_MAGIC, r.AT_MAGIC + 4)]
            if (wrong := (magic == np.frombuffer(_MAGIC_V2, np.uint8)).all(axis=1)).any():
                row = int(wrong.argmax())
                topic = rows.column("topic")[row].as_py()
                what = f"topic {escape(topic, 80)}, {len(topic.encode()):,} bytes, a record of the second version"
                raise InputError(f"{place(row)}: {what}: RocketMQ {rules.version} reads none")
        if not rules.batch_queues and (batches := _are_batches(rows)).any():
            raise InputError(f"{place(int(batches.argmax()))}: is a batch of messages: RocketMQ {rules.version} has none")

    def _note_batches(self, rows: pa.RecordBatch, place: Callable[[int], str]) -> None:
        """Note the topics of batches. Raises InputError where a plain queue would get a gap behind one."""
        batches = _are_batches(rows)
        for row in np.flatnonzero(batches).tolist():
            topic, count = rows.column("topic")[row].as_py(), rows.column("batchSize")[row].as_py()
            if topic not in self._plain:
                self._batch_topics.add(topic)
            elif count > 1 and topic not in self._batch_topics:
                what = f"is a batch of {count:,} messages of topic {escape(topic, 80)}"
                raise InputError(f"{place(row)}: {what}: {TOPICS} says that it has no batch queue")

    def _queue_offsets(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the next offsets of the queues of some records (int64)."""
        topics = rows.column("topic").dictionary_encode()
        queues, counts = (
            rows.column("queueId").to_numpy().astype(np.int64),
            rows.column("batchSize").to_numpy().astype(np.int64),
        )
        # As CommitLog.getMessageNum has it, a batch, and what is in a batch queue, takes an offset for each of its messages.
        # A record without a unit takes none, and says 0.
        with_unit = has_unit(rows.column("sysFlag").to_numpy())
        in_batches = np.array([topic in self._batch_topics for topic in topics.dictionary.to_pylist()], np.bool_)
        counts = np.where(_are_batches(rows) | in_batches[topics.indices.to_numpy()], np.maximum(1, counts), 1)
        counts = np.where(with_unit, counts, 0)
        pairs = np.stack([topics.indices.to_numpy().astype(np.int64), queues])
        keys, codes = np.unique(pairs, axis=1, return_inverse=True)
        codes = codes.reshape(-1)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(counts[order])
        firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        lasts = np.append(firsts[1:], len(codes)) - 1
        out = np.empty(len(codes), np.int64)
        for key, first, last in zip(keys.T.tolist(), firsts.tolist(), lasts.tolist(), strict=True):
            queue = topics.dictionary[key[0]].as_py(), key[1]
            begin = self._next.get(queue, 0)
            before = int(ends[first] - counts[order[first]])
            out[order[first : last + 1]] = begin + ends[first : last + 1] - counts[order[first : last + 1]] - before
            self._next[queue] = begin + int(ends[last]) - before
        return np.where(with_unit, out, 0)

    def _append(self, records: Texts, phy_offsets: npt.NDArray[np.int64]) -> None:
        of_segment = phy_offsets // self._segment_size
        for number in np.unique(of_segment).tolist():
            if number != self._segment:
                self._close_segment(fill=self._segment >= 0)
                start = number * self._segment_size
                self._file = open(os.path.join(self._root, layouts.COMMITLOG, f"{start:020d}"), "xb")  # noqa: SIM115
                self._segment, self._end = number, start
            rows = np.flatnonzero(of_segment == number)
            low, high = int(records.offsets[rows[0]]), int(records.offsets[rows[-1] + 1])
            self._file.write(records.data[low:high].data)
            self._end += high - low

    def _close_segment(self, *, fill: bool) -> None:
        if self._file is None:
            return
        end = (self._segment + 1) * self._segment_size
        if fill:
            self._file.write((end - self._end).to_bytes(4, "big") + _BLANK)
        self._file.flush()
        # A broker maps whole segments. What is not written stays a hole.
        os.ftruncate(self._file.fileno(), self._segment_size)
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None

    def _note_offsets(
        self, rows: pa.RecordBatch, phy_offsets: npt.NDArray[np.int64], queue_offsets: npt.NDArray[np.int64]
    ) -> None:
        new = {"consumeQueueOffset": pa.array(queue_offsets), "commitLogOffset": pa.array(phy_offsets)}
        columns = {name: new.get(name, rows.column(name)) for name in ("topic", "queueId", *new)}
        columns |= {old: rows.column(name) for name, old in _OLD.items() if name in rows.schema.names}
        self._offsets.append(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))
        if sum(map(len, self._offsets)) >= _OFFSET_ROWS:
            self._write_offsets()

    def _write_offsets(self) -> None:
        if not self._offsets:
            return
        table = pa.Table.from_batches(self._offsets)
        if self._table is None:
            self._table = pq.ParquetWriter(os.path.join(self._root, OFFSETS), table.schema, compression="zstd")
        self._table.write_table(table)
        self._offsets.clear()

    def begin(self, _name: str) -> None:
        """Begin a segment of the old log: nothing of it is kept apart."""

    def end(self) -> list[sinks.WrittenFile]:
        """Return no file: what was written is not whole before the end."""
        return []

    def take_over(self, written: list[sinks.WrittenFile]) -> None:
        """Append the records that a task wrote (``sinks.RecordsSink``), and remove its file."""
        for file in written:
            for records in sinks.read_records(file.path):
                self.add(records)
            os.unlink(file.path)

    def finish(self) -> list[str]:
        """Close the files, and make them durable. Return nothing odd."""
        self._close_segment(fill=False)
        self._write_offsets()
        if self._table is not None:
            self._table.close()
        return []

    def abandon(self) -> None:
        """Close the files. Raises nothing."""
        for opened in (self._file, self._table):
            with contextlib.suppress(OSError, ValueError):
                if opened is not None:
                    opened.close()


# ---------------------------------------------------------------------------------------------------------------------- derived


def derive(
    staging: StagingFolder, like: BuildSettings, progress: ProgressListener, topics: Iterable[str], store: str = ""
) -> list[str]:
    """Build ConsumeQueues, index, checkpoint and a draft of config/topics.json beside the commitlog in the staging tree.

    Sizes, batch topics and version are those of ``like``. A consumequeue_ext is not made: a broker starts without it, too.
    Those of ``topics`` that the configuration of ``store`` has are taken from there. Return warnings. Raises ReindexError.
    """
    progress.begin("build", 0)
    out = files.join(staging.temporary, "derived")
    settings = dataclasses.replace(
        like, out=out, store="", commitlogs=(files.join(staging.tree, layouts.COMMITLOG),), write_topics=True, engine="local",
        allow_empty=True, cq_ext="none", filters=None, named=frozenset((*SIZES, "broker_version", "batch_topics", "engine")),
    )  # fmt: skip
    result = BuildResult()
    with LocalEngines("build") as engines, Reporter([]) as reporter:
        try:
            Build(
                settings.check(), reporter, engines, lambda made, _target, log, _: FullBuild(made, log), _unrecorded, result
            ).run()
        except RefusedError as error:
            # What it advises is of a build, and the log that it names is gone.
            reason = str(error).partition("\n")[0].partition(": give ")[0]
            raise InputError(f"no broker takes these messages as a log of their own: {reason}") from None
    for part in (*layouts.FOLDERS, layouts.CHECKPOINT):
        if os.path.exists(files.join(out, part)):
            os.rename(files.join(out, part), files.join(staging.tree, part))
    progress.end()
    return [*result.warnings, *_with_own_topics(files.join(staging.tree, TOPICS), store, topics)]


def _unrecorded(*_: object) -> Unrecorded:
    return Unrecorded()


def _with_own_topics(path: str, store: str, topics: Iterable[str]) -> list[str]:
    """Put the store's own entries into a draft of topics.json: types of messages, and queues without a message among these."""
    own, known = own_topics(store)
    unread = config_databases.unread_topics(store) if store else ""
    told = [f"{unread}: {TOPICS} of the new store has nothing that it says"] if unread else []
    if not own:
        return told
    try:
        if known is None:
            raise ValueError(own)
        with open(path, encoding="utf-8") as file:
            draft = json.load(file)
        table = draft["topicConfigTable"]
        for name in sorted((table.keys() | set(topics)) & known.keys()):
            most = max(int(known[name]["readQueueNums"]), int(table.get(name, known[name])["readQueueNums"]))
            table[name] = {**known[name], "topicName": name, "readQueueNums": most}
    except (OSError, InputError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return [*told, f"{escape(own)}: cannot be read: {TOPICS} of the new store is a draft"]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(draft, file, indent=1)
    return told


def own_topics(store: str) -> tuple[str, Mapping[str, Any] | None]:
    """Return the path of a store's configuration of topics ("": there is none), and its entries (None: it is broken)."""
    if store and (kept := config_databases.topics(store, Notes.silent())) is not None:
        return kept.path, kept.said["topicConfigTable"]
    own = topics_config(store) if store else ""
    if not own or files.entry_of(own).kind != files.FILE:
        return "", None
    try:
        table = json.loads(files.read_bytes(own, files.CONFIG_MAX))["topicConfigTable"]
    except (OSError, InputError, ValueError, LookupError, TypeError, RecursionError):
        return own, None
    return own, table if isinstance(table, dict) else None


def sink_like(root: str, store: str, commitlogs: Sequence[str], segments: Sequence[Segment]) -> StoreSink:
    """Return what writes a store below ``root`` with the sizes, the batch topics and the version that an old store shows."""
    like = as_store_shows(BuildSettings(out=files.absolute("."), store=store, commitlogs=tuple(commitlogs)))[0]
    segment_size = max((segment.segment_end - segment.start for segment in segments), default=like.segment_size)
    _, known = own_topics(store)
    return StoreSink(root, segment_size, like, (known or {}).keys() - set(like.batch_topics))
