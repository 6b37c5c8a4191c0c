"""Databricks' source format, run cell by cell as a notebook does; the workspace's own objects are small stand-ins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.tools.faulty_processes import ROOT

FOLDER = ROOT / "notebooks"
HEAD = "# Databricks notebook source\n"
CELL = "# COMMAND ----------"
MAGIC = "# MAGIC"


@dataclass
class Widgets:
    """``dbutils.widgets``: what a user or a job put in, else the defaults. Only what the notebook made can be asked for."""

    given: dict[str, str]
    made: dict[str, str] = field(default_factory=dict)

    def text(self, name: str, default: str, _label: str) -> None:
        self.made[name] = self.given.get(name, default)

    def dropdown(self, name: str, default: str, choices: list[str], _label: str) -> None:
        self.made[name] = self.given.get(name, default)
        assert default in choices
        assert self.made[name] in choices

    def get(self, name: str) -> str:
        return self.made[name]


@dataclass
class Utilities:
    """``dbutils``, as far as the notebooks use it."""

    widgets: Widgets


@dataclass
class Shown:
    """What a notebook displayed, a list of rows each; ``error`` is what ended it."""

    tables: list[list[Row]] = field(default_factory=list)
    error: Exception | None = None


def cells(name: str) -> list[str]:
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert text.startswith(HEAD)
    return [cell.strip() for cell in text.removeprefix(HEAD).split(CELL)]


def magic(cell: str) -> tuple[str, str]:
    """(``md``, ``sql``, ...; what follows) of a cell all of whose lines are magic; ("", cell) of one of Python."""
    lines = cell.splitlines()
    if not cell.startswith(f"{MAGIC} %"):
        assert MAGIC not in cell
        return "", cell
    assert all(line == MAGIC or line.startswith(f"{MAGIC} ") for line in lines), cell
    kind, _, rest = "\n".join(line.removeprefix(MAGIC).removeprefix(" ") for line in lines).partition("\n")
    return kind.removeprefix("%").strip(), rest


def run(name: str, spark: SparkSession, **widgets: str) -> Shown:
    """All cells in turn, up to the one that fails."""
    shown = Shown()

    def display(frame: DataFrame) -> None:
        shown.tables.append(frame.collect())

    tools = Utilities(Widgets(widgets))
    names: dict[str, Any] = {"spark": spark, "dbutils": tools, "display": display, "__name__": "__main__"}
    for number, cell in enumerate(cells(name)):
        kind, text = magic(cell)
        try:
            if kind == "sql":
                display(spark.sql(text))
            elif not kind:
                exec(compile(text, f"{name}.py, cell {number}", "exec"), names)
            else:
                assert kind == "md"
        except (RuntimeError, SystemExit) as error:
            shown.error = error if isinstance(error, RuntimeError) else RuntimeError(str(error))
            break
    else:
        assert set(widgets) <= set(tools.widgets.made)
    return shown
