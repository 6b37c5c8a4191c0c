"""What an export takes of each batch of the log, in any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketmq_reindex.storage_format.record.message import FLAG_COMPRESSED, compression_of
from rocketmq_reindex.storage_format.record.selector import Selector
from rocketmq_reindex.storage_format.scan.ranges import Hole
from rocketmq_reindex.udfs.exporting import formats
from rocketmq_reindex.udfs.exporting.choice import Choice
from rocketmq_reindex.udfs.messages.batches import BODY, DAMAGE, UNPACKED_BYTES, counts_in, true_in, unpack_bodies
from rocketmq_reindex.udfs.messages.log_rows import Topics


def _each(texts: pa.Array, wanted: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Return for which texts something is true: it is asked once for each that is different."""
    coded = texts.dictionary_encode()
    known = np.array([*(wanted(text) for text in coded.dictionary.to_pylist()), False], np.bool_)
    found: npt.NDArray[np.bool_] = known[pc.fill_null(coded.indices, fill_value=len(known) - 1).to_numpy()]
    return found


def _selected(properties: pa.Array, selector: Selector) -> npt.NDArray[np.bool_]:
    """Return which properties (map<string, string>) fulfil a condition: it is asked once for values that are the same."""
    if not len(properties):
        return np.zeros(0, np.bool_)
    columns = [pc.map_lookup(properties, query_key=pa.scalar(name), occurrence="last").to_pylist() for name in selector.names]
    known: dict[tuple[str | None, ...], bool] = {}
    found = np.empty(len(properties), np.bool_)
    for row, values in enumerate(zip(*columns, strict=True) if columns else [()] * len(properties)):
        if values not in known:
            named = zip(selector.names, values, strict=True)
            known[values] = selector.matches({name: value for name, value in named if value is not None})
        found[row] = known[values]
    return found


Unread = Mapping[str, Mapping[int, int]]
"""of a group: by topic and queue the next offset that it is given"""


def _is_unread(batch: pa.RecordBatch, ends: npt.NDArray[np.int64], unread: Unread) -> npt.NDArray[np.bool_]:
    """Return which messages a group has not been given (bool). Of a queue without an offset it was given none.

    ``ends`` are the queue offsets behind each row's last message.
    """
    coded, queues = batch.column("topic").dictionary_encode(), batch.column("queueId").to_numpy()
    codes, found = coded.indices.to_numpy(), np.zeros(batch.num_rows, np.bool_)
    for code, topic in enumerate(coded.dictionary.to_pylist()):
        if (offsets := unread.get(topic)) is not None:
            rows = np.flatnonzero(codes == code)
            numbers, inverse = np.unique(queues[rows], return_inverse=True)
            found[rows] = ends[rows] > np.array([offsets.get(number, 0) for number in numbers.tolist()], np.int64)[inverse]
    return found


_PART_BYTES: Final = 2 << 20
"""Bytes of records that are encoded at once, unless one is longer: the texts on the way take several times that."""


class Chosen(NamedTuple):
    """What an export takes of one batch, or a part of it, and what it leaves out."""

    position: int
    """offset behind the last record that was looked at"""
    encoded: Any = None
    rows: int = 0
    size: int = 0
    """bytes of their records in the log"""
    topics: Mapping[str, int] = MappingProxyType({})
    left_out: Mapping[str, int] = MappingProxyType({})
    """records by kind"""
    packed: tuple[int, ...] = ()
    """offsets of those whose body could not be unpacked"""
    unsearched: tuple[int, ...] = ()
    """offsets of those that are left out for it, since nothing can be found in such a body"""
    damage: tuple[Hole, ...] = ()


@dataclass(frozen=True)
class Chooser:
    """Makes what an export writes of the batches of ``rr.messages``, which have stored bodies.

    ``unpack`` is the most bytes that an unpacked body may have. With ``stored`` bodies are written as they are stored, and
    only unpacked to look for something in them. ``encode`` None: the messages are counted.
    """

    choice: Choice
    encode: Callable[[pa.RecordBatch], Any] | None
    unpack: int
    stored: bool
    schema: pa.Schema
    only: npt.NDArray[np.int64] | None = None
    """offsets of the records of which alone some are taken; None: of all"""
    unread: Unread | None = None
    """where the group stands whose messages alone are taken; None: all"""
    waiting: npt.NDArray[np.int64] | None = None
    """offsets of delayed messages that are taken, too, as messages of the topic that they wait for"""

    def __call__(self, batch: pa.RecordBatch) -> Iterator[Chosen]:
        """Yield what is taken of a batch: in parts, where unpacked bodies need much memory."""
        ends = pc.add(batch.column("commitLogOffset"), batch.column(formats.SIZE))
        position = pc.max(ends).as_py() or 0
        if batch.num_rows and batch.column(DAMAGE).null_count < batch.num_rows:
            starts, sizes, reasons = (batch.column(name).to_pylist() for name in ("commitLogOffset", formats.SIZE, DAMAGE))
            yield Chosen(position, damage=tuple(map(Hole, [""] * len(starts), starts, sizes, reasons)))
            return
        taken, left_out = self.without_body(batch)
        # Of what is left out nobody knows whether the body has what is looked for.
        yield Chosen(position, left_out={} if self.choice.needs_body else left_out)
        batch = batch.filter(pa.array(taken))
        if BODY not in batch.schema.names:
            yield self._chosen(batch, position)
            return
        first = 0
        while first < batch.num_rows:
            sizes = np.cumsum(batch.column(formats.SIZE).to_numpy()[first:], dtype=np.int64)
            count = max(1, int(np.searchsorted(sizes, _PART_BYTES, side="right")))
            part, searched = self._unpacked(batch.slice(first, count))
            first += part.num_rows
            packed = tuple(part.column("commitLogOffset").filter(searched.is_null()).to_pylist())
            if self.choice.needs_body:
                yield self._chosen(part.filter(pa.array(self.by_body(searched))), position)._replace(unsearched=packed)
            else:
                yield self._chosen(part, position)._replace(packed=packed)

    def without_body(self, batch: pa.RecordBatch) -> tuple[npt.NDArray[np.bool_], Counter[str]]:
        """Return which rows are taken as far as all but the body tells (bool), and how many are left out only by their kind."""
        choice = self.choice
        wants = Topics(choice.topics).wants
        is_named = _each(batch.column("topic"), wants)
        taken = is_named | _each(batch.column("realTopic"), wants)
        first = batch.column("consumeQueueOffset").to_numpy()
        ends = first + np.maximum(1, batch.column("batchSize").to_numpy())
        if choice.queue is not None:
            # Of what waits for a named topic it is the queue that it waits for.
            meant = pc.coalesce(batch.column("realQueueId"), batch.column("queueId"))
            taken &= np.where(is_named, batch.column("queueId").to_numpy(), meant.to_numpy()) == choice.queue
            taken &= (first < choice.end_offset) & (ends > choice.begin_offset)
        of_kind = _each(batch.column("kind"), choice.taken_kinds.__contains__)
        is_waiting = np.zeros(batch.num_rows, np.bool_)
        if self.waiting is not None:
            is_waiting = np.isin(batch.column("commitLogOffset").to_numpy(), self.waiting)
        if self.unread is not None:
            for_group = _each(batch.column("realTopic"), self.unread.__contains__)
            taken &= _is_unread(batch, ends, self.unread) | (is_waiting & for_group)
        if self.only is not None:
            taken &= np.isin(batch.column("commitLogOffset").to_numpy(), self.only)
        if choice.tags:
            taken &= _each(batch.column("tags"), choice.tags.__contains__)
        if choice.selector is not None:
            rows = np.flatnonzero(taken)
            taken[rows] = _selected(batch.column("properties").take(pa.array(rows)), choice.selector)
        of_kind |= is_waiting
        return taken & of_kind, Counter(batch.column("kind").filter(pa.array(taken & ~of_kind)).to_pylist())

    def by_body(self, bodies: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which bodies (binary, unpacked) have what is looked for (bool); null has nothing."""
        choice, taken = self.choice, np.ones(len(bodies), np.bool_)
        if choice.text is not None:
            taken &= true_in(pc.match_substring(bodies, choice.text.encode()))
        if choice.regex is not None:
            texts = formats.utf8(bodies)
            by_text = pc.match_substring_regex(texts, choice.regex)
            if texts.null_count:
                by_text = pc.coalesce(by_text, pc.match_substring_regex(bodies, choice.regex.encode()))
            taken &= true_in(by_text)
        return taken

    def _unpacked(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the first rows with the bodies that are written, and what may be searched: null where it does not unpack."""
        stored, flags = rows.column(BODY), rows.column("sysFlag").to_numpy().astype(np.int64)
        if self.stored and not self.choice.needs_body:
            searched = stored
        else:
            searched = unpack_bodies(stored, flags, self.unpack, UNPACKED_BYTES)
        count = len(searched)
        rows, stored, flags = rows.slice(0, count), stored.slice(0, count), flags[:count]
        is_packed = flags & FLAG_COMPRESSED != 0
        if not self.stored:
            is_packed &= np.asarray(searched.is_null())
            rows = rows.set_column(rows.schema.names.index(BODY), BODY, pc.coalesce(searched, stored))
        kinds = pa.nulls(count, pa.string())
        if is_packed.any():
            known = [compression_of(flag) if packed else None for flag, packed in zip(flags.tolist(), is_packed, strict=True)]
            kinds = pa.array(known, pa.string())
        return rows.append_column(formats.PACKED, kinds), searched

    def _chosen(self, rows: pa.RecordBatch, position: int) -> Chosen:
        topics = counts_in(rows.column("topic"))
        size = pc.sum(rows.column(formats.SIZE)).as_py() or 0
        encoded = None
        if self.encode is not None and rows.num_rows:
            # A slice shares its buffers with what is left out: encoders want none.
            encoded = self.encode(rows.select(self.schema.names).take(pa.array(np.arange(rows.num_rows))))
        return Chosen(position, encoded, rows.num_rows, size, Counter(topics))
