"""``rmq-reindex report``: one HTML page about a build or a verify."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.publishing.whole_file import write_whole
from rocketmq_reindex.jobs.reporting.make import make_page
from rocketmq_reindex.jobs.reporting.options import parse_report
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.storage_format.names import escape


def report(arguments: Sequence[str]) -> int:
    """Write the page. Returns the exit status."""
    try:
        settings = parse_report(arguments)
        text = make_page(settings.source, settings.store, settings.summary)
        write_whole(settings.out, text)
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except OSError as error:
        where = escape(str(error.filename)) if error.filename else "input or output"
        print(f"error: {where}: {error.strerror or escape(str(error))}", file=sys.stderr)
        return 1
    print(f"wrote    {escape(settings.out)}, {len(text.encode()):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:]))
