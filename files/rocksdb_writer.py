"""Write a new RocksDB database: tables of sorted pairs (SST files), and the database that takes them in.

What is written, the RocksDB of a broker reads, 8.4.4 and its like: tables of format 5, and no kind of checksum or compression
that is newer.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

_MISSING: Final = "ConsumeQueues in RocksDB are written with rocksdict: pip install 'rocketmq-reindex[rocksdb]'"
_FORMAT: Final = 5
"""``RocksDBOptionsFactory.createCQCFOptions`` (5.3.3); brokers refuse 6"""
_BLOCK: Final = 32 << 10
_BLOOM_BITS: Final = 16
_OWN: Final = re.compile(r"rocksdict-config\.json|LOCK|LOG(?:\.old\.[0-9]+)?|[0-9]+\.log")
"""what the library leaves that is no part of the database: its settings, lock, log, and a write-ahead log without a pair"""


def library() -> ModuleType:
    """Return the library that writes RocksDB's files. Raises InputError where it is not installed."""
    try:
        import rocksdict
    except ImportError:
        raise InputError(_MISSING) from None
    return rocksdict


@contextlib.contextmanager
def _failures(path: str) -> Iterator[None]:
    """Raise InputError for what RocksDB says: it raises plain exceptions."""
    try:
        yield
    except (InputError, OSError, MemoryError):
        raise
    except Exception as error:
        raise InputError(f"{escape(path)}: RocksDB cannot write it: {escape(str(error), 300)}") from error


def _options(rocksdb: Any, compressed: bool) -> Any:
    """Return options as a broker has them (``RocksDBOptionsFactory``, 5.3.3): of units, ``compressed``, or of ends."""
    table = rocksdb.BlockBasedOptions()
    table.set_format_version(_FORMAT)
    table.set_block_size(_BLOCK)
    table.set_checksum_type(rocksdb.ChecksumType.crc32c())
    table.set_bloom_filter(_BLOOM_BITS, False)
    options = rocksdb.Options(raw_mode=True)
    options.set_block_based_table_factory(table)
    kinds = rocksdb.DBCompressionType
    options.set_compression_type(kinds.lz4() if compressed else kinds.none())
    options.set_num_levels(7)
    if compressed:
        options.set_compaction_style(rocksdb.DBCompactionStyle.universal())
    # The broker compacts, by its own settings.
    options.set_disable_auto_compactions(True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_open_files(-1)
    return options


def write_table(path: str, parts: Iterable[tuple[Sequence[bytes], Sequence[bytes]]], compressed: bool) -> None:
    """Write a table of pairs: (keys, values) of each part, all keys in ascending order, at least one.

    Raises InputError where RocksDB cannot write it, or is not there.
    """
    rocksdb: Any = library()
    with _failures(path):
        writer = rocksdb.SstFileWriter(_options(rocksdb, compressed))
        writer.open(path)
        for keys, values in parts:
            deque(map(writer.__setitem__, keys, values), 0)
        writer.finish()


def make_database(folder: str, tables: Mapping[str, Sequence[str]], compressed: str) -> list[str]:
    """Make a database in ``folder`` that has ``tables`` by column family, ``default`` among them; these are moved into it.

    The keys of a family's tables lie apart. ``compressed`` is the family that is. Return the names of the database's files.
    Raises InputError.
    """
    rocksdb: Any = library()
    with _failures(folder):
        families = {name: _options(rocksdb, name == compressed) for name in tables}
        default = families.pop("default")
        database = rocksdb.Rdict(folder, default, column_families=families)
        try:
            for name, paths in tables.items():
                if paths:
                    moving = rocksdb.IngestExternalFileOptions()
                    moving.set_move_files(True)
                    family = database if name == "default" else database.get_column_family(name)
                    family.ingest_external_file(list(paths), moving)
                    del family
        finally:
            database.close()
    for name in os.listdir(folder):
        if _OWN.fullmatch(name):
            os.unlink(os.path.join(folder, name))
    return sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)))
