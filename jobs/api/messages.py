"""The result of ``query``: messages, also as tables."""

from __future__ import annotations

import copy
import datetime as dt
import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.querying.shown import preview, to_json
from rocketmq_reindex.storage_format.showing import counted, printable
from rocketmq_reindex.udfs.times import EPOCH

if TYPE_CHECKING:
    import pyarrow as pa

# ---------------------------------------------------------------------------------------------------------------- message_table
# The messages of a result as a table: of Arrow, of pandas, and as HTML for notebooks.

ROWS_SHOWN: Final = 20
"""messages in the HTML; more would fill a notebook"""
TEXT_SHOWN: Final = 80
"""characters of a text in the HTML"""


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return messages as ``query --json`` gives them, as an Arrow table. Its columns are always the same."""
    import numpy as np
    import pyarrow as pa

    from rocketmq_reindex.udfs.messages.batches import times

    def numbers(name: str) -> pa.Array:
        return pa.array([row.get(name) for row in rows], pa.int64())

    def texts(name: str) -> pa.Array:
        return pa.array([_text(row.get(name)) for row in rows], pa.string())

    def clock(name: str) -> pa.Array:
        return times(np.array([row[name] for row in rows], np.int64))

    keys = [[_text(key) for key in row["keys"]] for row in rows]
    properties = [[(_text(name), _text(value)) for name, value in row["properties"].items()] for row in rows]
    return pa.table(
        {
            "topic": texts("topic"),
            "queue_id": numbers("queueId"),
            "queue_offset": numbers("queueOffset"),
            "served_at": numbers("servedAt"),
            "phy_offset": numbers("physicalOffset"),
            "size": numbers("size"),
            "store_time": clock("storeTimestamp"),
            "store_host": texts("storeHost"),
            "born_time": clock("bornTimestamp"),
            "born_host": texts("bornHost"),
            "msg_id": texts("msgId"),
            "unique_key": texts("uniqueKey"),
            "keys": pa.array(keys, pa.list_(pa.string())),
            "tags": texts("tags"),
            "reconsume_times": numbers("reconsumeTimes"),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
            "body_length": numbers("bodyLength"),
            "body_format": texts("bodyFormat"),
            "body": texts("body"),
        }
    )


def _text(value: Any) -> str | None:
    """Return a text that Arrow takes: a value of JSON is written as JSON, and half of a surrogate pair becomes ``?``."""
    if value is None:
        return None
    text = value if isinstance(value, str) else to_json(value)
    return text.encode("utf-8", "replace").decode("utf-8")


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the first ROWS_SHOWN messages as an HTML table, and how many more there are. All texts are escaped."""
    if not rows:
        return ""
    heads = ("topic", "queue_id", "queue_offset", "phy_offset", "store_time", "unique_key", "keys", "tags", "body")
    lines = [f"<tr>{''.join(f'<th>{head}</th>' for head in heads)}</tr>"]
    for row in rows[:ROWS_SHOWN]:
        keys = " ".join(row["keys"])
        values = (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["storeTime"], row["uniqueKey"])
        shown = [_shown(value) for value in (*values, keys, row["tags"])]
        shown.append(html.escape(preview(dict(row), TEXT_SHOWN)) if "body" in row else "")
        lines.append(f"<tr>{''.join(f'<td>{text}</td>' for text in shown)}</tr>")
    hidden = len(rows) - ROWS_SHOWN
    tail = f"<p>{counted(hidden, 'more message')}</p>" if hidden > 0 else ""
    return f"<table>{''.join(lines)}</table>{tail}"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return html.escape(printable(text[:TEXT_SHOWN]) + ("..." if len(text) > TEXT_SHOWN else ""))


# --------------------------------------------------------------------------------------------------------------------- messages


@dataclass(frozen=True, repr=False)
class FoundMessage:
    """One message of a store, as ``org.apache.rocketmq.common.message.MessageExt`` of RocketMQ 5.3.3 has it.

    ``fields`` has everything, by the names that RocketMQ's tools use: ``message["storeHost"]``.
    """

    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def topic(self) -> str:
        """The topic."""
        return str(self.fields["topic"])

    @property
    def queue_id(self) -> int:
        """The number of the queue."""
        return int(self.fields["queueId"])

    @property
    def queue_offset(self) -> int:
        """The offset in the queue, as the record says."""
        return int(self.fields["queueOffset"])

    @property
    def phy_offset(self) -> int:
        """The offset of the record in the commitlog, in bytes."""
        return int(self.fields["physicalOffset"])

    @property
    def store_timestamp(self) -> int:
        """When the broker stored the message: milliseconds since 1970."""
        return int(self.fields["storeTimestamp"])

    @property
    def store_time(self) -> dt.datetime | None:
        """When the broker stored the message, in UTC. None where no calendar has the record's number."""
        return _time(self.store_timestamp)

    @property
    def born_time(self) -> dt.datetime | None:
        """When the producer made the message, in UTC, by the producer's clock. None where no calendar has the number."""
        return _time(int(self.fields["bornTimestamp"]))

    @property
    def msg_id(self) -> str:
        """The broker's offset id: the store host and ``phy_offset``."""
        return str(self.fields["msgId"])

    @property
    def unique_key(self) -> str | None:
        """The client's unique id, which RocketMQ's clients show as the message id. None where the message has none."""
        key = self.fields["uniqueKey"]
        return None if key is None else str(key)

    @property
    def keys(self) -> list[str]:
        """The keys."""
        return list(self.fields["keys"])

    @property
    def tags(self) -> str | None:
        """The tags."""
        tags = self.fields["tags"]
        return None if tags is None else str(tags)

    @property
    def properties(self) -> dict[str, str]:
        """All properties of the message."""
        return dict(self.fields["properties"])

    @property
    def body(self) -> Any:
        """The body as ``body=`` asked for it: a text, a hex text, or a JSON value. None with ``body="none"``."""
        return self.fields.get("body")

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``rmq-reindex query --json`` prints of the message."""
        return copy.deepcopy(dict(self.fields))

    def __repr__(self) -> str:
        queue = f"{printable(self.topic)}/{self.queue_id}/{self.queue_offset}"
        return f"<FoundMessage {queue} phy_offset={self.phy_offset}>"


def _time(milliseconds: int) -> dt.datetime | None:
    try:
        return EPOCH + dt.timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


@dataclass(repr=False)
class QueryResult(Result):
    """The messages that were found. A result can be iterated, counted and indexed as a tuple of messages."""

    messages: tuple[FoundMessage, ...]
    warnings: tuple[str, ...]
    """what could not be read, and what else is odd"""
    searched: str = ""
    """for a question by tag: which IndexFiles have tag items, and how much of the log was read; else empty"""

    def __iter__(self) -> Iterator[FoundMessage]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, number: int) -> FoundMessage:
        return self.messages[number]

    def to_dict(self) -> dict[str, Any]:
        """Return the messages, each as ``rmq-reindex query --json`` prints it, and what the command says on stderr."""
        messages = [message.to_dict() for message in self.messages]
        return {"messages": messages, "warnings": list(self.warnings), "searched": self.searched}

    def to_arrow(self) -> pa.Table:
        """Return the messages as an Arrow table: a row for each, and the same columns whatever was asked and found.

        The columns are named as the fields of FoundMessage. ``store_time`` and ``born_time`` are timestamps in UTC, null before
        1677 and after 2262. ``properties`` is a map, ``keys`` a list, ``body`` a text as ``body=`` asked for it.
        """
        return arrow_table([message.fields for message in self.messages])

    def to_pandas(self) -> Any:
        """Return the messages as a ``pandas.DataFrame``, with the columns of ``to_arrow()``; ``properties`` are dicts."""
        return self.to_arrow().to_pandas(maps_as_pydicts="strict")

    def _repr_html_(self) -> str:
        """Return the messages, for notebooks, below the short table of any result, and the warnings."""
        rows = html_table([message.fields for message in self.messages])
        warnings = "".join(f"<p>warning: {html.escape(printable(warning))}</p>" for warning in self.warnings)
        return super()._repr_html_() + rows + warnings

    def _facts(self) -> dict[str, str]:
        return {"found": counted(len(self.messages), "message"), "warnings": str(len(self.warnings))}
