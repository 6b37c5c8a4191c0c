"""``rmq-reindex preflight STORE --broker-version V``: what the start of a broker will do to a store, without a broker.

By itself: the start of preflight imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_preflight
from rocketmq_reindex.jobs.command.results import show
from rocketmq_reindex.jobs.preflighting.options import parse_preflight


def preflight(arguments: Sequence[str]) -> int:
    """Work out a start. Return the exit status: 0 where it loses nothing, 4 where it loses or hides something."""
    return show(run_preflight(lambda: parse_preflight(arguments)).result, "--json" in arguments)


if __name__ == "__main__":
    sys.exit(preflight(sys.argv[1:]))
