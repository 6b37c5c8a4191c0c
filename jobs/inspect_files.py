"""``rmq-reindex inspect FILE...``: what files of a store hold.

By itself: the start of inspect imports no other command.
"""

import sys
from collections.abc import Sequence

from rocketmq_reindex.jobs.command.results import Output, OutputError
from rocketmq_reindex.jobs.inspecting.options import Inspection, look, parse_inspection, show_rows, show_summary
from rocketmq_reindex.jobs.store.folders import failures_as_errors
from rocketmq_reindex.jobs.watching import compiling
from rocketmq_reindex.jobs.watching.watch import Stages
from rocketmq_reindex.storage_format.errors import ExitStatus, ReindexError, error_lines


def inspect(arguments: Sequence[str]) -> int:
    """Inspect every file in turn. Return the exit status: 1 where a file could not be read."""
    with Output() as output:
        asked = parse_inspection(arguments)
        shown = 0
        for path in asked.files:
            failed = _show(path, asked, apart=shown > 0 and not asked.json)
            shown += not failed
            output.status = max(output.status, failed)
    return output.status


def _show(path: str, asked: Inspection, apart: bool) -> int:
    """Print one file, ``apart`` from the one before it by an empty line. Return the exit status."""
    try:
        with failures_as_errors(path):
            with Stages(quiet=False, loop=compiling.SCAN, loops={"read": "", "check": compiling.INDEX}) as told:
                inspected = look(path, asked, told)
            if apart:
                print()
            show_summary(inspected.to_dict(), asked.json)
            if asked.records:
                if not asked.json:
                    print()
                show_rows(inspected.records, asked.json)
            sys.stdout.flush()
    except OutputError:
        raise
    except ReindexError as error:
        print(error_lines(str(error)), file=sys.stderr)
        return ExitStatus.FAILED
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(inspect(sys.argv[1:]))
