"""What the parsers of all commands share: words, groups, what ``--help`` shows beside the options."""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, NoReturn

from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.names import escape, near_names

# ------------------------------------------------------------------------------------------------------------------------- help
# What ``--help`` shows beside the options: the group of each, an example, the exit statuses, and where to read more.
#
# One command has forty options. In a group stand those that a reader looks for together.

INPUT, WHAT, DAMAGE, SIZES, OUTPUT, RUN = "input", "what", "damage", "sizes and version", "output", "run"
GROUPS: Final = {
    INPUT: (
        "commitlogs", "commitlog", "broker_conf", "topics_config", "snapshot", "replicas", "against", "sample", "abort",
        "explain", "consumer_offsets", "kind", "store", "summary",
    ),
    WHAT: (
        "only", "index_policy", "checkpoint", "include_topics", "exclude_topics", "until_offset", "until_time", "lmq",
        "write_topics", "write_delay", "undecided", "topic", "key", "tag", "queue", "offset", "time", "id", "physical", "begin",
        "end", "max", "scan", "records", "topics", "partial", "allow_empty", "other_log",
    ),
    DAMAGE: (
        "on_damage", "queue_order", "max_fill", "crc", "extend", "majority", "tombstones", "include_broken", "count_limit",
    ),
    SIZES: (
        "cq_file_size", "batch_cq_file_size", "hash_slots", "index_items", "segment_size", "first_offset", "delay_levels",
        "broker_version",
    ),
    OUTPUT: ("out", "to", "overwrite", "keep", "link", "json", "report", "body", "body_max"),
    RUN: ("dry_run", "engine", "master", "range_size", "threads", "work"),
}  # fmt: skip
"""The options of each group, by the names that the parsers give them, in the order of the groups in ``--help``."""

TITLES: Final = {name: title for title, names in GROUPS.items() for name in names}
"""The group of an option. One without a group here belongs to a group that its parser makes, such as that of Delta tables."""


class About(NamedTuple):
    """What ``--help`` says of a command behind its options."""

    examples: tuple[str, ...]
    statuses: tuple[int, ...] = (0, 1, 2)


STATUSES: Final = {
    0: "done",
    1: "the run did not come to its end; after build and repair nothing is published",
    2: "wrong usage",
    3: "done, but records are lost: damaged, or in no queue",
    4: "found: differences, or what the start of a broker would lose or hide",
    5: "the log or a queue is refused, because the options say so",
}
"""Exit statuses in short; docs/reference/exit-statuses.md has them for each command."""

ABOUT: Final = {
    "info": About(("rmq-reindex info /data/store",)),
    "build": About(
        (
            "rmq-reindex build /data/store --broker-conf broker.conf --out /data/rebuilt",
            "rmq-reindex build /data/store --out /data/rebuilt --only index,checkpoint --engine local",
        ),
        (0, 1, 2, 3, 5),
    ),
    "query": About(
        (
            "rmq-reindex query /data/store --topic Orders --key order-17",
            "rmq-reindex query /data/store --topic Orders --queue 0 --time 2026-11-20T08:00:00Z --max 10",
        )
    ),
    "inspect": About(("rmq-reindex inspect /data/store/checkpoint /data/store/index/*",)),
    "verify": About(
        (
            "rmq-reindex verify /data/store",
            "rmq-reindex verify /data/store --report verified.json",
        ),
        (0, 1, 2, 4),
    ),
    "preflight": About(("rmq-reindex preflight /data/store --broker-version 5.3.3 --broker-conf broker.conf",), (0, 1, 2, 4)),
    "repair": About(
        ("rmq-reindex repair /data/store --replica /backup/store --broker-conf broker.conf --out /data/repaired",),
        (0, 1, 2, 3, 5),
    ),
    "fetch": About(("rmq-reindex fetch /data/rebuilt --to /data/store",)),
    "report": About(("rmq-reindex report /data/rebuilt --out report.html",)),
}


def epilog(command: str) -> str:
    """Return the text behind the options in the ``--help`` of a command."""
    about = ABOUT[command]
    examples = "\n".join(f"  {example}" for example in about.examples)
    statuses = "\n".join(f"  {status}  {STATUSES[status]}" for status in about.statuses)
    name = "example" if len(about.examples) == 1 else "examples"
    more = f"man rmq-reindex-{command}, and docs/reference/{command}.md in the sources"
    return f"{name}:\n{examples}\n\nexit status:\n{statuses}\n\nmore: {more}"


# ---------------------------------------------------------------------------------------------------------------------- options
# What the parsers of all commands share.

_MISSING: Final = "the following arguments are required: "
"""how argparse begins the message on arguments that are not there"""
_SIMILAR: Final = 0.6
_PLACES: Final = {"DIR": "folder", "URI": "folder", "STORE": "store", "STORE2": "store", "FILE": "file", "MANIFEST": "file"}
"""what is named by the options that have such a value"""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process, and puts each option into its group (``GROUPS``).

    The error has a line for each word that is wrong.
    """

    def __init__(self, *words: Any, **settings: Any) -> None:
        self._given: list[str] = []
        self._wrong: list[str] = []
        self._groups: dict[str, argparse._ArgumentGroup] = {}
        super().__init__(*words, **settings)

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action:
        name = settings.get("dest", names[0].removeprefix("--").replace("-", "_"))
        title = TITLES.get(name, "") if names[0].startswith("--") else ""
        return self._group(title).add_argument(*names, **settings) if title else super().add_argument(*names, **settings)

    def _group(self, title: str) -> argparse._ArgumentGroup:
        found = self._groups.get(title)
        if found is None:
            found = self._groups[title] = self.add_argument_group(title)
            made = [group for group in self._action_groups if group.title not in GROUPS]
            # Behind arguments and --help, before the groups that a command makes of its own.
            self._action_groups[:] = [*made[:2], *(self._groups[each] for each in GROUPS if each in self._groups), *made[2:]]
        return found

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, rest = self.parse_known_args(args, namespace)
        if wrong := [*self._wrong, *self._unknown(rest)]:
            raise UsageError("\n".join(wrong))
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given, self._wrong = [str(word) for word in (sys.argv[1:] if args is None else args)], []
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.option_strings and "" in arg_strings and (what := _PLACES.get(str(action.metavar))):
            # A variable of a script that is not set: as a path it would be the working folder.
            self._wrong.append(f"{action.option_strings[0]}: is empty: name a {what}")
        try:
            return super()._get_values(action, arg_strings)
        except argparse.ArgumentError as error:
            if isinstance(action, argparse._SubParsersAction):
                raise
            self._wrong.append(self._line(str(error)))
        except UsageError as error:
            self._wrong.append(str(error))
        # The words behind it are looked at, too. Nothing is done with this value.
        return argparse.SUPPRESS

    def error(self, message: str) -> NoReturn:
        # What stands behind the name of a command is for its own parser.
        words = self._given[:1] if self._subparsers is not None else self._given
        unknown = self._unknown([word for word in words if word.startswith("--")])
        if unknown and self._subparsers is not None:
            raise UsageError("\n".join(unknown))
        # A missing option may be there, under a misspelt name.
        missing = message.removeprefix(_MISSING).split(", ") if message.startswith(_MISSING) else [message]
        is_there = all(any(f"did you mean {name}" in line for line in unknown) for name in missing)
        raise UsageError("\n".join([*self._wrong, *unknown, *([] if is_there else [self._line(message)])]))

    def _line(self, message: str, meant: str = "") -> str:
        return f"{self.prog}: {escape(message, 1000)}{meant or self._command_meant(message)}: see --help"

    def _unknown(self, words: list[str]) -> list[str]:
        """A line for each option that the parser does not know, with those near it, and one for all else that is too much."""
        lines, rest, is_value = list[str](), list[str](), False
        options = {name.removeprefix("--"): name for name in self._option_string_actions if name.startswith("--")}
        for word in words:
            name = word.partition("=")[0]
            is_option = len(name) > 2 and name.startswith("--")
            if is_option and name not in self._option_string_actions:
                near = [options[each] for each in near_names(name.removeprefix("--"), options, 2, _SIMILAR)]
                meant = f" (did you mean {' or '.join(near)}?)" if near else ""
                lines.append(self._line(f"unrecognized arguments: {name}", meant))
            elif not is_option and not is_value:
                rest.append(word)
            is_value = is_option and "=" not in word
        return [*lines, *([self._line(f"unrecognized arguments: {' '.join(rest)}")] if rest else [])]

    def _command_meant(self, message: str) -> str:
        """Which command a misspelt one may stand for."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and self._given and "invalid choice" in message:
                near = near_names(self._given[0], action.choices, 2)
                return f" (did you mean {' or '.join(near)}?)" if near else ""
        return ""


def command_parser(prog: str, description: str, *, absent: bool = False) -> Parser:
    """The parser of one command. ``absent``: options left out are absent from its result."""
    return Parser(
        prog=prog,
        description=description,
        epilog=epilog(prog.rpartition(" ")[2]),
        argument_default=argparse.SUPPRESS if absent else None,
        allow_abbrev=False,
        formatter_class=_wide_help,
    )


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """The type of an option whose text is kept as it is, once ``check`` has taken it."""

    def text_of(text: str) -> str:
        check(text)
        return text

    return text_of


def any_text() -> None:
    """From now on stdout shows a character that its encoding lacks as an escape, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def no_more_output() -> None:
    """The reader of stdout has closed the pipe. From now on nothing is written to it, also not when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Help(argparse.HelpFormatter):
    """Lines of an epilog stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def _wide_help(prog: str) -> argparse.HelpFormatter:
    return _Help(prog, max_help_position=32, width=110)


# ---------------------------------------------------------------------------------------------------------------------- parsers
# The parser of each command, by the command's name. What none asks for is not imported.

_PACKAGES: Final = {
    "info": "describing", "build": "building", "query": "querying", "inspect": "inspecting", "verify": "verifying",
    "preflight": "preflighting", "repair": "repairing", "fetch": "fetching", "report": "reporting",
}  # fmt: skip
"""The package that has the options of each command, in its module ``options``."""


def parser_of(command: str) -> Parser:
    """Return the parser of a command."""
    found: Parser = importlib.import_module(f"rocketmq_reindex.jobs.{_PACKAGES[command]}.options").build_parser()
    return found


def all_parsers() -> dict[str, Parser]:
    """Return the parsers of all commands, by their names."""
    return {command: parser_of(command) for command in _PACKAGES}
