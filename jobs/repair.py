"""``rmq-reindex repair``, and the entry for spark-submit: ``spark-submit ... jobs/repair.py STORE --out DIR ...``.

By itself: spark-submit starts this file, and the start of repair imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.running import run_repair
from rocketmq_reindex.jobs.command.options import wants_json_log
from rocketmq_reindex.jobs.command.results import Interrupts, Output, show
from rocketmq_reindex.jobs.repairing.options import explain, explained, parse_settings
from rocketmq_reindex.jobs.watching.watch import Watch


def repair(arguments: Sequence[str]) -> int:
    """Repair a log, or explain a repair. Return the exit status."""
    manifest = None
    with Output() as output:
        manifest = explained(arguments)
        for line in explain(manifest) if manifest is not None else ():
            print(line)
    if manifest is not None or output.status:
        return output.status
    watch = Watch("repair", json_log=wants_json_log(arguments))
    result = run_repair(lambda: parse_settings(arguments), watch, Interrupts()).result
    return show(result, "--json" in arguments, on_stderr=False)


if __name__ == "__main__":
    sys.exit(repair(sys.argv[1:]))
