"""``report`` of the Python API, and what it returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from rocketmq_reindex.jobs.api import keywords
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.storage_format import errors, showing


class ReportSettings(NamedTuple):
    """What the page is about, and where it goes. ``source`` is a build's folder or a verify's file."""

    source: str
    out: str = option_table.default_of("out", "report")
    store: str | None = None
    summary: str | None = None


def report_settings(given: Mapping[str, Any]) -> ReportSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    if not given["source"]:
        raise errors.UsageError("rmq-reindex report: name DIR, or the file of verify --report: see --help")
    return ReportSettings(**given)


parse_report: Final = options.reader("report", report_settings)
"""Return the settings that the words behind ``report`` make. Raises UsageError."""


@dataclass(repr=False)
class ReportResult(Result):
    """The page that was written."""

    exit: int = 0
    out: str = ""
    bytes: int = 0

    def _facts(self) -> dict[str, str]:
        return {"page": self.out, "bytes": f"{self.bytes:,}"}


@keywords.says_keywords
def report(
    source: keywords.PathLike,
    *,
    out: keywords.PathLike | None = None,
    store: keywords.PathLike | None = None,
    summary: keywords.PathLike | None = None,
) -> ReportResult:
    """Write one HTML page about a build or a verify, as ``rmq-reindex report`` does. The page is complete in itself.

    This needs matplotlib: ``pip install matplotlib`` brings it.

    Returns:
        The file, and its size in bytes.

    Raises:
        InputError: The source is neither a build nor the file of a verify, or matplotlib is not installed (exit status 1).
        UsageError: A keyword has a value that is not possible (exit status 2).
        ReindexError: Any other failure (exit status 1).

    Example:
        >>> import rocketmq_reindex as rr
        >>> rr.report("rebuilt", out="page.html", store="store").out
        'page.html'
    """
    return write_page(report_settings(keywords.given("report", dict(locals()))))


def write_page(settings: ReportSettings) -> ReportResult:
    """Make the page and write it. Raises ReindexError. The command line and the Python API share this."""
    with failures_as_errors("input or output"):
        from rocketmq_reindex.jobs.publishing.layout import check_writable, write_whole
        from rocketmq_reindex.jobs.reporting.make import make_page

        check_writable("--out", settings.out)
        page = make_page(settings.source, settings.store, settings.summary)
        write_whole(settings.out, page)
    size = len(page.encode())
    result = ReportResult(out=settings.out, bytes=size)
    result.end(f"wrote    {showing.escape(settings.out)}, {size:,} bytes")
    return result
