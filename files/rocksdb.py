"""Read a RocksDB database of a folder, and leave that folder as it is.

RocksDB locks a database that it opens for writing, and the library keeps a file of its own in the folder. So the database is
opened for reading alone, in a temporary folder of links to its files.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
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
_MISSING: Final = "ConsumeQueues in RocksDB are read with rocksdict: pip install 'rocketmq-reindex[rocksdb]'"


def _database_files(folder: str) -> list[str]:
    return layouts.rocksdb_files(entry.name for entry in listing(folder) if entry.kind == FILE)


class Database:
    """A RocksDB database that is open for reading. Close it.

    A broker that runs may go on: what is read is the database of the moment of opening, without what the broker has in memory.
    """

    def __init__(self, folder: str) -> None:
        """Open the database of ``folder``. Raises InputError where it is none, is broken, or is on another machine."""
        self.shown = escape(folder)
        if is_remote(folder):
            raise InputError(f"{self.shown}: a RocksDB database is read from a local folder alone: copy the folder first")
        try:
            import rocksdict
        except ImportError:
            raise InputError(f"{self.shown}: {_MISSING}") from None
        self._library: Any = rocksdict
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
            text = _LINKED.sub("", str(error))
            raise InputError(f"{self.shown}: RocksDB cannot read it: {escape(text, 300)}") from error

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

    def pairs(self, family: str, low: bytes = b"", high: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield the pairs of keys in [low, high), in order. Raises InputError where they cannot be read."""
        options = self._read_options(b"", high)
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
                raise InputError(
                    f"{self.shown}: RocksDB cannot read it: pairs end before key {escape(repr(cursor.key()), 100)}"
                )

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
