"""Parts of the pages that come from the code, as Markdown: ``{from-code}`` in a page names one of them."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql.pandas.types import from_arrow_schema

from docs import hex_dumps, structures
from rocketmq_reindex.jobs.cli import COMMANDS
from rocketmq_reindex.jobs.command import option_table
from rocketmq_reindex.jobs.command.option import Option
from rocketmq_reindex.jobs.command.options import parser_of
from rocketmq_reindex.jobs.preflighting import losses
from rocketmq_reindex.storage_format.broker_start import loading
from rocketmq_reindex.storage_format.checks.differences import KINDS, UNCHECKED
from rocketmq_reindex.storage_format.layouts import INT64_MAX
from rocketmq_reindex.udfs.sql import functions
from rocketmq_reindex.udfs.sql.sources import CommitlogSource, ConsumeQueueSource, IndexSource
from rocketmq_reindex.udfs.table_schema import TABLES

ROOT: Final = Path(__file__).resolve().parents[1]
RACE: Final = ROOT / "tests" / "bench"
FLOORS: Final = {
    "jobs": "on the driver: plan, decide, publish",
    "udfs": "on executors: read, call storage_format, write",
    "files": "on both: names, reads and writes files, local ones and others",
    "storage_format": "anywhere: bytes and arrays; no Spark, no files, no clock",
}
"""Where each of the four packages runs, the upper one first."""
_WIDTH: Final = 92
SOURCES: Final = (CommitlogSource, ConsumeQueueSource, IndexSource)


def default_of(command: str, option: Option) -> str:
    """What an option is when it is left out: ``""`` where the command must be given it, or where nothing stands for it."""
    if option.is_switch:
        return "off"
    value = option.default
    known = command == "build" and isinstance(value, str | int) and value and value != INT64_MAX
    return f"`{value}`" if known else option.default_text


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. A bar in a cell is escaped, and an option is code: its two hyphens would become a dash."""
    lines = [head, ["---"] * len(head), *([_options_as_code(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def _options_as_code(text: str) -> str:
    """``text`` with every option in backticks that is in none yet."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"(?<![\w-])--[a-z][a-z-]*", r"`\g<0>`", part) for part in parts[::2]]
    return "`".join(parts)


def options(command: str) -> str:
    """The arguments and options of a command, a table for each group of its ``--help``."""
    parts, known = [], option_table.options_of(command)
    for title in option_table.GROUPS:
        rows = []
        for name, option in ((name, option) for name, option in known.items() if option.group == title):
            flag = option.metavar if option.is_argument else f"--{name.replace('_', '-')}"
            value = "" if option.is_argument or option.is_switch else " " + (option.metavar or "|".join(option.choices))
            rows.append((f"`{flag}{value}`", default_of(command, option), option.help))
        if rows and not title:
            parts.append(table(("argument", "meaning"), [(name, meaning) for name, _, meaning in rows]))
        elif rows:
            parts.append(f"**{title.capitalize()}**\n\n{table(('option', 'default', 'meaning'), rows)}")
    return "\n".join(parts)


def usage(command: str) -> str:
    """The first lines of ``--help``."""
    parser = parser_of(command)
    parser.formatter_class = lambda prog: argparse.HelpFormatter(prog, width=84)
    return f"{parser.description}\n\n```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```\n"


def commands() -> str:
    return table(("command", "what it does"), [(f"[`{name}`]({name}.md)", text) for name, (_, text) in COMMANDS.items()])


def differences(part: str) -> str:
    """Kinds of difference of one part: what each means, and which parts a build makes anew to mend it."""
    rows = []
    for name, kind in KINDS.items():
        if kind.part == part:
            parts = f"`--only {','.join(kind.mend)}`" if kind.mend else ""
            rows.append((f"`{name}`", kind.text, "; ".join(filter(None, (parts, kind.advice)))))
    return table(("difference", "meaning", "what to do"), rows)


def unchecked() -> str:
    """Fields of a record that no checksum covers, and what of each verify sees all the same."""
    return table(("field", "what `verify` sees of it"), [(f"`{name}`", text) for name, text in UNCHECKED.items()])


def preflight_kinds(kinds: dict[str, str]) -> str:
    """Kinds of what preflight says, with what each means."""
    return table(("kind", "meaning"), [(f"`{name}`", text) for name, text in kinds.items()])


def delta_tables() -> str:
    parts = []
    for made in TABLES:
        rows = [(f"`{c.name}`", f"`{c.sql}`" + ("" if c.required else " or null"), c.comment) for c in made.columns]
        checks = [f"- `{name}`: `{text}`" for name, text in made.checks.items()]
        parts.append(
            f"## {made.name}\n\n{_options_as_code(made.comment)}.\n\n{table(('column', 'type', 'meaning'), rows)}\n"
            + (f"Clustered by `{', '.join(made.clustered)}`.\n\n" if made.clustered else "")
            + "CHECK constraints:\n\n" + "\n".join(checks) + "\n"
        )  # fmt: skip
    return "\n".join(parts)


def source_columns() -> str:
    """Columns of the SQL data sources, with the type that Spark gives them."""
    parts = []
    for source in SOURCES:
        made = source({})
        rows = [
            (f"`{field.name}`", f"`{field.dataType.simpleString()}`") for field in from_arrow_schema(made.columns(made.words()))
        ]
        parts.append(f"### {made.name()}\n\n{table(('column', 'type'), rows)}")
    return "\n".join(parts)


def sql_functions() -> str:
    rows = []
    for name, (function, gives, count) in functions.FUNCTIONS.items():
        names = list(_arguments(function))[:count]
        first = " ".join((function.__doc__ or "").split("\n\n", maxsplit=1)[0].split()).removeprefix("Return ")
        rows.append((f"`{name}({', '.join(names)})`", f"`{gives}`", first.replace("``", "`")))
    return table(("function", "result", "meaning"), rows)


def _arguments(function: Callable[..., object]) -> Iterator[str]:
    code = function.__code__
    yield from code.co_varnames[: code.co_argcount]


def race() -> str:
    """The page that ``make bench`` writes, as part of docs/explanation/speed.md: headings a level down, paths from there."""
    text = (RACE / "README.md").read_text(encoding="utf-8").split("\n", maxsplit=1)[1]
    text = re.sub(r"<!--.*?-->\n", "", re.sub(r"^#", "##", text, flags=re.MULTILINE))
    return re.sub(r"\]\((?!https?:)([^)]+)\)", r"](../../tests/bench/\1)", text)


def layers_of(package: str) -> list[list[str]]:
    """What stands in one of the four packages, the upper layer first: the layers that ``make lint`` holds."""
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[[tool.importlinter.contracts]]")
    (contract,) = (text for text in contracts if f'containers = ["rocketmq_reindex.{package}"]' in text)
    layers: list[str] = ast.literal_eval(re.findall(r"^layers = (\[.*?^\])", contract, re.MULTILINE | re.DOTALL)[0])
    return [layer.split(" | ") for layer in layers]


def floors() -> str:
    """The four packages, one upon the other, with their layers."""
    lines = list[str]()
    for package, where in FLOORS.items():
        lines += ["+" + "-" * (_WIDTH + 2) + "+", f"| {f'{package}/  {where}':<{_WIDTH}} |"]
        lines += [f"|     {'  '.join(layer):<{_WIDTH - 4}} |" for layer in layers_of(package)]
    return "```text\n" + "\n".join([*lines, lines[0]]) + "\n```\n"


def packages(package: str) -> str:
    """Each package and file of one of the four, the upper layer first: what its docstring says first."""
    rows = []
    for name in (name for layer in layers_of(package) for name in layer):
        place = ROOT / package / name
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        rows.append((f"`{package}/{name}{'' if place.is_dir() else '.py'}`", _first_said(file)))
    return table(("package", "what it is"), rows)


def files_in(package: str) -> str:
    """Each file within the packages of one of the four: what its docstring says first."""
    paths = sorted(path for path in (ROOT / package).glob("*/**/*.py") if path.stem != "__init__")
    return table(("file", "what it is"), [(f"`{path.relative_to(ROOT)}`", _first_said(path)) for path in paths])


def _first_said(file: Path) -> str:
    """Return the first paragraph of a file's docstring."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n", maxsplit=1)[0].split()).replace("``", "`")


MADE: Final[dict[str, Callable[..., str]]] = {
    "usage": usage,
    "options": options,
    "commands": commands,
    "differences": differences,
    "preflight-losses": lambda: preflight_kinds(losses.KINDS),
    "preflight-warnings": lambda: preflight_kinds(losses.WARNINGS),
    "preflight-refusals": lambda: preflight_kinds(loading.KINDS),
    "delta-tables": delta_tables,
    "source-columns": source_columns,
    "unchecked": unchecked,
    "sql-functions": sql_functions,
    "race": race,
    "bytes": hex_dumps.shown,
    "floors": floors,
    "packages": packages,
    "files-in": files_in,
    "example": structures.shown,
}


def made(words: str) -> str:
    """The Markdown that ``{from-code} WORDS`` stands for."""
    name, *arguments = words.split()
    return MADE[name](*arguments)
