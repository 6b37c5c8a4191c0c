"""``rmq-reindex build``, and the entry for spark-submit: ``spark-submit ... jobs/build.py STORE --out DIR ...``.

By itself: spark-submit starts this file, and the start of build imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_build
from rocketmq_reindex.jobs.building.options import parse_settings
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.command.results import Interrupts, Output, show
from rocketmq_reindex.jobs.watching.watch import Watch


def build(arguments: Sequence[str]) -> int:
    """Build, and return the exit status."""
    watch, as_json = Watch("build", json_log=wants_json_log(arguments)), "--json" in arguments
    planned = Output()

    def show_plan(plan: str) -> None:
        if as_json:
            # stdout holds the result alone.
            print(plan, file=sys.stderr)
            return
        with planned:
            print(plan)

    result = run_build(lambda: parse_settings(arguments), watch, Interrupts(), show_plan=show_plan).result
    if as_json or result.plan is None:
        return show(result, as_json, on_stderr=False)
    # A plan has been shown before its warnings.
    return result.exit_status or planned.status


if __name__ == "__main__":
    sys.exit(build(sys.argv[1:]))
