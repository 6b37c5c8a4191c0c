"""``rmq-reindex fetch BUILD --to DIR``: lay a build out in a broker's store, checked, and swapped in all at once.

By itself: the start of fetch imports no other command.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.run_fetch import run_fetch
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.command.results import Output
from rocketmq_reindex.jobs.fetching.options import parse_fetch
from rocketmq_reindex.storage_format.errors import error_lines


def fetch(arguments: Sequence[str]) -> int:
    """One fetch. Returns the exit status."""
    ended = run_fetch(lambda: parse_fetch(arguments), Interrupts())
    summary = ended.summary
    for warning in summary.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    for note in summary.notes:
        print(f"note: {note}", file=sys.stderr)
    if summary.error:
        print(error_lines(summary.error), file=sys.stderr)
    with Output() as output:
        output.status = summary.exit
        if "--json" in arguments:
            print(json.dumps(dataclasses.asdict(summary)))
        elif not summary.error:
            print("\n".join(ended.lines))
    return output.status


if __name__ == "__main__":
    sys.exit(fetch(sys.argv[1:]))
