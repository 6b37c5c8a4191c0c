"""``rmq-reindex inspect FILE...``: what one file of a store holds, by its kind."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rocketmq_reindex.jobs.command.options import any_text, command_parser
from rocketmq_reindex.jobs.inspecting.kinds import KINDS, QUEUE, kind_of
from rocketmq_reindex.jobs.inspecting.show import Row, show_rows, show_summary
from rocketmq_reindex.jobs.store.folders import reason
from rocketmq_reindex.storage_format.errors import InputError, ReindexError, UsageError
from rocketmq_reindex.storage_format.findings import UnreadableError
from rocketmq_reindex.storage_format.names import escape, redacted
from rocketmq_reindex.udfs import files


def build_parser() -> argparse.ArgumentParser:
    """``rmq-reindex inspect ...``."""
    parser = command_parser(
        "rmq-reindex inspect",
        "Say what a segment, ConsumeQueue file, IndexFile or checkpoint holds, and what is wrong with it.",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="files of a store")
    add("--kind", choices=KINDS, help="what the files are (told by their folder, name and content)")
    add("--records", action="store_true", help="also every record, unit or item that the file holds")
    add("--json", action="store_true", help="one JSON object a line")
    add("--hash-slots", type=int, metavar="N", help="slots of an IndexFile (told by the file)")
    add("--index-items", type=int, metavar="N", help="items of an IndexFile, as maxIndexNum (told by the file)")
    add(
        "--first-offset",
        type=int,
        metavar="N",
        help="where the file begins: a segment in the log, a ConsumeQueue file in its queue, both in bytes (told by the name, "
        "or by a segment's records)",
    )
    add("--segment-size", type=int, metavar="BYTES", help="size of a whole segment (that of the first beside it)")
    return parser


def inspect(arguments: Sequence[str]) -> int:
    """Every file in turn; returns the exit status: 1 where one could not be looked at."""
    status = 0
    any_text()
    try:
        asked = build_parser().parse_args(arguments)
        if (asked.hash_slots is None) != (asked.index_items is None):
            raise UsageError("rmq-reindex inspect: --hash-slots and --index-items go together: see --help")
        for name in ("hash_slots", "index_items", "segment_size"):
            if getattr(asked, name) is not None and getattr(asked, name) < 1:
                raise UsageError(f"rmq-reindex inspect: --{name.replace('_', '-')} takes a number above 0: see --help")
        if asked.first_offset is not None and (len(asked.files) > 1 or not 0 <= asked.first_offset < 2**63):
            raise UsageError("rmq-reindex inspect: --first-offset takes a number from 0 on, and one FILE: see --help")
        shown = 0
        for path in asked.files:
            failed = _inspect(path, asked, apart=shown > 0 and not asked.json)
            shown += not failed
            status = max(status, failed)
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 1
    return status


def _inspect(path: str, asked: argparse.Namespace, apart: bool) -> int:
    """One file, ``apart`` from the one before it by an empty line; returns the exit status."""
    try:
        path = files.checked(path)
        entry = files.look(path)
        if entry.kind != files.FILE:
            what = "is not there" if entry.kind == files.ABSENT else "is no file"
            raise InputError(f"{escape(path)}: {what}: give files of a store")
        kind = asked.kind or kind_of(path)
        summary, rows = _look(kind, path, asked)
        if apart:
            print()
        show_summary({"file": redacted(path), "kind": kind, **summary}, asked.json)
        if asked.records:
            if not asked.json:
                print()
            show_rows(rows, asked.json)
        sys.stdout.flush()
    except UnreadableError as error:
        print(f"error: {escape(path)}: {error}", file=sys.stderr)
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        print(f"error: {escape(path)}: {reason(error)}", file=sys.stderr)
    else:
        return 0
    return 1


def _look(kind: str, path: str, asked: argparse.Namespace) -> tuple[dict[str, Any], Iterator[Row]]:
    """(summary, records): modules that compile are imported for their own kind alone."""
    if kind == "segment":
        from rocketmq_reindex.jobs.inspecting.segment import segment

        return segment(path, asked.segment_size, asked.first_offset)
    if kind == "index":
        from rocketmq_reindex.jobs.inspecting.index import index

        return index(path, None if asked.hash_slots is None else (asked.hash_slots, asked.index_items))
    if kind == "checkpoint":
        from rocketmq_reindex.jobs.inspecting.checkpoint import checkpoint

        return checkpoint(path)
    from rocketmq_reindex.jobs.inspecting.queue import batch_queue, queue

    return (queue if kind == QUEUE else batch_queue)(path, asked.first_offset)


if __name__ == "__main__":
    sys.exit(inspect(sys.argv[1:]))
