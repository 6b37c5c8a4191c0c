"""``rmq-reindex report``: one HTML page about a build or a verify.

By itself: the start of report imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.report import parse_report, write_page
from rocketmq_reindex.jobs.command.results import Output


def report(arguments: Sequence[str]) -> int:
    """Write the page. Returns the exit status."""
    with Output() as output:
        print(write_page(parse_report(arguments)))
    return output.status


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
