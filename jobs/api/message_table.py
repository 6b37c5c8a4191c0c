"""The messages of a result as a table: of Arrow, of pandas, and as HTML for notebooks."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketmq_reindex.jobs.querying.bodies import preview, to_json
from rocketmq_reindex.storage_format.names import printable
from rocketmq_reindex.storage_format.plurals import counted

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_SHOWN: Final = 20
"""messages in the HTML; more would fill a notebook"""
TEXT_SHOWN: Final = 80
"""characters of a text in the HTML"""


def arrow_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Messages as ``query --json`` gives them, as an Arrow table. Its columns are the same for any question and answer."""
    import numpy as np
    import pyarrow as pa

    from rocketmq_reindex.udfs.messages.arrow_columns import times

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
    """A text that Arrow takes: a value of JSON is written as JSON, and half of a surrogate pair becomes ``?``."""
    if value is None:
        return None
    text = value if isinstance(value, str) else to_json(value)
    return text.encode("utf-8", "replace").decode("utf-8")


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The first ROWS_SHOWN messages as an HTML table, and how many more there are. All texts are escaped."""
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
    more = len(rows) - ROWS_SHOWN
    tail = f"<p>{counted(more, 'more message')}</p>" if more > 0 else ""
    return f"<table>{''.join(lines)}</table>{tail}"


def _shown(value: Any) -> str:
    text = "" if value is None else str(value)
    return html.escape(printable(text[:TEXT_SHOWN]) + ("..." if len(text) > TEXT_SHOWN else ""))
