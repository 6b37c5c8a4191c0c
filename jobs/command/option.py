"""What an option is, how the text of its value is read, and the words that an option with choices takes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import UsageError

# ---------------------------------------------------------------------------------------------------------------------- choices
# The words of options with choices: the table takes them from here, and so do the signatures of the Python API.

OnDamage = Literal["fail", "stop", "salvage"]
QueueOrder = Literal["logical", "broker", "fail"]
Crc = Literal["none", "body", "all"]
CheckpointKind = Literal["safe", "broker"]
CqExt = Literal["none", "plain", "bitmap"]
ConsumeQueueType = Literal["file", "rocksdb", "both"]
ExpiredQueues = Literal["drop", "keep"]
Undecided = Literal["deliver", "drop"]
Engine = Literal["spark", "local"]
Link = Literal["reflink", "hard", "none"]
Merge = Literal["highest", "lowest"]
Progress = Literal["lines", "json"]
LogFormat = Literal["text", "json"]
ExportFormat = Literal["jsonl", "csv", "parquet", "delta", "iceberg", "store"]
ExportBody = Literal["unpacked", "stored", "none"]
RecordKind = Literal[
    "message", "retry", "dead_letter", "half", "op", "given_up", "scheduled", "timer", "pop", "trace", "system", "all"
]  # fmt: skip
BodyForm = Literal["text", "json", "hex", "none"]
Abort = Literal["yes", "no"]
FileKind = Literal[
    "segment", "consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "checkpoint", "timercheck", "timerlog",
    "timerwheel", "epochFileCheckpoint",
]  # fmt: skip

# ----------------------------------------------------------------------------------------------------------------------- option
# One option, as the table declares it.


class Option(NamedTuple):
    """An option of one command or of several. What reads it: the parsers, the settings, the docs and the Python API."""

    help: str
    """what ``--help`` says of it, without the default"""
    metavar: str = ""
    """what ``--help`` calls its value. Without one, and without ``choices``, it is a switch"""
    type: Callable[[str], object] | None = None
    """what reads its text, and raises UsageError or ValueError for a wrong one"""
    default: Any = None
    """the value of its setting where it is left out"""
    shown: str | None = None
    """what ``--help`` shows as its default, with ``{}`` for ``default``; None for ``default`` by itself"""
    choices: tuple[str, ...] = ()
    group: str = ""
    """the title above it in ``--help``"""
    dest: str = ""
    """the name of its setting, where it is another than that of the option"""
    nargs: str = ""
    """``1``, ``?`` or ``+``: it is no option but an argument. ``append``: an option that may be repeated"""
    required: bool = False
    conf: str = ""
    """the setting of a broker.conf that stands for it (``MessageStoreConfig``)"""
    text: str = ""
    """what the Python API says of it, where that is more than ``help`` says"""
    others: tuple[tuple[str, dict[str, Any]], ...] = ()
    """what is otherwise in other commands: their names, and fields of this class"""

    @property
    def is_argument(self) -> bool:
        """Whether it is named by its place."""
        return self.nargs in ("1", "?", "+")

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value."""
        return not self.metavar and not self.choices

    @property
    def default_text(self) -> str:
        """The default as ``--help`` shows it; "" for none."""
        value = ",".join(self.default) if isinstance(self.default, tuple) else str(self.default)
        if self.shown is None:
            return "" if self.default is None else value
        return self.shown.replace("{}", value)

    @property
    def full_help(self) -> str:
        """What ``--help`` says of it."""
        return f"{self.help} ({self.default_text})" if self.default_text else self.help

    def of(self, command: str) -> Option:
        """Return the option as a command has it."""
        return next((self._replace(**fields) for names, fields in self.others if command in names.split()), self)

    def but(self, commands: str, **fields: Any) -> Option:
        """Return the option with other ``fields`` in ``commands``, their names in one text."""
        return self._replace(others=(*self.others, (commands, fields)))


# ---------------------------------------------------------------------------------------------------------------------- reading
# How the text of a value is read. What a start need not import is imported where it is read.

PARTS: Final = (layouts.QUEUES, layouts.INDEX, layouts.CHECKPOINT)
"""what a build makes"""


def parts_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return what reads ``index,checkpoint`` as parts, in their usual order; it raises UsageError for others than ``known``."""

    def parse(text: str) -> tuple[str, ...]:
        asked = [name.strip() for name in text.split(",")]
        if any(name not in known for name in asked):
            raise UsageError(f"--only {text!a}: take one or more of {', '.join(known)}, separated by commas")
        return tuple(part for part in known if part in asked)

    return parse


def parse_window(policy: str) -> int:
    """Return ``window:1h`` as milliseconds, and ``capacity`` as 0. Raises UsageError."""
    from rocketmq_reindex.udfs.times import UNITS

    if policy == "capacity":
        return 0
    match = re.fullmatch(r"window:(\d{1,12})(ms|s|m|h|d)", policy)
    window = int(match[1]) * UNITS[match[2]] if match else 0
    if not window:
        raise UsageError(f"--index-policy {policy!a}: take capacity, or window: and a time such as 30m, 1h or 1d")
    if window > layouts.INT64_MAX:
        raise UsageError(f"--index-policy {policy!a}: more milliseconds than 64 bits hold: take a shorter time")
    return window


def parse_version(text: str) -> str:
    """Return the line of a release, or of a line, as ``--broker-version`` takes both. Raises UsageError."""
    from rocketmq_reindex.storage_format.versions import line_of

    try:
        return line_of(text)
    except ValueError as error:
        raise UsageError(f"--broker-version {error}") from None


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Return ``1s 5s ... 2h`` as milliseconds. Raises UsageError."""
    from rocketmq_reindex.udfs.times import delay_levels

    try:
        return delay_levels(text)
    except ValueError as error:
        raise UsageError(f"--delay-levels: {error}") from None


def time_for(option: str) -> Callable[[str], int]:
    """Return what reads a time: milliseconds since 1970, or ISO with its zone. It raises UsageError."""

    def parse(text: str) -> int:
        from rocketmq_reindex.udfs.times import parse_time

        return parse_time(text, option)

    return parse


def checked(check: Callable[[str], object]) -> Callable[[str], str]:
    """Return what keeps a text as it is, once ``check`` has taken it."""

    def text_of(text: str) -> str:
        check(text)
        return text

    return text_of


def on_disk(option: str, what: str) -> Callable[[str], str]:
    """Return what takes a path and no URI, for what is read or written on a disk alone. It raises UsageError."""

    def parse(text: str) -> str:
        from rocketmq_reindex import files
        from rocketmq_reindex.storage_format.showing import escape

        if text == "-":
            # Elsewhere it means stdout or stdin: here it would be the name of a file.
            raise UsageError(f"{option} -: is no name of a {what}: name one, or ./- for one of that name".lstrip())
        if files.is_remote(text):
            raise UsageError(f"{option} {escape(text)}: is a URI: name a {what} on a disk".lstrip())
        return text

    return parse


def as_java_reads(given: str) -> str:
    """Return a text as Java would read it: bytes on a command line need not be text."""
    from rocketmq_reindex.storage_format.layouts import java_text

    return java_text(os.fsencode(given))
