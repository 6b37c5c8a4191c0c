"""Man pages and completions for shells, made of the parsers when a wheel is built: ``scripts/wheel_hook.py``.

The options of all commands import nothing but Python's own library, so a wheel is built without this project's dependencies.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import argparse_manpage.manpage
import shtab

ROOT: Final = Path(__file__).resolve().parent.parent
SHELLS: Final = {
    "bash": "share/bash-completion/completions/rmq-reindex",
    "zsh": "share/zsh/site-functions/_rmq-reindex",
    "fish": "share/fish/vendor_completions.d/rmq-reindex.fish",
}
"""Where each shell looks below the prefix of an installation."""
_DATE: Final = ""
"""of a man page: none, so that the same sources give the same bytes"""


def files() -> Iterator[tuple[str, str]]:
    """Yield the path of each file below the prefix of an installation, with its text."""
    find_package()
    from rocketmq_reindex.jobs.command.options import all_parsers

    yield "share/man/man1/rmq-reindex.1", _top_page()
    for command in all_parsers():
        yield f"share/man/man1/rmq-reindex-{command}.1", page(command)
    for shell, place in SHELLS.items():
        yield place, completion(shell)


def find_package() -> None:
    """Make the package importable from its sources: in a source distribution no links are in its folder."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    import rocketmq_reindex

    if str(ROOT) not in rocketmq_reindex.__path__:
        rocketmq_reindex.__path__.append(str(ROOT))


def completion(shell: str) -> str:
    """Return the completion of all commands for a shell."""
    from rocketmq_reindex.jobs.cli import top_parser
    from rocketmq_reindex.jobs.command.options import all_parsers

    top = top_parser()
    (commands,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    commands.choices.update(all_parsers())
    for parser in commands.choices.values():
        for action in parser._actions:
            if action.metavar in ("DIR", "STORE", "STORE2", "BUILD"):
                action.complete = shtab.DIRECTORY
            elif action.metavar in ("FILE", "MANIFEST"):
                action.complete = shtab.FILE
    return shtab.complete(top, shell)


def page(command: str) -> str:
    """Return the man page of a command."""
    from rocketmq_reindex.jobs.cli import COMMANDS
    from rocketmq_reindex.jobs.command.options import ABOUT, STATUSES, parser_of

    parser, about = parser_of(command), ABOUT[command]
    statuses = "\n".join(f".TP\n{status}\n{_plain(STATUSES[status])}" for status in about.statuses)
    sections = {
        "examples": "\n".join([".nf", *map(_plain, about.examples), ".fi"]),
        "exit status": statuses,
        "see also": _others(command),
    }
    return _text(parser, f"rmq-reindex-{command}", COMMANDS[command][1], sections)


def _top_page() -> str:
    from rocketmq_reindex.jobs.cli import COMMANDS, top_parser

    parser = top_parser()
    usage = parser.format_usage().removeprefix("usage: ").strip()
    # Each command has a page of its own.
    for group in parser._action_groups:
        group._group_actions[:] = [each for each in group._group_actions if not isinstance(each, argparse._SubParsersAction)]
    parser.usage = usage
    commands = "\n".join(f".TP\n.BR rmq\\-reindex\\-{name} (1)\n{_plain(told)}" for name, (_, told) in COMMANDS.items())
    about = "rebuild what a RocketMQ broker derives from its commitlog, offline"
    return _text(parser, "rmq-reindex", about, {"commands": commands})


def _others(command: str) -> str:
    from rocketmq_reindex.jobs.cli import COMMANDS

    names = ["rmq-reindex", *(f"rmq-reindex-{name}" for name in COMMANDS if name != command)]
    return ",\n".join(f".BR {_plain(name)} (1)" for name in names).replace("(1),", "(1) ,")


def _text(parser: argparse.ArgumentParser, name: str, told: str, sections: dict[str, str]) -> str:
    """A page in the sections that man(7) names. The parser's own epilog is one for the screen."""
    from rocketmq_reindex.version import __version__

    made: Any = parser
    made.epilog, made._manpage = None, []
    known = {"prog": name, "description": told, "version": __version__, "project_name": "rocketmq-reindex",
             "manual_title": "rocketmq-reindex"}  # fmt: skip
    manual = argparse_manpage.manpage.Manpage(made, _data=known)
    manual.prog, manual.date = name, _DATE
    for heading, content in sections.items():
        manual.add_section(heading, "=", content)
    # A choice of many words is one long word, beside which a line cannot be filled up with blanks.
    text = str(manual).replace(".SH SYNOPSIS\n", ".SH SYNOPSIS\n.ad l\n", 1)
    return text.replace(".SH DESCRIPTION\n", ".ad b\n.SH DESCRIPTION\n", 1)


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("-", "\\-")
