"""``rmq-reindex repair``, and the entry for spark-submit: ``spark-submit ... jobs/repair.py STORE --out DIR ...``.

By itself: spark-submit starts this file, and the start of repair imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_build
from rocketmq_reindex.jobs.command.failures import Interrupts
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.repairing.explain import explain
from rocketmq_reindex.jobs.repairing.options import explained, parse_settings
from rocketmq_reindex.jobs.watch import Watch
from rocketmq_reindex.storage_format.errors import ReindexError, error_lines


def repair(arguments: Sequence[str]) -> int:
    """One repair, or the explanation of one. Returns the exit status."""
    try:
        manifest = explained(arguments)
        if manifest is not None:
            for line in explain(manifest):
                print(line)
            return 0
    except ReindexError as error:
        print(error_lines(str(error)), file=sys.stderr)
        return error.exit_status
    watch = Watch("repair", json_log=wants_json_log(arguments))
    ended = run_build(lambda: parse_settings(arguments), watch, Interrupts(), command="repair")
    summary = ended.summary
    if "--json" in arguments:
        print(summary.to_json())
    elif not summary.error:
        for line in ended.lines:
            print(line)
    return summary.exit


if __name__ == "__main__":
    sys.exit(repair(sys.argv[1:]))
