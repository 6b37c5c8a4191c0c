"""``rmq-reindex query``: messages by key, tag, id, queue offset, time or physical offset, without broker and Spark.

By itself: the start of query imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.command.results import Output
from rocketmq_reindex.jobs.querying import answer as querying_answer, options, search as querying_search
from rocketmq_reindex.jobs.store.folders import Notes, failures_as_errors
from rocketmq_reindex.jobs.watching import compiling
from rocketmq_reindex.jobs.watching.stages import Stages
from rocketmq_reindex.storage_format.errors import ExitStatus


def query(arguments: Sequence[str]) -> int:
    """Answer one question. Returns the exit status: 1 also where nothing was found and something could not be read."""
    notes = Notes()
    with Output() as output:
        with failures_as_errors("STORE"):
            asked = options.parse_query(arguments)
            stages = Stages(quiet=False, loop=compiling.SCAN)
            with (
                stages,
                querying_search.Search(
                    asked.store, asked.roots, notes, sizes=asked.sizes, scan=asked.scan, progress=stages
                ) as search,
            ):
                found = querying_answer.show(querying_answer.answer(asked, search), search.log, asked, notes)
            notes.close()
        output.status = ExitStatus.FAILED if notes.lost and not found else ExitStatus.DONE
    return output.status


if __name__ == "__main__":
    sys.exit(query(sys.argv[1:]))
