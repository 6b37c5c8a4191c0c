"""How each command without an engine is run, for the command line and the Python API. A failure is part of what it ends with.

Nothing slow is imported here: a command imports what it needs once its settings are known.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rocketmq_reindex.jobs.api.engines_ahead import Needs, engines_ahead, is_on_spark
from rocketmq_reindex.jobs.command.results import UNPUBLISHED, Interrupts, Output, Result, outcome
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.storage_format.errors import ExitStatus, ReindexError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rocketmq_reindex.jobs.browsing.options import BrowseResult, BrowseSettings
    from rocketmq_reindex.jobs.building.summary import BuildResult
    from rocketmq_reindex.jobs.consumers.standing import ConsumersQuestion, ConsumersResult
    from rocketmq_reindex.jobs.describing.look import InfoResult
    from rocketmq_reindex.jobs.exporting.options import ExportResult, ExportSettings
    from rocketmq_reindex.jobs.fetching.run import FetchResult, FetchSettings
    from rocketmq_reindex.jobs.importing.run import ImportResult, ImportSettings
    from rocketmq_reindex.jobs.preflighting.options import PreflightSettings
    from rocketmq_reindex.jobs.preflighting.run import PreflightResult
    from rocketmq_reindex.jobs.querying.question import Query, TakeMessages
    from rocketmq_reindex.jobs.replaying.options import ReplayResult, ReplaySettings
    from rocketmq_reindex.jobs.reporting.make import ReportResult, ReportSettings
    from rocketmq_reindex.jobs.store.folders import Notes
    from rocketmq_reindex.jobs.store.settings import StoreSettings
    from rocketmq_reindex.jobs.tracing.timeline import Trace, TraceResult

R = TypeVar("R", bound=Result)
S = TypeVar("S", bound="StoreSettings")
B = TypeVar("B", bound="BuildResult")

# ---------------------------------------------------------------------------------------------------------------------- endings
# What a run ends with, and the runs of commands that have no engine.


@dataclass(frozen=True)
class Ended(Generic[R]):
    """A run that has ended. ``result.error`` is None where it did what it was asked to; ``error`` is what was raised."""

    result: R
    error: BaseException | None
    interrupted: bool = False
    """whether a signal was seen, also where py4j made another error of it"""


def _run_here(
    ended: R, work: Callable[[], list[str]], interrupts: Interrupts | None = None, place: str = "STORE",
    more: Callable[[], str] = str, has_jvm: Callable[[], bool] = bool,
) -> Ended[R]:  # fmt: skip
    """Run a command without an engine, or an export. ``work`` fills the result, and returns the lines for people.

    ``more`` returns the end of the line of an interrupted run, ``has_jvm`` whether it works with Spark's JVM.
    """
    result: Any = ended
    raised: BaseException | None = None
    lines, began = list[str](), time.monotonic()
    try:
        lines = work()
    except (Exception, KeyboardInterrupt) as error:
        if not has_jvm() and not isinstance(error, ReindexError | OSError | KeyboardInterrupt):
            # A fault of this package: it is shown with its trace.
            raise
        raised = error
        result.exit, result.error = outcome(error, interrupts, place, more(), has_jvm=has_jvm())
    if "seconds" in result.json_keys():
        result.seconds = round(time.monotonic() - began, 3)
    result.end("\n".join(lines))
    return Ended(ended, raised, has_jvm() and interrupts is not None and interrupts.seen)


def run_info(settings_of: Callable[[], StoreSettings]) -> Ended[InfoResult]:
    """Look at a store. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.describing.look import InfoResult, StoreLook, lines_of

    result = InfoResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"):
            StoreLook(settings_of(), result).run()
        return lines_of(result)

    return _run_here(result, work)


def run_preflight(settings_of: Callable[[], PreflightSettings], *, quiet: bool = False) -> Ended[PreflightResult]:
    """Work out a start. Return how that ended. ``settings_of`` may raise UsageError and InputError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult, lines_of
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    result = PreflightResult()

    def work() -> list[str]:
        with failures_as_errors("STORE"), Stages(quiet, watch.START_LOOP) as progress:
            Preflight(settings_of(), result, progress).run()
        return lines_of(result)

    return _run_here(result, work)


def run_fetch(settings_of: Callable[[], FetchSettings], interrupts: Interrupts) -> Ended[FetchResult]:
    """Fetch. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.fetching.run import Fetch, FetchResult

    result = FetchResult()

    def work() -> list[str]:
        settings = settings_of()
        with interrupts:
            return Fetch(settings, result).run()

    return _run_here(result, work, interrupts, "build or store", lambda: ": run it again to go on")


def run_report(settings_of: Callable[[], ReportSettings]) -> Ended[ReportResult]:
    """Draw and write a page. Return how that ended. ``settings_of`` may raise UsageError."""
    from rocketmq_reindex.jobs.reporting.make import ReportResult, write_page

    result = ReportResult()

    def work() -> list[str]:
        with failures_as_errors("input or output"):
            return write_page(settings_of(), result)

    return _run_here(result, work)


def run_query(
    settings_of: Callable[[], Query], notes: Notes, take: TakeMessages, *, quiet: bool = False
) -> ExitStatus:  # fmt: skip
    """Answer one question, and return the exit status: FAILED where nothing was found, and something could not be read or the
    store does not know the topic.

    ``take`` shows or keeps the messages as they are found: there may be any number. Raises UsageError and InputError.
    """
    from rocketmq_reindex.jobs.querying.question import answer
    from rocketmq_reindex.jobs.querying.search import Search
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    with failures_as_errors("STORE"):
        asked, stages = settings_of(), Stages(quiet, watch.SCAN_LOOP)
        for note in asked.conf_notes:
            notes.add("passed over in broker.conf", note, lost=False)
        with stages, Search(asked.store, asked.roots, notes, sizes=asked.sizes, scan=asked.scan, progress=stages) as search:
            count = take(answer(asked, search), search.log, asked, notes)
        notes.close()
    return ExitStatus.FAILED if (notes.lost or notes.unknown) and not count else ExitStatus.DONE


def run_trace(settings_of: Callable[[], Trace], *, quiet: bool = False) -> Ended[TraceResult]:
    """Trace messages. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.publishing.layout import check_writable, write_whole
    from rocketmq_reindex.jobs.querying.shown import terminal_width
    from rocketmq_reindex.jobs.reporting.parts import traces
    from rocketmq_reindex.jobs.store.folders import Notes
    from rocketmq_reindex.jobs.tracing.run import run
    from rocketmq_reindex.jobs.tracing.timeline import TraceResult
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages
    from rocketmq_reindex.version import __version__

    result = TraceResult()

    def work() -> list[str]:
        asked, notes = settings_of(), Notes(result.warnings.append, result.warnings.append)
        if asked.html is not None:
            check_writable("--html", asked.html, b"<!doctype html>", "a page of trace")
        with failures_as_errors("--store"), Stages(quiet, watch.SCAN_LOOP) as progress:
            run(asked, result, notes, progress)
        notes.close()
        result.decide(notes.lost)
        if asked.html is None:
            return result.lines(terminal_width())
        write_whole(asked.html, traces(result.to_dict(), __version__))
        return [*result.lines(terminal_width()), "", f"wrote    {escape(asked.html)}"]

    return _run_here(result, work)


def run_export(
    settings_of: Callable[[], ExportSettings], interrupts: Interrupts, *, quiet: bool = False,
    spark: SparkSession | None = None,
) -> Ended[ExportResult]:  # fmt: skip
    """Export messages. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr. ``spark``: the session to work in.
    """
    from rocketmq_reindex.jobs.exporting.options import ExportResult
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    result, more, on_spark = ExportResult(), UNPUBLISHED, False

    def work() -> list[str]:
        nonlocal more, on_spark
        settings = settings_of()
        more = f"{UNPUBLISHED}: the same command goes on from here" if settings.resumable else more
        on_spark = is_on_spark(settings.engine, settings.master, spark)
        # The scan of a log takes a while to import, for which a usage error does not wait.
        if not on_spark:
            from rocketmq_reindex.jobs.exporting.run import Export

            with interrupts, failures_as_errors("STORE"), Stages(quiet, watch.SCAN_LOOP) as progress:
                return Export(settings, result, progress).run()
        with interrupts, Stages(quiet, watch.SCAN_LOOP) as progress:
            from rocketmq_reindex.jobs.exporting.run import Export

            export = Export(settings, result, progress)
            export.check()
            with engines_ahead(None, settings.master, Needs(), spark) as engines:
                return export.run(engines)

    return _run_here(result, work, interrupts, "STORE or PATH", lambda: "" if result.to else more, lambda: on_spark)


def run_import(
    settings_of: Callable[[], ImportSettings], interrupts: Interrupts, *, quiet: bool = False
) -> Ended[ImportResult]:
    """Make a store of rows. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.importing.run import ImportResult, run
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    result = ImportResult()

    def work() -> list[str]:
        with interrupts, failures_as_errors("SOURCE"), Stages(quiet, watch.SCAN_LOOP) as progress:
            return run(settings_of(), result, progress)

    return _run_here(result, work, interrupts, "SOURCE or DIR", lambda: UNPUBLISHED)


def run_replay(
    settings_of: Callable[[], ReplaySettings], interrupts: Interrupts, *, quiet: bool = False
) -> Ended[ReplayResult]:
    """Send messages into a cluster. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.replaying.options import ReplayResult
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    result = ReplayResult()

    def work() -> list[str]:
        settings = settings_of()
        from rocketmq_reindex.jobs.replaying.run import Replay

        with interrupts, failures_as_errors("STORE"), Stages(quiet, watch.SCAN_LOOP) as progress:
            return Replay(settings, result, progress).run()

    def more() -> str:
        return ": what was sent stands in the journal" if result.journal else ""

    return _run_here(result, work, interrupts, "STORE or FILE", more)


def run_consumers(settings_of: Callable[[], ConsumersQuestion], *, quiet: bool = False) -> Ended[ConsumersResult]:
    """Look where consumer groups stand. Return how that ended. ``settings_of`` may raise UsageError.

    ``quiet``: no progress is shown on stderr.
    """
    from rocketmq_reindex.jobs.consumers.run import run
    from rocketmq_reindex.jobs.consumers.standing import ConsumersResult
    from rocketmq_reindex.jobs.querying.shown import terminal_width
    from rocketmq_reindex.jobs.store.folders import Notes
    from rocketmq_reindex.jobs.watching import watch
    from rocketmq_reindex.jobs.watching.watch import Stages

    result = ConsumersResult()

    def work() -> list[str]:
        asked, notes = settings_of(), Notes(result.warnings.append, result.warnings.append)
        with failures_as_errors("STORE"), Stages(quiet, watch.SCAN_LOOP) as progress:
            run(asked, result, notes, progress)
        notes.close()
        result.decide()
        return result.lines(terminal_width())

    return _run_here(result, work)


def run_browse(settings_of: Callable[[], BrowseSettings], interrupts: Interrupts | None = None) -> Ended[BrowseResult]:
    """Serve the pages of stores, or write them. Return how that ended. ``settings_of`` may raise UsageError.

    With ``interrupts`` the address is printed, and the pages are there until a signal comes. Without, they are served in
    threads of this process until the result's ``stop`` is called.
    """
    from rocketmq_reindex.jobs.browsing.options import BrowseResult, take_over

    result = BrowseResult()

    def work() -> list[str]:
        settings = settings_of()
        # A usage error does not wait for the web.
        from rocketmq_reindex.jobs.browsing.server import check_installed, serve

        if settings.export_site is not None:
            check_installed("starlette", "jinja2")
            from rocketmq_reindex.jobs.browsing.site import export_site

            with interrupts or contextlib.nullcontext(), failures_as_errors("STORE"):
                return export_site(settings, result)
        with failures_as_errors("STORE"):
            served = serve(settings, alone=interrupts is not None)
        take_over(result, served, [store.name for store in settings.stores])
        if interrupts is None:
            return [result.url]
        try:
            with interrupts:
                with Output():
                    print("\n".join(result.lines()), flush=True)
                served.wait()
        finally:
            result.stop()
        return []

    return _run_here(result, work, interrupts, "STORE or DIR", lambda: UNPUBLISHED if result.url == "" else "")
