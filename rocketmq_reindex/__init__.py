"""Rebuild what a RocketMQ broker derives from its commitlog, offline: ConsumeQueue files, IndexFiles and the checkpoint.

``import rocketmq_reindex as rr`` gives the Python API: :func:`info`, :func:`build`, :func:`verify`, :func:`query`,
:func:`trace`, :func:`consumers`, :func:`export`, :func:`import_messages`, :func:`replay`, :func:`inspect`,
:func:`preflight`, :func:`repair`, :func:`report`, :func:`fetch`, :func:`browse` and ``rr.sql``. Nothing of it is imported
before it is used.
"""

from __future__ import annotations

import importlib

# Not that of typing, which is slow to import and before which ctrl-C would end in a traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from rocketmq_reindex.jobs.api import sql
    from rocketmq_reindex.jobs.api.keywords import options
    from rocketmq_reindex.jobs.api.looking import browse, inspect, messages, query
    from rocketmq_reindex.jobs.api.messages import FoundMessage, QueryResult
    from rocketmq_reindex.jobs.api.with_engine import build, export, repair, verify
    from rocketmq_reindex.jobs.api.without_engine import (
        consumers,
        fetch,
        import_messages,
        info,
        preflight,
        replay,
        report,
        trace,
    )  # fmt: skip
    from rocketmq_reindex.jobs.browsing.options import BrowseResult
    from rocketmq_reindex.jobs.building.summary import BuildResult, RepairResult
    from rocketmq_reindex.jobs.command.results import Result
    from rocketmq_reindex.jobs.consumers.standing import ConsumersResult, GroupEvidence, GroupOffset, OffsetChange
    from rocketmq_reindex.jobs.describing.look import InfoResult
    from rocketmq_reindex.jobs.exporting.options import ExportResult
    from rocketmq_reindex.jobs.fetching.run import FetchResult
    from rocketmq_reindex.jobs.importing.run import ImportResult
    from rocketmq_reindex.jobs.inspecting.options import InspectResult
    from rocketmq_reindex.jobs.preflighting.run import PreflightResult
    from rocketmq_reindex.jobs.replaying.options import ReplayFailure, ReplayResult
    from rocketmq_reindex.jobs.reporting.make import ReportResult
    from rocketmq_reindex.jobs.store.consumer_offsets import OffsetDifference
    from rocketmq_reindex.jobs.tracing.timeline import TracedMessage, TraceEvent, TraceResult
    from rocketmq_reindex.jobs.verifying.summary import VerifyResult
    from rocketmq_reindex.storage_format.errors import InputError, RefusedError, ReindexError, UsageError
    from rocketmq_reindex.version import __version__

__all__ = [
    "BrowseResult", "BuildResult", "ConsumersResult", "ExportResult", "FetchResult", "FoundMessage", "GroupEvidence",
    "GroupOffset", "ImportResult", "InfoResult", "InputError", "InspectResult", "OffsetChange", "OffsetDifference",
    "PreflightResult", "QueryResult", "RefusedError", "ReindexError", "RepairResult", "ReplayFailure", "ReplayResult",
    "ReportResult", "Result", "TraceEvent", "TraceResult", "TracedMessage", "UsageError", "VerifyResult", "__version__",
    "browse", "build", "consumers", "export", "fetch", "import_messages", "info", "inspect", "messages", "options",
    "preflight", "query", "repair", "replay", "report", "sql", "trace", "verify",
]  # fmt: skip

_MODULES = {
    **dict.fromkeys(("build", "export", "repair", "verify"), "jobs.api.with_engine"),
    **dict.fromkeys(
        ("consumers", "fetch", "import_messages", "info", "preflight", "replay", "report", "trace"),
        "jobs.api.without_engine",
    ),
    **dict.fromkeys(("browse", "inspect", "messages", "query"), "jobs.api.looking"),
    "options": "jobs.api.keywords",
    **dict.fromkeys(("FoundMessage", "QueryResult"), "jobs.api.messages"),
    "BrowseResult": "jobs.browsing.options",
    **dict.fromkeys(("BuildResult", "RepairResult"), "jobs.building.summary"),
    **dict.fromkeys(("ConsumersResult", "GroupEvidence", "GroupOffset", "OffsetChange"), "jobs.consumers.standing"),
    "OffsetDifference": "jobs.store.consumer_offsets",
    "ExportResult": "jobs.exporting.options",
    "FetchResult": "jobs.fetching.run",
    "ImportResult": "jobs.importing.run",
    "InfoResult": "jobs.describing.look",
    "InspectResult": "jobs.inspecting.options",
    "PreflightResult": "jobs.preflighting.run",
    **dict.fromkeys(("ReplayFailure", "ReplayResult"), "jobs.replaying.options"),
    "ReportResult": "jobs.reporting.make",
    "Result": "jobs.command.results",
    **dict.fromkeys(("TraceEvent", "TraceResult", "TracedMessage"), "jobs.tracing.timeline"),
    "VerifyResult": "jobs.verifying.summary",
    **dict.fromkeys(("InputError", "RefusedError", "ReindexError", "UsageError"), "storage_format.errors"),
    "__version__": "version",
}
"""the module of each name"""
_AS_MODULES = {"sql": "jobs.api.sql"}
"""names that are modules themselves"""


def __getattr__(name: str) -> Any:
    if name in _AS_MODULES:
        found = importlib.import_module(f"{__name__}.{_AS_MODULES[name]}")
    elif name in _MODULES:
        found = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    # Without what this file imports for itself.
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
