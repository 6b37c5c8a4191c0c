"""``report``: its options, its result, and the page: what a build wrote or a verify found, and what its files hold."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rocketmq_reindex import files
from rocketmq_reindex.jobs.command import option_table, options
from rocketmq_reindex.jobs.command.results import Result
from rocketmq_reindex.jobs.publishing.layout import MANIFEST_MAX, check_laid_out, check_writable, write_whole
from rocketmq_reindex.jobs.store.settings import check_is_folder, check_is_store
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import counted, escape, listed, reason

if TYPE_CHECKING:
    from rocketmq_reindex.jobs.reporting.model import Model
    from rocketmq_reindex.jobs.reporting.page import Times

MANIFEST: Final = "reindex.json"
FILES_LOOKED_INTO: Final = 20


class ReportSettings(NamedTuple):
    """What the page is about, and where it goes. ``source`` is a build's folder or a verify's file."""

    source: str
    out: str = option_table.default_of("out", "report")
    store: str | None = None
    summary: str | None = None


def report_settings(given: Mapping[str, Any]) -> ReportSettings:
    """Return the settings that options make, by the names of the parser. Raises UsageError."""
    if not given["source"]:
        raise UsageError("rmq-reindex report: name DIR, or the file of verify --report: see --help")
    return ReportSettings(**given)


parse_report: Final = options.reader("report", report_settings)
"""Return the settings that the words behind ``report`` make. Raises UsageError."""


@dataclass(repr=False)
class ReportResult(Result):
    """The page that was written."""

    exit: int = 0
    out: str = ""
    bytes: int = 0
    notes: list[str] = field(default_factory=list)
    """what the page lacks, and why"""

    def stderr_lines(self) -> list[str]:
        return [*(f"note: {text}" for text in self.notes), *super().stderr_lines()]

    def _facts(self) -> dict[str, str]:
        return {"page": self.out, "bytes": f"{self.bytes:,}"}


def write_page(settings: ReportSettings, result: ReportResult) -> list[str]:
    """Make the page and write it. Return the lines for people. Raises InputError and OSError."""
    check_writable("--out", settings.out, b"<!doctype html>", "a page of report")
    page = make_page(settings.source, settings.store, settings.summary, result.notes)
    write_whole(settings.out, page)
    result.out, result.bytes = settings.out, len(page.encode())
    return [f"wrote    {escape(settings.out)}, {result.bytes:,} bytes"]


def make_page(source: str, store: str | None = None, summary: str | None = None, notes: list[str] | None = None) -> str:
    """Return the page about a build's folder or a verify's file; ``notes`` gets what it lacks. Raises InputError for anything
    else.
    """
    try:
        from rocketmq_reindex.jobs.reporting import plots  # noqa: F401  is matplotlib there?
    except ImportError as error:
        raise InputError(f"report draws with matplotlib, and {error.name} is not installed: pip install matplotlib") from None
    from rocketmq_reindex.jobs.reporting.page import Times, look_into, message_times, render, segments_of

    check_laid_out(source)
    model, folder = read_model(source, summary)
    if store and model.command == "verify" and _is_gone(folder):
        # It was moved since.
        folder = store
    times, sampled = Times(), ""
    commitlog = files.join(store or folder, layouts.COMMITLOG)
    if os.path.isdir(commitlog):
        model.segments = model.segments or [(int(entry.name), entry.size) for entry in segments_of(commitlog)]
        times = message_times(model, folder, commitlog)
        sampled = _sampled(times, model)
    elif store:
        check_is_folder(store)
        check_is_store(store)
        raise InputError(f"{escape(commitlog)}: is not there: --store names the folder around commitlog/")
    chains, unread = [], list[str]()
    items: list[Any] = []
    for index in model.index[-FILES_LOOKED_INTO:]:
        try:
            looked_into = look_into(index, folder)
        except (OSError, InputError, ValueError) as error:
            unread.append(f"{escape(os.path.join(folder, layouts.INDEX, index.name))}: {reason(error)}")
            continue
        if looked_into is not None:
            chains.append(looked_into[0])
            items.append((looked_into[1], index.items / max(1, len(looked_into[1]))))
    if not times and items:
        import numpy as np

        moments = np.concatenate([item_times for item_times, _ in items])
        weights = np.concatenate([np.full(len(item_times), round(items_each), np.int64) for item_times, items_each in items])
        times, sampled = {"index items": (moments, weights)}, "times of evenly spread index items: give --store for topics"
    lacking = _lacking(model, folder, commitlog, unread, has_times=bool(times))
    model.notes += lacking
    if notes is not None:
        notes += lacking
    cut = f"; the last {FILES_LOOKED_INTO} files" if len(model.index) > FILES_LOOKED_INTO else ""
    return render(model, times, sampled, chains, cut)


def _is_gone(folder: str) -> bool:
    """Return whether no folder is there. Where that cannot be found out, it is taken to be there: whoever reads it says why."""
    try:
        return files.entry_of(folder).kind != files.FOLDER
    except (OSError, InputError):
        return False


def _lacking(model: Model, folder: str, commitlog: str, unread: list[str], *, has_times: bool) -> list[str]:
    """Return a line on each reason why something cannot be drawn; none where the page is whole.

    ``folder`` has the queues and the index; ``unread`` says of IndexFiles why they could not be read.
    """
    of_log = ["messages over time"] if model.messages > 0 and not has_times else []
    of_log += ["the map of the log"] if model.records and not model.segments else []
    of_index = [f"the slots' chains of {counted(len(unread), 'IndexFile')}"] if unread else []
    if _is_gone(folder):
        # Of a build its own reindex.json was read there.
        causes = [(of_log + of_index, f"{escape(folder)}: is not there", "where the store is now")]
    else:
        index = os.path.join(folder, layouts.INDEX)
        no_index = f"{escape(index)}: is not there" if _is_gone(index) else next(iter(unread), "")
        causes = [(of_log, *_without_log(model, folder, commitlog)), (of_index, no_index, "")]
    return [
        f"{told}, so the page lacks {listed(parts)}{f': --store names {where}' if where else ''}"
        for parts, told, where in causes
        if parts
    ]


def _without_log(model: Model, folder: str, commitlog: str) -> tuple[str, str]:
    """Return why what comes from the log cannot be drawn, and which folder --store can name instead; "" for none."""
    shown, around = escape(commitlog), "the folder around commitlog/"
    if _is_gone(commitlog):
        return f"{shown}: is not there", around
    if files.is_remote(commitlog):
        return f"{shown}: is a URI, and a log is read from a disk alone", around
    if not model.segments:
        return f"{shown}: {'has no segments' if os.path.isdir(commitlog) else 'cannot be read'}", around
    queues = os.path.join(folder, layouts.QUEUES)
    if _is_gone(queues):
        return f"{escape(queues)}: is not there", ""
    return f"{escape(queues)}: none of its units that were looked at leads to a record in {shown}", ""


def read_model(source: str, summary: str | None = None, most: int = MANIFEST_MAX) -> tuple[Model, str]:
    """Return what a build or a verify wrote, in a file of ``most`` bytes at most, and the folder of its files.

    Raises InputError.
    """
    from rocketmq_reindex.jobs.reporting.model import began, of_build, of_verify, written

    path = os.path.join(source, MANIFEST) if os.path.isdir(source) else source
    content = _json(path, most=most)
    try:
        if content.get("command") == "verify":
            folder = str(content["store"])
            model = of_verify(content, folder)
        else:
            folder = os.path.dirname(path) or "."
            model = of_build(content, os.path.abspath(folder))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        # A KeyError is the name alone.
        wrong = f"it has no {escape(str(error))}" if isinstance(error, KeyError) else escape(str(error))
        raise InputError(
            f"{escape(path)}: is neither a build's reindex.json nor what verify --report writes ({wrong}): name one of them"
        ) from None
    if summary:
        of_run = _json(summary, "give what build --json printed")
        model.seconds |= _seconds(of_run, summary)
        try:
            model.when = began("built", of_run.get("started"))
        except ValueError:
            raise InputError(f"{escape(summary)}: its start is no time: give what build --json printed") from None
    model.when = model.when or written(os.path.basename(path), os.stat(path).st_mtime)
    return model, folder


def _sampled(times: Times, model: Model) -> str:
    """Return whose times are shown: how many were looked at, and what is no message of its own."""
    looked, messages = sum(len(moments) for moments, _ in times.values()), model.messages
    if looked >= messages:
        text = f"store times of {counted(looked, 'message')}"
    else:
        spread = ", evenly spread" if any(int(weights.max()) > 1 for _, weights in times.values()) else ""
        text = f"store times of {looked:,} of {counted(messages, 'message')}{spread}"
    without = model.records - messages
    light = sum(queue.units for queue in model.queues if queue.light)
    if without > 0:
        text += f"; {counted(without, 'record')} without a unit"
    if light:
        text += f"; {counted(light, 'unit')} of light queues stand for the same messages"
    return text


def _json(
    path: str, advice: str = "name what a build wrote, or the file of verify --report", most: int = MANIFEST_MAX
) -> dict[str, Any]:
    try:
        content = json.loads(files.read_bytes(path, most))
    except FileNotFoundError:
        raise InputError(f"{escape(path)}: is not there: {advice}") from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{escape(path)}: is no JSON object: {advice}")
    return content


def _seconds(summary: dict[str, Any], path: str) -> dict[str, float]:
    seconds = summary.get("seconds")
    if not isinstance(seconds, dict) or not all(isinstance(value, int | float) for value in seconds.values()):
        raise InputError(f"{escape(path)}: has no seconds: give what build --json printed")
    return {str(name): float(value) for name, value in seconds.items() if name != "total"}
