"""What ``rmq-reindex preflight`` says of a store."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rocketmq_reindex.jobs.preflighting.options import preflight_settings
from rocketmq_reindex.jobs.preflighting.run import Preflight, PreflightResult
from rocketmq_reindex.storage_format.errors import InputError, NoListener
from tests.preflight.settings import Conf


def predict(store: Path, release: str, conf: Conf, scratch: Path) -> dict[str, Any] | str:
    """The answer as ``--json`` prints it, or why there is none."""
    path = scratch / f"{store.name}.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in conf.properties().items()))
    settings = preflight_settings({"store": str(store), "broker_version": release, "broker_conf": str(path)})
    summary = PreflightResult()
    try:
        Preflight(settings, summary, NoListener()).run()
    except InputError as error:
        return str(error)
    return dataclasses.asdict(summary)
