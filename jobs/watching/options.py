"""Options of how a run is watched, those of build, verify and repair; each has a variable of the environment beside it.

By itself: parsers need nothing else of this package.
"""

import argparse
import os
from collections.abc import Sequence
from typing import Final

from rocketmq_reindex.storage_format.errors import UsageError

PROGRESS: Final = ("lines", "json")
LOG_FORMATS: Final = ("text", "json")
_CHOICES: Final = {"progress": PROGRESS, "log_format": LOG_FORMATS, "metrics": (), "store_name": ()}


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of how a run is watched."""
    group = parser.add_argument_group(
        "watching a run", "environment variables for these: RMQ_REINDEX_PROGRESS, _LOG_FORMAT, _METRICS, _STORE_NAME"
    )
    add = group.add_argument
    add(
        "--progress",
        choices=PROGRESS,
        help="how progress is shown on stderr: lines (a bar on a terminal), or JSON for schedulers (lines)",
    )
    add(
        "--log-format",
        choices=LOG_FORMATS,
        help="format of messages on stderr; json also replaces the lines of progress (text)",
    )
    add("--metrics", metavar="FILE", help="write figures of the run to FILE, for Prometheus' node_exporter")
    add("--store-name", metavar="NAME", help="name of the store in logs and metrics (STORE)")


def variable(name: str) -> str:
    """The variable of the environment that stands for an option."""
    return f"RMQ_REINDEX_{name.upper()}"


def watch_environment() -> dict[str, str]:
    """What the environment says, by names of settings. Raises UsageError."""
    found = {name: os.environ[variable(name)] for name in _CHOICES if os.environ.get(variable(name))}
    for name, value in found.items():
        if _CHOICES[name] and value not in _CHOICES[name]:
            raise UsageError(f"{variable(name)} {value!a}: take {' or '.join(_CHOICES[name])}")
    return found


def wants_json_log(arguments: Sequence[str]) -> bool:
    """Whether the words ask for a JSON log. Words that no parser takes count as well, since their error is logged, too."""
    asked = os.environ.get(variable("log_format"))
    for word, after in zip(arguments, [*arguments, ""][1:], strict=True):
        name, equals, value = word.partition("=")
        if name == "--log-format":
            asked = value if equals else after
    return asked == "json"
