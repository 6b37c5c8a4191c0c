"""RocksDB databases: one is read, and its folder left as it is; a new one is made, of tables of sorted pairs (SST files).

RocksDB locks a database that it opens for writing, and the library keeps a file of its own in the folder. So a database is
opened for reading alone, in a temporary folder of links to its files. What is written, the RocksDB of a broker reads, 8.4.4 and
its like: tables of format 5, and no kind of checksum or compression that is newer.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from rocketmq_reindex.files.entries import FILE, listing
from rocketmq_reindex.files.uris import is_remote
from rocketmq_reindex.storage_format import layouts
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from rocksdict import Rdict

_COPIED: Final = ("CURRENT", "IDENTITY", "MANIFEST-", "OPTIONS-")
"""what a running broker replaces or appends to; the rest it only adds and deletes"""
_TRIES: Final = 10
"""times that a database is opened while its files change"""
_LINKS: Final = "rmq-reindex-rocksdb-"
_LINKED: Final = re.compile(rf"[^\s:]*/{_LINKS}[^/\s]*/")
"""the folder of links, as an error has it before the name of a file"""
_READ_AHEAD: Final = 2 << 20
_MISSING: Final = "RocksDB is read and written with rocksdict: pip install 'rocketmq-reindex[rocksdb]'"


def library() -> ModuleType:
    """Return the library that reads and writes RocksDB's files. Raises InputError where it is not installed."""
    try:
        import rocksdict
    except ImportError:
        raise InputError(_MISSING) from None
    return rocksdict


# ---------------------------------------------------------------------------------------------------------------------- reading

_OF_SYSTEM: Final = tuple(map(os.strerror, (errno.EACCES, errno.EMFILE, errno.ENFILE, errno.ENOMEM)))
"""what RocksDB says where the system let it open no file: the files may be sound"""


def is_broken(cause: BaseException | None) -> bool:
    """Return whether the cause of an error is what RocksDB says of its files: then they are to be made again.

    Where the library is lacking, RocksDB has said nothing; of what the system refused, as to who may not read a file, neither.
    """
    return cause is not None and not isinstance(cause, OSError) and not any(text in str(cause) for text in _OF_SYSTEM)


def _database_files(folder: str) -> list[str]:
    return layouts.rocksdb_files(entry.name for entry in listing(folder) if entry.kind == FILE)


class Database:
    """A RocksDB database that is open for reading. Close it.

    A broker that runs may go on: what is read is the database of the moment of opening, without what the broker has in memory.
    """

    def __init__(self, folder: str, advice: str = "") -> None:
        """Open the database of ``folder``. Raises InputError where it is none, is broken, or is on another machine.

        ``advice`` is the end of errors about what is broken.
        """
        self.shown, self._advice = escape(folder), advice
        if is_remote(folder):
            raise InputError(f"{self.shown}: a RocksDB database is read from a local folder alone: copy the folder first")
        try:
            self._library: Any = library()
        except InputError as error:
            raise InputError(f"{self.shown}: {error}") from None
        self._close = contextlib.ExitStack()
        self._families: dict[str, Rdict] = {}
        for tries_left in reversed(range(_TRIES)):
            with self._failures():
                before = _database_files(folder)
            try:
                self._open(folder)
                return
            except InputError:
                self.close()
                # A broker that runs replaces files: what a table of files names may be gone by the time it is opened.
                if not tries_left or _database_files(folder) == before:
                    raise
            except BaseException:
                self.close()
                raise

    def _open(self, folder: str) -> None:
        library = self._library
        with self._failures(), tempfile.TemporaryDirectory(prefix=_LINKS) as links:
            self._link(folder, links)
            names = library.Rdict.list_cf(links)
            others = {name: self._options() for name in names if name != "default"}
            database = library.Rdict(links, self._options(), column_families=others, access_type=library.AccessType.read_only())
            self._close.callback(database.close)
            self._families = {name: database if name == "default" else database.get_column_family(name) for name in names}

    @staticmethod
    def _link(folder: str, links: str) -> None:
        folder = os.path.abspath(folder)
        for name in _database_files(folder):
            if name.startswith(_COPIED):
                shutil.copyfile(os.path.join(folder, name), os.path.join(links, name))
        # The table of files is older than this list, so the list has all that the table names and no broker has deleted.
        for name in _database_files(folder):
            if not name.startswith(_COPIED):
                os.symlink(os.path.join(folder, name), os.path.join(links, name))

    def _options(self) -> Any:
        options = self._library.Options(raw_mode=True)
        # All files are opened at once, and none again: their links may go.
        options.set_max_open_files(-1)
        options.set_skip_stats_update_on_db_open(True)
        return options

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        """Raise InputError for what RocksDB says: it raises plain exceptions."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            # It opened links, in a folder that is gone: the files have the same names in the database's own.
            text, advice = _LINKED.sub("", str(error)), self._advice if is_broken(error) else ""
            raise InputError(f"{self.shown}: RocksDB cannot read it: {escape(text, 300)}{advice}") from error

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the column families."""
        return tuple(self._families)

    def check_families(self, *names: str) -> None:
        """Raise InputError where the database lacks one of some column families."""
        lacking = [name for name in names if name not in self._families]
        if lacking:
            raise InputError(f"{self.shown}: has no column family {lacking[0]!a}: these are no ConsumeQueues")

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of a key; None where there is none. Raises InputError where it cannot be read."""
        with self._failures():
            value: bytes | None = self._families[family].get(key)
            return value

    def pairs(
        self, family: str, low: bytes = b"", high: bytes | None = None, *, few: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs of keys in [low, high), in order. Raises InputError where they cannot be read.

        Where there are ``few``, what lies behind them is not read ahead.
        """
        options = self._read_options(b"", high)
        if not few:
            options.set_readahead_size(_READ_AHEAD)
        options.fill_cache(False)
        last: bytes | None = None
        with self._failures():
            items: Iterator[tuple[Any, Any]] = iter(self._families[family].items(from_key=low, read_opt=options))
            for key, value in items:
                last = key
                yield key, value
            # At a broken block these end as behind the last pair: a cursor that goes the last step says which it was.
            cursor = self._families[family].iter(self._read_options(b"", high))
            cursor.seek(low if last is None else last)
            if last is not None and cursor.valid() and cursor.key() == last:
                cursor.next()
            cursor.status()
            if cursor.valid():
                text = f"pairs end before key {escape(repr(cursor.key()), 100)}"
                raise InputError(f"{self.shown}: RocksDB cannot read it: {text}{self._advice}")

    def first(self, family: str, low: bytes, high: bytes) -> tuple[bytes, bytes] | None:
        """Return the first pair of keys in [low, high); None for none. Raises InputError where it cannot be read."""
        with self._failures():
            cursor = self._families[family].iter(self._read_options(low, high))
            cursor.seek(low)
            return self._at(cursor)

    def last(self, family: str, low: bytes, high: bytes) -> tuple[bytes, bytes] | None:
        """Return the last pair of keys in [low, high); None for none. Raises InputError where it cannot be read."""
        with self._failures():
            cursor = self._families[family].iter(self._read_options(low, high))
            cursor.seek_to_last()
            pair = self._at(cursor)
            # The library's cursor may pass over the lower bound (seen with rocksdict 0.3.29).
            return None if pair is None or pair[0] < low else pair

    def _read_options(self, low: bytes, high: bytes | None) -> Any:
        options = self._library.ReadOptions()
        if low:
            options.set_iterate_lower_bound(low)
        if high is not None:
            options.set_iterate_upper_bound(high)
        return options

    @staticmethod
    def _at(cursor: Any) -> tuple[bytes, bytes] | None:
        if cursor.valid():
            return cursor.key(), cursor.value()
        cursor.status()
        return None

    def close(self) -> None:
        """Close the database."""
        self._families.clear()
        self._close.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---------------------------------------------------------------------------------------------------------------------- writing

_FORMAT: Final = 5
"""``RocksDBOptionsFactory.createCQCFOptions`` (5.3.3); brokers refuse 6"""
_BLOCK: Final = 32 << 10
_BLOOM_BITS: Final = 16
_OWN: Final = re.compile(r"rocksdict-config\.json|LOCK|LOG(?:\.old\.[0-9]+)?|[0-9]+\.log")
"""what the library leaves that is no part of the database: its settings, lock, log, and a write-ahead log without a pair"""


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
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
    with _writing(path):
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
    with _writing(folder):
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
