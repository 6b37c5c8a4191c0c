"""``rmq-reindex query``: messages of a store by key, id, queue offset, time or place, without a broker and without Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from rocketmq_reindex.jobs.command.options import any_text
from rocketmq_reindex.jobs.querying.options import Query, parse_query
from rocketmq_reindex.jobs.querying.search import Search
from rocketmq_reindex.jobs.querying.show import Shown, show
from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.jobs.store.notes import Notes
from rocketmq_reindex.storage_format.errors import ReindexError
from rocketmq_reindex.storage_format.names import escape


def query(arguments: Sequence[str]) -> int:
    """One question; returns the exit status: 1 also where nothing was found and something could not be read."""
    notes = Notes()
    any_text()
    try:
        asked = parse_query(arguments)
        with Search(asked.store, asked.roots, notes, sizes=asked.sizes, scan=asked.scan) as search:
            found = show(_answer(asked, search), search.log, asked, notes)
        notes.close()
        return 1 if notes.lost and not found else 0
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        # Whoever read the answer has seen enough: nothing more may be written, at the exit neither.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError) as error:
        # ValueError: of pyarrow, a URI that it does not know.
        where = getattr(error, "filename", None)
        print(f"error: {escape(str(where)) if where else 'STORE'}: {reason(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 1


def _answer(asked: Query, search: Search) -> Iterator[Shown]:
    if asked.queue is not None:
        assert asked.topic is not None
        served = search.by_queue(asked.topic, asked.queue, asked.offset, asked.time, asked.max or 1)
        return (Shown(message, offset) for offset, message in served)
    if asked.id is not None:
        found = search.by_id(asked.id, asked.topic)
    elif asked.physical is not None:
        found = search.by_place(asked.physical)
    else:
        assert asked.topic is not None
        assert asked.key is not None
        found = search.by_key(asked.topic, asked.key, asked.in_time, asked.max)
    return (Shown(message, None) for message in found)


if __name__ == "__main__":
    sys.exit(query(sys.argv[1:]))
