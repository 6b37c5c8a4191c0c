"""The command line: it runs the command that the first word names, and imports no more than that command needs."""

from __future__ import annotations

import argparse
import atexit
import gc
import importlib
import sys
from collections.abc import Sequence

from rocketmq_reindex import __version__
from rocketmq_reindex.jobs.command.options import Parser
from rocketmq_reindex.jobs.watching import clock
from rocketmq_reindex.storage_format.errors import ReindexError, UsageError

COMMANDS = {
    "build": ("rocketmq_reindex.jobs.build", "ConsumeQueue, IndexFiles and checkpoint from raw segments"),
    "query": (
        "rocketmq_reindex.jobs.query",
        "messages by key, tag, id, time, queue offset or physical offset, without a broker",
    ),
    "inspect": ("rocketmq_reindex.jobs.inspect_files", "what a file of a store holds, by its kind"),
    "verify": ("rocketmq_reindex.jobs.verify", "commitlog, ConsumeQueue, IndexFiles and checkpoint compared, both ways"),
    "preflight": ("rocketmq_reindex.jobs.preflight", "what the start of a broker will do to a store, without a broker"),
    "fetch": ("rocketmq_reindex.jobs.fetch", "lay a build out in a broker's store: checked, swapped in, the previous one kept"),
    "report": ("rocketmq_reindex.jobs.report", "one HTML page about a build or a verify"),
}
"""The module and the help line of each command. The module has a function of the command's name.

It takes the arguments behind the name, and returns the exit status.
"""


def _top_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="rmq-reindex",
        allow_abbrev=False,
        description="Rebuild what a RocketMQ broker derives from its commitlog, offline.",
    )
    parser.add_argument("--version", action="version", version=f"rmq-reindex {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (_, help_line) in COMMANDS.items():
        commands.add_parser(name, help=help_line, add_help=False)
    return parser


def _run(name: str, words: list[str]) -> int:
    try:
        run = getattr(importlib.import_module(COMMANDS[name][0]), name)
    except ReindexError as error:
        # Compiled code lies where others may write.
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return int(run(words))


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of ``rmq-reindex``; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # An interpreter that ends looks for garbage in all it has imported: half a second.
    atexit.register(gc.freeze)
    if words and words[0] in COMMANDS:
        with clock.command():
            return _run(words[0], words[1:])
    try:
        _top_parser().parse_args(words)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
