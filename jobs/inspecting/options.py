"""The options of ``rmq-reindex inspect``, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocketmq_reindex.jobs.command.options import command_parser
from rocketmq_reindex.jobs.inspecting.kinds import KINDS
from rocketmq_reindex.storage_format.errors import UsageError
from rocketmq_reindex.storage_format.integers import INT64_MAX


@dataclass(frozen=True)
class Inspection:
    """Which files are inspected, and how. Sizes and offsets are in bytes; None: taken from the file."""

    files: tuple[str, ...]
    kind: str | None = None
    records: bool = False
    json: bool = False
    hash_slots: int | None = None
    index_items: int | None = None
    first_offset: int | None = None
    segment_size: int | None = None

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Slots and items of an IndexFile, where they are given."""
        return None if self.hash_slots is None or self.index_items is None else (self.hash_slots, self.index_items)

    def check(self) -> Inspection:
        """Raises UsageError for values that no file can have."""
        if not all(self.files):
            raise UsageError("rmq-reindex inspect: a FILE has no name: see --help")
        if (self.hash_slots is None) != (self.index_items is None):
            raise UsageError("rmq-reindex inspect: --hash-slots and --index-items go together: see --help")
        for name in ("hash_slots", "index_items", "segment_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"rmq-reindex inspect: --{name.replace('_', '-')} takes a number above 0: see --help")
        if self.first_offset is not None and (len(self.files) > 1 or not 0 <= self.first_offset <= INT64_MAX):
            raise UsageError("rmq-reindex inspect: --first-offset takes a number from 0 on, and one FILE: see --help")
        return self


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``rmq-reindex inspect``."""
    parser = command_parser(
        "rmq-reindex inspect",
        "Say what a segment, ConsumeQueue file, IndexFile, checkpoint or timer file holds, and what is wrong with it.",
    )
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="files of a store")
    add("--kind", choices=KINDS, help="kind of the files (by folder, name and content)")
    add("--records", action="store_true", help="also list every record, unit or item of the file")
    add("--json", action="store_true", help="print one JSON object per line")
    add("--hash-slots", type=int, metavar="N", help="number of slots of an IndexFile (taken from the file)")
    add(
        "--index-items",
        type=int,
        metavar="N",
        help="number of items of an IndexFile, as maxIndexNum (taken from the file)",
    )
    add(
        "--first-offset",
        type=int,
        metavar="N",
        help="offset of the file's first byte: of a segment in the log, of a ConsumeQueue file in its queue (by the "
        "file's name, or by a segment's records)",
    )
    add(
        "--segment-size",
        type=int,
        metavar="BYTES",
        help="size of a whole segment, in bytes (that of the first segment beside the file)",
    )
    return parser


def parse_inspection(arguments: Sequence[str]) -> Inspection:
    """What the words behind ``inspect`` ask for. Raises UsageError."""
    return inspection(vars(build_parser().parse_args(arguments)))


def inspection(given: Mapping[str, Any]) -> Inspection:
    """What options ask for, by the names of the parser. Raises UsageError."""
    return Inspection(**{**given, "files": tuple(given["files"])}).check()
