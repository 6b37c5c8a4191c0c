"""The command line: it runs the command that the first word names, and imports no more than that command needs.

This file itself imports little: a Python that lacks packages has to get as far as the line that says so, and a ctrl-C before
``main`` has put up its handler ends in a traceback.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType
    from typing import NoReturn

    from rocketmq_reindex.jobs.command.options import Parser

COMMANDS = {
    "info": ("rocketmq_reindex.jobs.commands", "what is in a store, what is missing or stale, and what to run next"),
    "build": ("rocketmq_reindex.jobs.build", "ConsumeQueue, IndexFiles and checkpoint from raw segments"),
    "query": (
        "rocketmq_reindex.jobs.commands",
        "messages by key, tag, id, time, queue offset or physical offset, without a broker",
    ),
    "trace": ("rocketmq_reindex.jobs.commands", "what happened to a message, from the files of one store or several"),
    "consumers": ("rocketmq_reindex.jobs.commands", "where consumer groups stand, and a new file of their offsets"),
    "export": (
        "rocketmq_reindex.jobs.commands",
        "messages as JSON lines, CSV, Parquet, a table or a small store, without a broker",
    ),
    "import": ("rocketmq_reindex.jobs.commands:import_messages", "a store that a broker starts on, from rows of an export"),
    "replay": (
        "rocketmq_reindex.jobs.commands",
        "messages of a store or an export, sent into a cluster through a proxy",
    ),
    "inspect": ("rocketmq_reindex.jobs.inspecting.options", "what a file of a store holds, by its kind"),
    "verify": ("rocketmq_reindex.jobs.verify", "commitlog, ConsumeQueue, IndexFiles and checkpoint compared, both ways"),
    "preflight": ("rocketmq_reindex.jobs.commands", "what the start of a broker will do to a store, without a broker"),
    "repair": ("rocketmq_reindex.jobs.repair", "a new commitlog that a broker accepts whole, from a damaged one"),
    "fetch": (
        "rocketmq_reindex.jobs.commands",
        "lay a build out in a broker's store: checked, swapped in, the previous one kept",
    ),
    "report": ("rocketmq_reindex.jobs.commands", "one HTML page about a build or a verify"),
    "browse": ("rocketmq_reindex.jobs.commands", "stores in the browser: their topics, queues and messages"),
}
"""The module and the help line of each command. The module has a function of the command's name, or of the one behind ``:``.

It takes the arguments behind the name, and returns the exit status.
"""


class _CtrlC:
    """What ctrl-C does where a command has no handler of its own (``jobs.command.results.Interrupts``)."""

    def __init__(self) -> None:
        self.seen, self.importing = False, True

    def __call__(self, number: int, _frame: FrameType | None) -> NoReturn:
        if self.importing:
            # Nothing has begun yet. An exception would become another one inside of numpy or numba.
            os.write(2, b"error: interrupted\n")
            os._exit(128 + number)
        self.seen = True
        raise KeyboardInterrupt


def top_parser() -> Parser:
    """Return the parser that names the commands, without their options."""
    from rocketmq_reindex.jobs.command.options import Parser
    from rocketmq_reindex.version import __version__

    parser = Parser(
        prog="rmq-reindex",
        allow_abbrev=False,
        description="Rebuild what a RocketMQ broker derives from its commitlog, offline.",
        epilog="`rmq-reindex COMMAND --help` shows the options of a command, and an example.",
    )
    parser.add_argument("--version", action="version", version=f"rmq-reindex {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (_, help_line) in COMMANDS.items():
        commands.add_parser(name, help=help_line, add_help=False)
    return parser


def _run(words: list[str], ctrl_c: _CtrlC) -> int:
    if not words:
        # Whoever asks for nothing wants to know what there is. A script that lost its words has not done what was meant.
        top_parser().print_help(sys.stderr)
        return 2
    if words[0] not in COMMANDS:
        top_parser().parse_args(words)
        return 0
    from rocketmq_reindex.jobs.command import start

    module, _, name = COMMANDS[words[0]][0].partition(":")
    with start.command():
        command = getattr(importlib.import_module(module), name or words[0])
        ctrl_c.importing = False
        return int(command(words[1:]))


def _failed(error: BaseException, ctrl_c: _CtrlC) -> int:
    """Say in one line why a command has not come to its own end. Raises what is no such reason."""
    if ctrl_c.seen or isinstance(error, KeyboardInterrupt):
        print("error: interrupted", file=sys.stderr)
        # As shells have it.
        return 128 + signal.SIGINT
    if isinstance(error, ImportError):
        print(f"error: {_lacking(error)}", file=sys.stderr)
        return 1
    from rocketmq_reindex.storage_format.errors import ReindexError, error_lines

    if not isinstance(error, ReindexError):
        raise error
    print(error_lines(str(error)), file=sys.stderr)
    return error.exit_status


def _lacking(error: ImportError) -> str:
    try:
        from rocketmq_reindex.jobs.command.start import lacking
    except ImportError:
        return (
            f"{sys.executable} lacks rocketmq_reindex: give spark-submit --py-files rocketmq_reindex.zip, or install the wheel "
            "in that Python"
        )
    return lacking(error)


def _open_streams() -> None:
    """Give a stream that was closed before the start the null device.

    Else the next file that is opened would take its number, and with it what a process below this one prints.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115  they live as long as the process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def _at_the_end() -> None:
    # An interpreter that ends looks for garbage in all it has imported: half a second. And nothing is left to interrupt.
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where ctrl-C came in the middle of generated code, as a dataclass has, Python would end by SIGINT all the same, and not
    # with the command's exit status. It forgets that when it runs a text once more.
    eval("0")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return its exit status."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_streams()
    ctrl_c, usual = _CtrlC(), signal.default_int_handler
    heard = signal.getsignal(signal.SIGINT) == usual
    try:
        # Somebody else's handler stays, and a SIGINT that is ignored stays so.
        if heard:
            signal.signal(signal.SIGINT, ctrl_c)
    except ValueError:
        # Not in the first thread, which hears signals alone.
        heard = False
    atexit.register(_at_the_end)
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments), ctrl_c)
    except BaseException as error:  # noqa: BLE001  raised again where it is no reason to end
        return _failed(error, ctrl_c)
    finally:
        if heard:
            signal.signal(signal.SIGINT, usual)


if __name__ == "__main__":
    sys.exit(main())
