"""``rmq-reindex inspect FILE...``: what one file of a store holds, by its kind."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from jobs.command.options import any_text, command_parser
from jobs.inspecting.kinds import KINDS, kind_of
from jobs.inspecting.show import Row, show_rows, show_summary
from jobs.store.folders import reason
from storage_format.errors import InputError, ReindexError, UsageError
from storage_format.findings import UnreadableError
from storage_format.names import escape, redacted
from udfs import files


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
        for path in asked.files:
            status = max(status, _inspect(path, asked))
    except ReindexError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return 1
    return status


def _inspect(path: str, asked: argparse.Namespace) -> int:
    """One file; returns the exit status."""
    try:
        path = files.checked(path)
        entry = files.look(path)
        if entry.kind != files.FILE:
            what = "is not there" if entry.kind == files.ABSENT else "is no file"
            raise InputError(f"{escape(path)}: {what}: give files of a store")
        kind = asked.kind or kind_of(path)
        summary, rows = _look(kind, path, asked)
        show_summary({"file": redacted(path), "kind": kind, **summary}, asked.json)
        if asked.records:
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
        from jobs.inspecting.segment import segment

        return segment(path, asked.segment_size)
    if kind == "index":
        from jobs.inspecting.index import index

        return index(path, None if asked.hash_slots is None else (asked.hash_slots, asked.index_items))
    if kind == "checkpoint":
        from jobs.inspecting.checkpoint import checkpoint

        return checkpoint(path)
    from jobs.inspecting.queue import batch_queue, queue

    return queue(path) if kind == "consumequeue" else batch_queue(path)


if __name__ == "__main__":
    sys.exit(inspect(sys.argv[1:]))
