"""How inspect shows a file: a summary of its fields, and rows of what it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketmq_reindex.jobs.inspecting.inspected import Row
from rocketmq_reindex.jobs.querying.bodies import to_json
from rocketmq_reindex.storage_format.names import printable


def show_summary(summary: dict[str, Any], as_json: bool) -> None:
    """Print the fields of a file."""
    from rocketmq_reindex.jobs.querying.table import terminal_width

    print(to_json(summary) if as_json else summary_text(summary, terminal_width()))


def summary_text(summary: dict[str, Any], width: int | None = None) -> str:
    """The fields of a file as a text; lists of records (dicts) become tables of their own."""
    from rocketmq_reindex.jobs.querying.table import cell, record_lines, row_lines

    lists = {name: value for name, value in summary.items() if isinstance(value, list) and value}
    tables = {name: value for name, value in lists.items() if isinstance(value[0], dict)}
    fields: list[tuple[str, str]] = []
    for name, value in summary.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {_text(part)}" for key, part in value.items()) or "-"
        elif isinstance(value, list) and not value:
            value = "none"
        if name not in tables:
            fields.append((name, cell(value)))
    lines = record_lines(fields)
    for name, rows in tables.items():
        lines += ["", f"{name}:", "", *row_lines(rows, width=width)]
    return "\n".join(lines)


def show_rows(rows: Iterable[Row], as_json: bool) -> None:
    """One line a row, as it comes: a file may hold millions."""
    for row in rows:
        print(to_json(row) if as_json else "  ".join(f"{name}={_text(value)}" for name, value in row.items()))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(_text(part) for part in value) or "-"
    if isinstance(value, dict):
        return ",".join(f"{_text(key)}:{_text(part)}" for key, part in value.items()) or "-"
    return "-" if value is None else printable(str(value))
