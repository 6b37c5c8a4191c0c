"""Messages on stdout: each as a line of JSON, or all of them as a table for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, Final

from rocketmq_reindex.jobs.querying.bodies import preview, to_json
from rocketmq_reindex.jobs.querying.fields import row_of
from rocketmq_reindex.jobs.querying.found import Found
from rocketmq_reindex.jobs.querying.options import Query
from rocketmq_reindex.jobs.store.log import StoreLog
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.plurals import form


def show(found: Iterable[Found], log: StoreLog, asked: Query, notes: Notes) -> int:
    """Print what is found as it comes, or a table when all is there. Returns the number of messages."""
    rows: list[dict[str, Any]] = []
    count = 0
    for one in found:
        count += 1
        row = row_of(one, log, asked, notes)
        if asked.json:
            print(to_json(row))
        else:
            rows.append(row if count < 2 else _short(row))
    if rows:
        from rocketmq_reindex.jobs.querying.table import terminal_width

        if len(rows) > 1:
            rows[0] = _short(rows[0])
        print("\n".join(_table(rows, terminal_width())))
    elif not count and not asked.json:
        print("nothing found", file=sys.stderr)
    sys.stdout.flush()
    return count


def rows_text(rows: list[dict[str, Any]]) -> str:
    """The same table as a text, of any width."""
    return "\n".join(_table(rows if len(rows) == 1 else [_short(row) for row in rows], None)) if rows else "nothing found"


def _table(rows: list[dict[str, Any]], width: int | None) -> list[str]:
    from rocketmq_reindex.jobs.querying.table import one_lines, row_lines

    return one_lines(rows[0]) if len(rows) == 1 else row_lines(rows, "body", width)


_KEYS_MAX: Final = 60
_PREVIEW: Final = 40


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """What of a message stands in a table of many."""
    queue = f"{row['topic']}/{row['queueId']}/{row['queueOffset']}"
    served = row.get("servedAt", row["queueOffset"])
    kept = {
        "physicalOffset": row["physicalOffset"],
        "topic/queue/offset": queue if served == row["queueOffset"] else f"{queue} at {served}",
        "storeTime": row["storeTime"],
        "uniqueKey": row["uniqueKey"],
        "keys": _first_keys(row["keys"]),
        "tags": row["tags"],
    }
    if "body" in row:
        kept["body"] = (
            f"{row['bodyLength']} {form(row['bodyLength'], 'byte', 'bytes')}"
            if row["bodyFormat"] == "hex"
            else preview(row, _PREVIEW)
        )
    return kept


def _first_keys(keys: list[str]) -> str | None:
    """Whole keys, the first alone if it is long, and how many more there are: half a key finds nothing."""
    if not keys:
        return None
    kept = 1
    while kept < len(keys) and sum(map(len, keys[: kept + 1])) + kept <= _KEYS_MAX:
        kept += 1
    return " ".join(keys[:kept]) + (f" ... ({len(keys) - kept} more)" if kept < len(keys) else "")
