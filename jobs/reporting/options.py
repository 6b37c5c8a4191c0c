"""The options of ``rmq-reindex report``, and the settings that they make.

By itself: the parser of report needs nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.command.options import Parser, command_parser
from rocketmq_reindex.storage_format.errors import UsageError

OUT: Final = "report.html"


class ReportSettings(NamedTuple):
    """What the page is about, and where it goes. ``source`` is a build's folder or a verify's file."""

    source: str
    out: str
    store: str | None
    summary: str | None


def build_parser() -> Parser:
    """The parser of ``rmq-reindex report``."""
    parser = command_parser(
        "rmq-reindex report", "One HTML page, complete in itself, about what a build wrote or a verify found."
    )
    add = parser.add_argument
    add("source", metavar="DIR", help="what a build wrote (with its reindex.json), or the file of verify --report")
    add("--out", default=OUT, metavar="FILE", help=f"file for the page; replaced if it is there ({OUT})")
    add(
        "--store",
        metavar="STORE",
        help="folder around commitlog/: the page then shows when messages were stored, by topic (the "
        "build's folder, or the store that was verified)",
    )
    add("--summary", metavar="FILE", help="what build --json printed: the page then shows when it ran, and seconds by stage")
    return parser


def parse_report(arguments: Sequence[str]) -> ReportSettings:
    """Settings from the words behind ``report``. Raises UsageError."""
    return report_settings(vars(build_parser().parse_args(arguments)))


def report_settings(given: Mapping[str, Any]) -> ReportSettings:
    """Settings from options, by the names of the parser. Raises UsageError."""
    if not given["source"]:
        raise UsageError("rmq-reindex report: name DIR, or the file of verify --report: see --help")
    return ReportSettings(given["source"], given["out"], given["store"], given["summary"])
