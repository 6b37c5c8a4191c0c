"""``rmq-reindex report``: one HTML page about a build or a verify.

By itself: the start of report imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_report
from rocketmq_reindex.jobs.command.results import show
from rocketmq_reindex.jobs.reporting.make import parse_report


def report(arguments: Sequence[str]) -> int:
    """Write the page. Return the exit status."""
    return show(run_report(lambda: parse_report(arguments)).result, as_json=False)


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
