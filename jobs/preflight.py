"""``rmq-reindex preflight STORE --broker-version V``: what the start of a broker will do to a store, without a broker."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.api.run_preflight import run_preflight
from rocketmq_reindex.jobs.command.options import any_text
from rocketmq_reindex.jobs.preflighting.options import parse_preflight


def preflight(arguments: Sequence[str]) -> int:
    """One preflight. Returns the exit status: 0 where the start loses nothing, 4 where it loses or hides something."""
    any_text()
    ended = run_preflight(lambda: parse_preflight(arguments))
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
    sys.exit(preflight(sys.argv[1:]))
