"""``rmq-reindex verify``, and the entry for spark-submit: ``spark-submit ... jobs/verify.py STORE ...``.

By itself: spark-submit starts this file, and the start of verify imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.run_verify import run_verify
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.command.results import Output
from rocketmq_reindex.jobs.verifying.options import parse_verify
from rocketmq_reindex.jobs.watch import Watch


def verify(arguments: Sequence[str]) -> int:
    """One verify. Returns the exit status: 0 clean, 4 differences, 1 an error, 2 wrong usage."""
    watch = Watch("verify", json_log=wants_json_log(arguments))
    ended = run_verify(lambda: parse_verify(arguments), watch, Interrupts())
    with Output() as output:
        output.status = ended.summary.exit
        for line in [ended.summary.to_json()] if "--json" in arguments else ended.lines:
            print(line)
    return output.status


if __name__ == "__main__":
    sys.exit(verify(sys.argv[1:]))
