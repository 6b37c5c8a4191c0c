"""``rmq-reindex fetch BUILD --to DIR``: lay a build out in a broker's store, checked, and swapped in all at once.

By itself: the start of fetch imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_fetch
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.command.results import show
from rocketmq_reindex.jobs.fetching.options import parse_fetch


def fetch(arguments: Sequence[str]) -> int:
    """Fetch, and return the exit status."""
    return show(run_fetch(lambda: parse_fetch(arguments), Interrupts()).result, "--json" in arguments)


if __name__ == "__main__":
    sys.exit(fetch(sys.argv[1:]))
