"""How a store's files are laid out: Java's integers and its text in plain Python, tables of fields, the names of files, and
the kinds of their digests.
"""

from __future__ import annotations

import codecs
import json
import re
import struct
from collections.abc import Iterable
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np

# --------------------------------------------------------------------------------------------------------------------- integers
# Java's signed integers: their bounds, and values that wrap as an ``int`` or a ``long`` does.

INT16_MIN: Final = -0x8000
INT16_MAX: Final = 0x7FFF
INT32_MIN: Final = -0x80000000
INT32_MAX: Final = 0x7FFFFFFF
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
UINT32_MAX: Final = 0xFFFFFFFF


def as_int(value: int) -> int:
    """Return ``value`` of any size as a Java ``int``: its low 32 bits, signed."""
    return (value - INT32_MIN) % 2**32 + INT32_MIN


def as_long(value: int) -> int:
    """Return ``value`` of any size as a Java ``long``: its low 64 bits, signed."""
    return (value - INT64_MIN) % 2**64 + INT64_MIN


# ---------------------------------------------------------------------------------------------------------------------- layouts
# Tables of fields that lie one after another in a file: their order, sizes and names are written down nowhere else.

INT16: Final = "h"
INT32: Final = "i"
INT64: Final = "q"


class Field(NamedTuple):
    """One field: ``name`` as RocketMQ and the messages here call it, ``column`` as this code does, ``kind`` INT16 to INT64."""

    name: str
    column: str
    kind: str


class Layout:
    """Signed big-endian fields without gaps.

    ``size`` is the bytes of all of them, ``at[column]`` the byte at which a field begins. ``pack``, ``unpack``, ``unpack_from``
    and ``iter_unpack`` are those of ``struct.Struct``; ``dtype`` is the numpy type of one row, its fields named by column.
    """

    def __init__(self, *fields: Field) -> None:
        layout = struct.Struct(">" + "".join(field.kind for field in fields))
        sizes = [struct.calcsize(f">{field.kind}") for field in fields]
        self.fields = fields
        self.names = tuple(field.name for field in fields)
        self.columns = tuple(field.column for field in fields)
        self.size: int = layout.size
        self.at = dict(zip(self.columns, accumulate(sizes, initial=0), strict=False))
        self.pack, self.unpack = layout.pack, layout.unpack
        self.unpack_from, self.iter_unpack = layout.unpack_from, layout.iter_unpack

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of one row."""
        # Not above: a query by key reads a few items, and should not wait for numpy.
        import numpy as np

        return np.dtype([(field.column, f">i{struct.calcsize(f'>{field.kind}')}") for field in self.fields])


# ------------------------------------------------------------------------------------------------------------------- file names
# Names of a store's files: each is a number in ASCII digits that fits a signed 64-bit offset (``DefaultMappedFile``).
#
# Names become numbers here and nowhere else: ``str.isdigit`` and ``\d`` take digits of any script, and Python's integers have
# no bounds.

COMMITLOG: Final = "commitlog"
QUEUES: Final = "consumequeue"
BATCH_QUEUES: Final = "batchconsumequeue"
EXT_QUEUES: Final = "consumequeue_ext"
INDEX: Final = "index"
CHECKPOINT: Final = "checkpoint"
CONFIG: Final = "config"
ABORT: Final = "abort"
MOVED: Final = "offsets"
"""what ``repair --to-plain`` says of old and new offsets, beside ``commitlog``: no broker looks at it"""
FOLDERS: Final = (QUEUES, BATCH_QUEUES, INDEX, CONFIG)
"""folders of a store beside ``commitlog``"""
DEFAULT_SEGMENT: Final = 1 << 30
"""bytes of a segment (``mappedFileSizeCommitLog``)"""
DEFAULT_QUEUE_FILE: Final = 300_000 * 20
"""bytes of a ConsumeQueue file (``mappedFileSizeConsumeQueue``)"""
DEFAULT_EXT_FILE: Final = 48 << 20
"""bytes of a file of consumequeue_ext (``mappedFileSizeConsumeQueueExt``)"""
DEFAULT_BATCH_FILE: Final = 300_000 * 46
"""bytes of a batch ConsumeQueue file (``mappedFileSizeBatchConsumeQueue``)"""
DEFAULT_SLOTS: Final = 5_000_000
"""``maxHashSlotNum``"""
DEFAULT_ITEMS: Final = 20_000_000
"""``maxIndexNum``"""
DEFAULT_TIMER_LOG: Final = 100 << 20
"""bytes of a file of timerlog (``mappedFileSizeTimerLog``)"""
FIRST_BYTE_MAX: Final = INT64_MAX + 1 - 2**41
"""The largest first byte of a file that is taken: offsets counted on from there, over files and gaps, still fit 64 bits."""
_FIRST_BYTE: Final = re.compile(r"[0-9]{20}")
_QUEUE_ID: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_NUMBER: Final = re.compile(r"[+-]?\d{1,255}")
_INDEX_FILE: Final = re.compile(r"[0-9]{1,19}")


def first_byte(name: str) -> int | None:
    """Return the offset of the first byte of a segment or a ConsumeQueue file with this name; None where it is no such name."""
    if not _FIRST_BYTE.fullmatch(name):
        return None
    offset = int(name)
    return offset if offset <= FIRST_BYTE_MAX else None


def is_number(name: str) -> bool:
    """Return whether ``Long.parseLong`` takes the name, which it does with a sign and with digits of any script, too.

    A broker does not start on a ConsumeQueue file with a name that is no number.
    """
    return _NUMBER.fullmatch(name) is not None and INT64_MIN <= int(name) <= INT64_MAX


def queue_id(name: str) -> int | None:
    """Return the queue id of a folder with this name; None where it is no such name."""
    if not _QUEUE_ID.fullmatch(name):
        return None
    number = int(name)
    return number if number <= INT32_MAX else None


def is_index_file(name: str) -> bool:
    """Return whether it is the name of an IndexFile, which a broker takes from its clock: a number below 2^63."""
    return _INDEX_FILE.fullmatch(name) is not None and int(name) <= INT64_MAX


# ---------------------------------------------------------------------------------------------------------------------- rocksdb
# Names of RocksDB's files: with ``storeType=defaultRocksDB`` a broker keeps its ConsumeQueues in such files.
#
# They lie directly in ``consumequeue/``. Topics are folders there, so a file of such a name is never a ConsumeQueue's.

SEPARATE: Final = "consumequeue_rocksdb"
"""The folder of the queues with ``useSeparateStorePathForRocksdbCQ`` (``StorePathConfigHelper``, 5.5.0)."""
_FILE: Final = re.compile(r"CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|[0-9]{6,20}\.(?:sst|log|blob)")


def rocksdb_files(names: Iterable[str]) -> list[str]:
    """Return the names that only RocksDB gives, sorted; with none, the files are no RocksDB store.

    ``names`` are those of the files (not of the folders) directly in ``consumequeue/`` or ``consumequeue_rocksdb/``. Its lock
    and its log, ``LOCK`` and ``LOG``, do not count: alone they say nothing. Mirrors ``ConsumeQueueRocksDBStorage`` (5.5.0),
    whose files RocksDB names.
    """
    return sorted(name for name in names if _FILE.fullmatch(name))


# ----------------------------------------------------------------------------------------------------------------- digest kinds
# The kinds of digests that files of this project may have.

KIND: Final = "xxh3-128"
"""what all digests are; a manifest says so"""
EARLIER_KIND: Final = "murmur3-128"
"""what a manifest's digests are that says nothing: its build is older"""


# ------------------------------------------------------------------------------------------------------------------ java string
# Text as Java decodes and hashes it, in plain Python: ``new String(bytes, UTF_8)``, ``String.hashCode``.
#
# Java and Python differ on malformed input (ED A0 80 is one U+FFFD in Java, three in Python), so hashes would differ too.

_HANDLER: Final = "storage-format-java"


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for what Java's ``String.decodeUTF8`` takes as one malformed sequence: a surrogate is one, not
    three."""
    assert isinstance(error, UnicodeDecodeError)
    raw, start = error.object, error.start
    if raw[start] == 0xED and start + 1 < len(raw) and 0xA0 <= raw[start + 1] <= 0xBF:
        whole = start + 2 < len(raw) and 0x80 <= raw[start + 2] <= 0xBF
        return "\ufffd", start + (3 if whole else 2)
    return "\ufffd", error.end


codecs.register_error(_HANDLER, _as_java)


def java_text(raw: bytes) -> str:
    """Return ``new String(raw, UTF_8)`` as a Python string, which has no lone surrogates."""
    return raw.decode("utf-8", _HANDLER)


def string_hash(text: str) -> int:
    """Return ``String.hashCode`` of a text: over its UTF-16 code units, as a Java int."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = as_int(31 * value + (units[at] << 8 | units[at + 1]))
    return value


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which an IndexFile keeps a key (``IndexFile.indexKeyHashMethod``); abs(-2147483648) counts as 0."""
    value = abs(string_hash(f"{topic}#{key}"))
    return 0 if value > INT32_MAX else value


def tag_hash(topic: str, tag: str) -> int:
    """Return the hash under which an IndexFile keeps a record's TAGS: that of ``topic#T#TAGS`` (``IndexService.buildIndex``,
    5.4)."""
    return key_hash(topic, f"T#{tag}")


# -------------------------------------------------------------------------------------------------------------------- fast json
# JSON as fastjson writes it (``RemotingSerializable`` of 4.9 and 5.x): keys that are numbers stand without quotes.

_KEYS: Final = re.compile(r'("(?:[^"\\]|\\.)*"?)|([{,]\s*)(-?[0-9]+)(?=\s*:)')


def loads(text: str) -> Any:
    """Return JSON as ``json.loads`` reads it; keys that are numbers become texts. Raises ValueError, RecursionError."""
    return json.loads(_KEYS.sub(lambda match: match[1] or f'{match[2]}"{match[3]}"', text))
