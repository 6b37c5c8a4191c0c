"""``rmq-reindex verify``, and the entry for spark-submit: ``spark-submit ... jobs/verify.py STORE ...``.

By itself: spark-submit starts this file, and the start of verify imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_verify
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.command.results import Interrupts, show
from rocketmq_reindex.jobs.verifying.options import parse_verify
from rocketmq_reindex.jobs.watching.watch import Watch


def verify(arguments: Sequence[str]) -> int:
    """Verify a store. Return the exit status: 0 clean, 4 differences, 1 an error, 2 wrong usage."""
    watch = Watch("verify", json_log=wants_json_log(arguments))
    result = run_verify(lambda: parse_verify(arguments), watch, Interrupts()).result
    return show(result, "--json" in arguments, on_stderr=False)


if __name__ == "__main__":
    sys.exit(verify(sys.argv[1:]))
