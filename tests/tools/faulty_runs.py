"""A build or repair without Spark as the command line runs it: status and summary, with each file operation under a fault."""

from __future__ import annotations

import contextlib
import io
import json
import os
from pathlib import Path
from typing import Any, Final
from unittest import mock

from rocketmq_reindex.jobs.build import build
from rocketmq_reindex.jobs.engines.engine import Engines
from rocketmq_reindex.jobs.repair import repair
from rocketmq_reindex.jobs.spark import engine, session
from tests.tools.faulty_files import Fault, faulty
from tests.tools.local_engine import InlineEngine, single

SIZES = ("--cq-file-size", "400", "--hash-slots", "50", "--index-items", "60")
COMMANDS: Final = {"build": build, "repair": repair}


def _no_spark(_master: str, **_more: object) -> Engines:
    """In the place of ``SparkEngines``; Delta tables are nothing for an engine without Spark."""
    return single(InlineEngine())


def command(store: Path | str, out: Path | str, *words: str, name: str = "build") -> tuple[dict[str, Any], str]:
    """``rmq-reindex NAME STORE --out DIR ...``, its tasks in this process; (summary, what went to stderr)."""
    said, errors = io.StringIO(), io.StringIO()
    local = mock.patch.object(engine, "SparkEngines", _no_spark)
    no_jvm = mock.patch.object(session, "starting", return_value=contextlib.nullcontext())
    with local, no_jvm, contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        status = COMMANDS[name]([str(store), "--out", str(out), *SIZES, "--json", *words])
    summary = json.loads(said.getvalue())
    assert summary["exit"] == status
    return summary, errors.getvalue()


def command_with(
    fault: Fault, store: Path, out: Path, *words: str, exchange: bool = True, name: str = "build"
) -> tuple[dict[str, Any], str]:  # fmt: skip
    """The same while ``fault`` watches the store and all that lies around DIR."""
    with faulty(fault, os.path.commonpath([store, out.parent]), exchange):
        return command(store, out, *words, name=name)
