"""``rmq-reindex query``: messages by key, tag, id, queue offset, time or physical offset, without broker and Spark.

By itself: the start of query imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_query
from rocketmq_reindex.jobs.command.results import Output
from rocketmq_reindex.jobs.querying import answer as querying_answer, options
from rocketmq_reindex.jobs.store.folders import Notes


def query(arguments: Sequence[str]) -> int:
    """Answer one question. Return the exit status: 1 also where nothing was found and something could not be read."""
    with Output() as output:
        output.status = run_query(lambda: options.parse_query(arguments), Notes(), querying_answer.show)
    return output.status


if __name__ == "__main__":
    sys.exit(query(sys.argv[1:]))
