"""What the parsers of all commands share: words, groups, what ``--help`` shows beside the options."""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

from rocketmq_reindex.jobs.command.option_table import COMMANDS, GROUPS, NOTES, OPTIONS, WATCHING, options_of
from rocketmq_reindex.storage_format import errors, showing

# ------------------------------------------------------------------------------------------------------------------------- help
# What ``--help`` shows beside the options: what a command is, an example, the exit statuses, and where to read more.


class About(NamedTuple):
    """What ``--help`` says of a command before its options, and behind them."""

    description: str
    examples: tuple[str, ...]
    statuses: tuple[int, ...] = (0, 1, 2)


STATUSES: Final = {
    0: "done",
    1: "the run did not come to its end; after build and repair nothing is published; of replay: a message was not sent",
    2: "wrong usage",
    3: "done, but records are lost: damaged, or in no queue; of browse: a page could not be written",
    4: "found: differences, or what the start of a broker would lose or hide; of trace: no store has the message; of "
    "consumers: no group, or one that misses messages",
    5: "the log or a queue is refused, because the options say so",
}
"""Exit statuses in short; docs/reference/exit-statuses.md has them for each command."""

ABOUT: Final = {
    "info": About(
        "Say what is in a store, what is missing or stale, and what to run next. Nothing is written.",
        ("rmq-reindex info /data/store",),
    ),
    "build": About(
        "Rebuild ConsumeQueue, IndexFiles and checkpoint from raw segments.",
        (
            "rmq-reindex build /data/store --broker-conf broker.conf --out /data/rebuilt",
            "rmq-reindex build /data/store --out /data/rebuilt --only index,checkpoint --engine local",
        ),
        (0, 1, 2, 3, 5),
    ),
    "query": About(
        "Find messages in a store, whole or broken, without a broker.",
        (
            "rmq-reindex query /data/store --topic Orders --key order-17",
            "rmq-reindex query /data/store --topic Orders --queue 0 --time 2026-11-20T08:00:00Z --max 10",
        ),
    ),
    "trace": About(
        "Say what happened to a message: all that stores hold of it, as a timeline. Without a broker; stores are only read.",
        (
            "rmq-reindex trace --store /data/store --topic Orders --key order-17",
            "rmq-reindex trace --store a=/data/broker-a --store b=/data/broker-b --id AC110002000018B4AAC2845B1A7F0001",
        ),
        (0, 1, 2, 4),
    ),
    "consumers": About(
        "Say where consumer groups stand in the queues of a store, and what each has left; or write a new file of offsets. "
        "Without a broker.",
        (
            "rmq-reindex consumers /data/store --group GID_orders",
            "rmq-reindex consumers /data/store --consumer-offsets a.json --consumer-offsets b.json --out consumerOffset.json",
        ),
        (0, 1, 2, 4),
    ),
    "export": About(
        "Write messages of a store into a file or a folder that other programs read. Without a broker; the store is only read.",
        (
            "rmq-reindex export /data/store --topic Orders --since 2026-11-20T00:00:00Z --to orders.jsonl",
            "rmq-reindex export /data/store --format parquet --to /data/messages",
            "rmq-reindex export /data/store --topic Orders --format store --to /data/small",
        ),
        (0, 1, 2, 3),
    ),
    "import": About(
        "Make a store that a broker starts on, from rows as export writes them.",
        (
            "rmq-reindex import orders.jsonl --to /data/mended",
            "rmq-reindex import /data/messages --to /data/small --segment-size 1048576",
        ),
    ),
    "replay": About(
        "Send messages of a store, or of an export of one, into a living cluster, through a RocketMQ 5 proxy. It is only read.",
        (
            "rmq-reindex replay /data/store --topic Orders --dry-run",
            "rmq-reindex replay /data/store --topic Orders --to proxy:8081 --journal orders.journal --rate 500",
            "rmq-reindex replay orders.jsonl --to proxy:8081 --journal orders.journal",
        ),
        (0, 1, 2, 3),
    ),
    "inspect": About(
        "Say what a segment, ConsumeQueue file, IndexFile, checkpoint or timer file holds, and what is wrong with it.",
        ("rmq-reindex inspect /data/store/checkpoint /data/store/index/*",),
    ),
    "verify": About(
        "Compare a store's commitlog with its ConsumeQueue, IndexFiles and checkpoint, both ways.",
        (
            "rmq-reindex verify /data/store",
            "rmq-reindex verify /data/store --report verified.json",
        ),
        (0, 1, 2, 4),
    ),
    "preflight": About(
        "Say what the start of a broker will do to a store. Nothing is written.",
        ("rmq-reindex preflight /data/store --broker-version 5.3.3 --broker-conf broker.conf",),
        (0, 1, 2, 4),
    ),
    "repair": About(
        "Write a new commitlog that a broker accepts whole, and the files derived from it. The old one is only read.",
        ("rmq-reindex repair /data/store --replica /backup/store --broker-conf broker.conf --out /data/repaired",),
        (0, 1, 2, 3, 5),
    ),
    "fetch": About(
        "Lay a build out in a broker's store: check every file, then put it in the place of the store's own.",
        ("rmq-reindex fetch /data/rebuilt --to /data/store",),
    ),
    "report": About(
        "One HTML page, complete in itself, about what a build wrote or a verify found.",
        ("rmq-reindex report /data/rebuilt --out report.html",),
    ),
    "browse": About(
        "Show stores in a browser, on 127.0.0.1 alone and until ctrl-C. Without a broker; stores are only read.",
        (
            "rmq-reindex browse /data/store",
            "rmq-reindex browse a=/data/broker-a b=/data/broker-b --port 9000",
            "rmq-reindex browse /data/store --export-site site --redact",
        ),
        (0, 1, 2, 3),
    ),
}


def epilog(command: str) -> str:
    """Return the text behind the options in the ``--help`` of a command."""
    about = ABOUT[command]
    examples = "\n".join(f"  {example}" for example in about.examples)
    statuses = "\n".join(f"  {status}  {STATUSES[status]}" for status in about.statuses)
    name = "example" if len(about.examples) == 1 else "examples"
    manuals = f"man rmq-reindex-{command}, and docs/reference/{command}.md in the sources"
    return f"{name}:\n{examples}\n\nexit status:\n{statuses}\n\nmore: {manuals}"


# ---------------------------------------------------------------------------------------------------------------------- options
# What the parsers of all commands share.

_MISSING: Final = "the following arguments are required: "
"""how argparse begins the message on arguments that are not there"""
_SIMILAR: Final = 0.6
_PLACES: Final = {
    "DIR": "folder", "URI": "folder", "STORE": "store", "STORE2": "store", "BUILD": "build", "FILE": "file", "MANIFEST": "file",
    "PATH": "file or folder",
}  # fmt: skip
"""what is named by the options that have such a value"""
_ANY_KIND: Final = "URI"
"""the value of an option that Spark alone may know"""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError instead of ending the process: with a line for each word that is wrong."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        self._given: list[str] = []
        self._wrong: list[str] = []
        super().__init__(*words, **settings)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if wrong := [*self._wrong, *self._unknown(unknown)]:
            raise errors.UsageError("\n".join(wrong))
        return parsed

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
        except errors.UsageError as error:
            self._wrong.append(str(error))
        # The words behind it are looked at, too. Nothing is done with this value.
        return argparse.SUPPRESS

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if str(action.metavar) in _PLACES:
            arg_string = _place(action, arg_string)
        return super()._get_value(action, arg_string)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        # argparse passes over a stdout that is full.
        from rocketmq_reindex.jobs.command.results import Output

        with Output() as output:
            sys.stdout.write(message)
        if output.status:
            self.exit(output.status)

    def error(self, message: str) -> NoReturn:
        # What stands behind the name of a command is for its own parser.
        words = self._given[:1] if self._subparsers is not None else self._given
        unknown = self._unknown([word for word in words if word.startswith("--")])
        if unknown and self._subparsers is not None:
            raise errors.UsageError("\n".join(unknown))
        # A missing option may be there, under a misspelt name.
        missing = message.removeprefix(_MISSING).split(", ") if message.startswith(_MISSING) else [message]
        is_there = all(any(f"did you mean {name}" in line for line in unknown) for name in missing)
        raise errors.UsageError("\n".join([*self._wrong, *unknown, *([] if is_there else [self._line(message)])]))

    def _line(self, message: str, meant: str = "") -> str:
        message = message.replace("ignored explicit argument", "takes no value: leave out")
        return f"{self.prog}: {showing.escape(message, 1000)}{meant or self._command_meant(message)}: see --help"

    def _unknown(self, words: list[str]) -> list[str]:
        """Return a line for each option that is not known, with those near it, and one for all else that is too much."""
        lines, surplus, is_value = list[str](), list[str](), False
        options = {name.removeprefix("--"): name for name in self._option_string_actions if name.startswith("--")}
        for word in words:
            name = word.partition("=")[0]
            is_option = len(name) > 2 and name.startswith("--")
            if is_option and name not in self._option_string_actions:
                near = [options[each] for each in showing.near_names(name.removeprefix("--"), options, 2, _SIMILAR)]
                meant = f" (did you mean {' or '.join(near)}?)" if near else ""
                lines.append(self._line(f"unrecognized arguments: {name}", meant))
            elif not is_option and not is_value:
                surplus.append(word)
            is_value = is_option and "=" not in word
        return [*lines, *([self._line(f"unrecognized arguments: {' '.join(surplus)}")] if surplus else [])]

    def _command_meant(self, message: str) -> str:
        """Return which command a misspelt one may stand for."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction) and self._given and "invalid choice" in message:
                near = showing.near_names(self._given[0], action.choices, 2)
                return f" (did you mean {' or '.join(near)}?)" if near else ""
        return ""


def _place(action: argparse.Action, text: str) -> str:
    """Return a path or URI in its usual form, as every command takes it. Raises UsageError for a URI that cannot be one."""
    from rocketmq_reindex import files

    place = files.plain(text)
    if action.metavar == _ANY_KIND and files.is_remote(place):
        return place
    try:
        return files.checked(place)
    except errors.InputError as error:
        raise errors.UsageError(" ".join([*action.option_strings[:1], str(error)])) from None


class _Help(argparse.HelpFormatter):
    """Lines of an epilog stay lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


# ---------------------------------------------------------------------------------------------------------------------- parsers
# The parser of each command, as the table of options has it.


def parser_of(command: str) -> Parser:
    """Return the parser of a command. Options left out are absent from its result, so that a broker.conf can stand for them."""
    parser = Parser(
        prog=f"rmq-reindex {command}",
        description=ABOUT[command].description,
        epilog=epilog(command),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=functools.partial(_Help, max_help_position=32, width=110),
    )
    options = options_of(command)
    titles = {option.group for option in options.values()} - {""}
    groups = {title: parser.add_argument_group(title, NOTES.get(title)) for title in GROUPS if title in titles}
    for name, option in options.items():
        settings: dict[str, Any] = {"help": option.full_help}
        if option.is_switch:
            settings["action"] = "store_true"
        else:
            settings |= {"metavar": option.metavar or None, "type": option.type, "choices": option.choices or None}
        if option.nargs == "append":
            settings["action"] = "append"
        elif option.nargs in ("?", "+"):
            settings["nargs"] = option.nargs
        if option.is_argument:
            parser.add_argument(name, **settings)
        else:
            settings |= {"dest": option.dest or name, "required": option.required}
            groups[option.group].add_argument(f"--{name.replace('_', '-')}", **settings)
    return parser


Settings = TypeVar("Settings")


def reader(command: str, settings_of: Callable[[dict[str, Any]], Settings]) -> Callable[[Sequence[str]], Settings]:
    """Return what makes settings of the words behind a command; ``settings_of`` makes them of options by their settings' names.

    It raises UsageError, and what ``settings_of`` raises.
    """
    return lambda arguments: settings_of(vars(parser_of(command).parse_args(arguments)))


def all_parsers() -> dict[str, Parser]:
    """Return the parsers of all commands, by their names."""
    return {command: parser_of(command) for command in COMMANDS}


# ------------------------------------------------------------------------------------------------------------------ environment
# How a run is watched by the environment: each option of watching has a variable beside it.

_WATCHED: Final = {name: option for name, option in OPTIONS.items() if option.group == WATCHING}


def variable(name: str) -> str:
    """Return the variable of the environment that stands for an option."""
    return f"RMQ_REINDEX_{name.upper()}"


def watch_environment() -> dict[str, str]:
    """Return what the environment says, by names of settings. Raises UsageError."""
    watched = {name: os.environ[variable(name)] for name in _WATCHED if os.environ.get(variable(name))}
    for name, value in watched.items():
        if (choices := _WATCHED[name].choices) and value not in choices:
            raise errors.UsageError(f"{variable(name)} {value!a}: take {' or '.join(choices)}")
    return watched


def wants_json_log(arguments: Sequence[str]) -> bool:
    """Return whether the words ask for a JSON log: also words that no parser takes, since their error is logged, too."""
    asked = os.environ.get(variable("log_format"))
    for word, after in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--log-format":
            asked = value if equals else after
    return asked == "json"
