"""The command line: words to settings, errors to one line and an exit status."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from jobs import __version__
from jobs.broker_conf import settings_of
from jobs.settings import (
    CRC_MODES,
    BuildSettings,
    parse_delay_levels,
    parse_parts,
    parse_time,
    parse_window,
)
from jobs.summary import WARNING_LINES_MAX, Summary
from storage_format.errors import InputError, ReindexError, UsageError
from storage_format.names import escape
from storage_format.topics import batch_topics
from udfs import files

if TYPE_CHECKING:
    from jobs.run import Build


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {escape(message, 1000)}: see --help")


def _checked(check: Any) -> Any:
    def word(text: str) -> str:
        check(text)
        return text

    return word


def _policy(text: str) -> str:
    if text != "capacity":
        parse_window(text)
    return text


def build_parser() -> argparse.ArgumentParser:
    """``rmq-reindex build ...``. Options left out are absent, so that --broker-conf can tell."""
    parser = _Parser(
        prog="rmq-reindex",
        allow_abbrev=False,
        description="Rebuild what a RocketMQ broker derives from its commitlog, offline.",
    )
    parser.add_argument("--version", action="version", version=f"rmq-reindex {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    build = commands.add_parser(
        "build",
        help="ConsumeQueue, IndexFiles and checkpoint from raw segments",
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=110),
    )
    add = build.add_argument
    add("store", nargs="?", metavar="STORE", help="store folder: the segments are in STORE/commitlog")
    add("--out", required=True, metavar="DIR", help="new folder for the result, apart from STORE")
    add(
        "--commitlog",
        dest="commitlogs",
        action="append",
        metavar="DIR",
        help="folder of segments, instead of STORE/commitlog (repeatable)",
    )
    add("--only", type=parse_parts, metavar="PARTS", help="any of consumequeue,index,checkpoint (all)")
    add("--cq-file-size", type=int, metavar="BYTES", help="ConsumeQueue file size, a multiple of 20 (6000000)")
    add("--batch-cq-file-size", type=int, metavar="BYTES", help="batch ConsumeQueue file size, a multiple of 46 (13800000)")
    add("--hash-slots", type=int, metavar="N", help="slots of an IndexFile (5000000)")
    add("--index-items", type=int, metavar="N", help="items of an IndexFile, as maxIndexNum (20000000)")
    add("--segment-size", type=int, metavar="BYTES", help="size of a whole segment (taken from the files)")
    add(
        "--index-policy",
        type=_policy,
        metavar="POLICY",
        help="capacity (as the broker), or window:1h to cut at time windows too",
    )
    add(
        "--on-damage",
        choices=("fail", "stop", "salvage"),
        help="refuse (fail), build up to the first damage, or go on after it",
    )
    add(
        "--queue-order",
        choices=("logical", "broker", "fail"),
        help="when a queue's offsets repeat or have gaps (logical)",
    )
    add("--crc", choices=tuple(CRC_MODES), help="which checksums are verified (body)")
    add(
        "--checkpoint",
        choices=("safe", "broker"),
        help="safe against the next crash, or as the broker's own rebuild (safe)",
    )
    add("--lmq", action="store_true", help="also build light message queues (enableLmq, enableMultiDispatch)")
    add(
        "--delay-levels",
        type=_checked(parse_delay_levels),
        metavar="LEVELS",
        help="messageDelayLevel of the broker (1s 5s 10s 30s 1m ... 2h)",
    )
    add("--broker-version", choices=("5.3", "4.9"), help="where the two differ (5.3)")
    add("--include-topic", dest="include_topics", action="append", metavar="GLOB", help="only these topics (repeatable)")
    add("--exclude-topic", dest="exclude_topics", action="append", metavar="GLOB", help="not these topics (repeatable)")
    add("--until-offset", type=int, metavar="N", help="only records that start below this offset")
    add(
        "--until-time",
        type=parse_time,
        metavar="T",
        help="stop at the first record stored later (ms since 1970, or ISO with zone)",
    )
    add("--broker-conf", metavar="FILE", help="sizes, roots, delay levels and LMQ from a broker.conf")
    add(
        "--topics-config",
        metavar="FILE",
        help="a broker's config/topics.json: its batch topics (BatchCQ) get batch ConsumeQueues",
    )
    add("--write-topics", action="store_true", help="also draft DIR/config/topics.json from the log")
    add("--max-fill", type=int, metavar="N", help="missing queue offsets filled at most in all (100000)")
    add("--overwrite", action="store_true", help="replace what an earlier build wrote to DIR")
    add("--range-size", type=int, metavar="BYTES", help="bytes of a segment that one task takes, at most")
    add("--master", metavar="URL", help="Spark master, when there is no session yet (local[*])")
    add("--dry-run", action="store_true", help="say what would be read and written, and do nothing")
    add("--json", action="store_true", help="the summary on stdout as one JSON object")
    return parser


def parse_settings(arguments: Sequence[str]) -> BuildSettings:
    """Settings from words. Raises UsageError."""
    given = vars(build_parser().parse_args(arguments))
    given.pop("command")
    conf, topics = given.pop("broker_conf", None), given.pop("topics_config", None)
    values: dict[str, Any] = {}
    if conf is not None:
        try:
            values = settings_of(files.read_bytes(conf).decode("utf-8", "replace"), escape(conf))
        except (OSError, InputError):
            raise UsageError(f"--broker-conf {escape(conf)}: cannot be read: name the broker's properties file") from None
        values["protected"] = tuple(values[name] for name in ("store",) if name in values)
        if "store" in given or "commitlogs" in given:
            values.pop("store", None)
            values.pop("commitlogs", None)
    if topics is not None:
        values["batch_topics"] = _batch_topics(topics)
    values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    values.setdefault("store", "")
    if not values["store"] and not values.get("commitlogs"):
        raise UsageError("rmq-reindex build: name a STORE, or --commitlog folders: see --help")
    return BuildSettings(**values).check()


def _batch_topics(path: str) -> tuple[str, ...]:
    """The batch topics of a topics.json. Raises UsageError."""
    try:
        return batch_topics(files.read_bytes(path).decode("utf-8", "replace"))
    except (OSError, InputError):
        raise UsageError(f"--topics-config {escape(path)}: cannot be read: name a broker's config/topics.json") from None
    except (ValueError, RecursionError) as error:
        what = "is no JSON" if isinstance(error, (json.JSONDecodeError, RecursionError)) else escape(str(error))
        raise UsageError(f"--topics-config {escape(path)}: {what}: name a broker's config/topics.json") from None


class _Interrupts:
    """SIGINT and SIGTERM end a run; py4j turns what a handler raises into errors of its own, so a mark is left as well."""

    def __init__(self) -> None:
        self.seen = False

    def __enter__(self) -> _Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._mark) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in getattr(self, "_before", {}).items():
            signal.signal(number, handler)
        logging.disable(logging.NOTSET)

    def _mark(self, _number: int, _frame: FrameType | None) -> None:
        self.seen = True
        # What py4j logs of a call cut short is no news.
        logging.disable(logging.CRITICAL)
        raise KeyboardInterrupt


def build(arguments: Sequence[str]) -> int:
    """One build; returns the exit status."""
    summary, text = Summary(), ""
    interrupts = _Interrupts()
    job: Build | None = None
    try:
        settings = parse_settings(["build", *arguments])
        from jobs.engine import SparkEngines
        from jobs.progress import Reporter
        from jobs.run import Build

        with interrupts, Reporter() as reporter:
            job = Build(settings, reporter, SparkEngines(settings.master))
            summary = job.summary
            job.run()
        text = "" if settings.dry_run else summary.to_text()
    except ReindexError as error:
        summary.exit, summary.error = error.exit_status, str(error)
    except KeyboardInterrupt:
        summary.exit, summary.error = 1, "interrupted: nothing was published"
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "input or output"
        summary.exit, summary.error = 1, f"{where}: {error.strerror or escape(str(error))}: nothing was published"
        if isinstance(error, ConnectionError) and not error.filename:
            # A file's error, on a mounted share for one, has its name.
            summary.error = _JVM_GONE
    except Exception as error:  # noqa: BLE001  whatever Spark or a task raises: one line, nothing published
        summary.exit, summary.error = 1, _one_line(error)
    if interrupts.seen and summary.error:
        summary.exit, summary.error = 1, "interrupted: nothing was published"
    if job is not None and job.published and summary.error:
        # What went wrong after the rename takes nothing back.
        summary.warnings.append(f"published all the same: {summary.error.removesuffix(': nothing was published')}")
        summary.exit, summary.error = 3 if summary.lost else 0, None
    for warning in summary.warnings[:WARNING_LINES_MAX]:
        print(f"warning: {warning}", file=sys.stderr)
    if len(summary.warnings) > WARNING_LINES_MAX:
        print(f"warning: {len(summary.warnings) - WARNING_LINES_MAX} more, see the summary", file=sys.stderr)
    if summary.error:
        print(f"error: {summary.error}", file=sys.stderr)
    if "--json" in arguments:
        print(summary.to_json())
    elif text and not summary.error:
        print(text)
    return summary.exit


_JVM_GONE = "Spark's JVM is gone (killed, or out of memory): nothing was published"


def _one_line(error: Exception) -> str:
    """The cause of a failed task: the last line of its Python traceback where there is one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for line in lines:
        for kind in ("InputError: ", "OSError: ", "FileNotFoundError: ", "PermissionError: "):
            if kind in line:
                return escape(line.partition(kind)[2] or line, 600)
    if type(error).__name__ == "Py4JNetworkError":
        return _JVM_GONE
    named = [line for line in lines if "Error: " in line and not line.startswith(("at ", "org.apache"))]
    # A task that did not end by a Python error: the last cause that Spark names.
    aborted = [line.rpartition("Exception: ")[2] for line in lines if "Job aborted" in line and "Exception: " in line]
    named = named or aborted
    return f"{type(error).__name__}: {escape((named or lines or ['no message'])[0], 600)}: nothing was published"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry of ``rmq-reindex``; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "build" and not {"-h", "--help"} & set(words):
        return build(words[1:])
    try:
        build_parser().parse_args(words)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
