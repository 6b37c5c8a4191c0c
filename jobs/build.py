"""``rmq-reindex build``, and the entry for spark-submit: ``spark-submit ... jobs/build.py STORE --out DIR ...``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.run_build import run_build
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.watch import Watch
from rocketmq_reindex.jobs.watching.options import wants_json_log


def build(arguments: Sequence[str]) -> int:
    """One build. Returns the exit status."""
    watch = Watch("build", json_log=wants_json_log(arguments))
    ended = run_build(lambda: parse_settings(arguments), watch, Interrupts())
    summary, json = ended.summary, "--json" in arguments
    if "--dry-run" in arguments:
        # With --json stdout holds the summary alone.
        for line in ended.lines:
            print(line, file=sys.stderr if json else sys.stdout)
    elif not json and not summary.error:
        for line in ended.lines:
            print(line)
    if json:
        print(summary.to_json())
    return summary.exit


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
