"""What a command prints, and with which exit status it ends.

By itself: query and inspect start with little else.
"""

from __future__ import annotations

import sys

from rocketmq_reindex.jobs.command.options import any_text, no_more_output
from rocketmq_reindex.storage_format.errors import ReindexError, error_lines


class Output:
    """What a command prints, while this lasts. An error of the package becomes its line on stderr, and ``status`` that of it.

    Where the reader of stdout has closed the pipe, the command has said enough: ``status`` stays what it is.
    """

    def __init__(self) -> None:
        self.status = 0
        """the exit status of the command"""

    def __enter__(self) -> Output:
        any_text()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        try:
            if error is None:
                sys.stdout.flush()
        except BrokenPipeError as closed:
            error = closed
        if isinstance(error, ReindexError):
            print(error_lines(str(error)), file=sys.stderr)
            self.status = error.exit_status
        elif isinstance(error, BrokenPipeError):
            no_more_output()
        else:
            return False
        return True
