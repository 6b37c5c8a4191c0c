"""``rmq-reindex info STORE``: what is in a store, what is missing or stale, and what to run next."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.run_info import run_info
from rocketmq_reindex.jobs.command.options import any_text
from rocketmq_reindex.jobs.describing.options import parse_info


def info(arguments: Sequence[str]) -> int:
    """One look at a store. Returns the exit status: 0 also where something is missing in the store."""
    any_text()
    ended = run_info(lambda: parse_info(arguments))
    summary = ended.summary
    try:
        if "--json" in arguments:
            print(json.dumps(dataclasses.asdict(summary)))
        elif ended.lines:
            print("\n".join(ended.lines))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if summary.error:
        print(f"error: {summary.error}", file=sys.stderr)
    return summary.exit


if __name__ == "__main__":
    sys.exit(info(sys.argv[1:]))
