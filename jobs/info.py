"""``rmq-reindex info STORE``: what is in a store, what is missing or stale, and what to run next.

By itself: the start of info imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_info
from rocketmq_reindex.jobs.command.results import show
from rocketmq_reindex.jobs.describing.look import parse_info


def info(arguments: Sequence[str]) -> int:
    """Look at a store, and return the exit status: 0 also where something is missing in the store."""
    return show(run_info(lambda: parse_info(arguments)).result, "--json" in arguments)


if __name__ == "__main__":
    sys.exit(info(sys.argv[1:]))
