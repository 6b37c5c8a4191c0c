"""``rmq-reindex report``: one HTML page about a build or a verify.

By itself: the start of report imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.report import parse_report, write_page
from rocketmq_reindex.storage_format.errors import ReindexError, error_lines


def report(arguments: Sequence[str]) -> int:
    """Write the page. Returns the exit status."""
    try:
        print(write_page(parse_report(arguments)))
    except ReindexError as error:
        print(error_lines(str(error)), file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
