"""The README's tables of data sources, options and functions are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from rocketmq_reindex.jobs.reporting.options import build_parser
from rocketmq_reindex.udfs.sql import functions
from rocketmq_reindex.udfs.sql.base import Source
from rocketmq_reindex.udfs.sql.options import RANGE_SIZE, UNPACKED_MAX
from rocketmq_reindex.udfs.sql.sources import CommitlogSource, ConsumeQueueSource, IndexSource

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
SOURCES: dict[str, type[Source]] = {"commitlog": CommitlogSource, "consumequeue": ConsumeQueueSource, "index": IndexSource}


def _section(title: str) -> str:
    return README.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def _table(section: str, head: str) -> list[list[str]]:
    """Rows of the table whose first column is called so."""
    lines = section.split(f"| {head} |", 1)[1].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def _names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_columns() -> None:
    told = {row[0].strip("`"): _names(row[1]) for row in _table(_section("SQL over a store"), "source")}
    found: dict[str, pa.Schema] = {source.name(): source({}).columns(source({}).words()) for source in SOURCES.values()}
    assert told == {name: schema.names for name, schema in found.items()}


def test_options() -> None:
    told: dict[str, set[str]] = {name: set() for name in SOURCES}
    for row in _table(_section("SQL over a store"), "option"):
        for name in SOURCES if row[1] == "all" else row[1].split(", "):
            told[name] |= set(_names(row[0]))
    assert told == {name: {*source.known, "columns", "onDamage"} for name, source in SOURCES.items()}
    assert f"({RANGE_SIZE})" in _section("SQL over a store")
    assert f"({UNPACKED_MAX})" in _section("SQL over a store")


def test_functions() -> None:
    rows = _table(_section("SQL over a store"), "function")
    told = {row[0].strip("`").split("(")[0]: row[0].count(",") + 1 for row in rows}
    assert told == {name: arguments for name, (_, _, arguments) in functions.FUNCTIONS.items()}


def test_the_example_is_code() -> None:
    block = "\n".join(line[4:] for line in _section("SQL over a store").splitlines() if line.startswith("    ") or not line)
    compile(block.split("+------", 1)[0].strip(), "README.md", "exec")


def test_options_of_report() -> None:
    told = [row[0].strip("`").split()[0] for row in _table(_section("A report"), "option")]
    options = [name for action in build_parser()._actions for name in action.option_strings if action.dest != "help"]
    assert told == options
