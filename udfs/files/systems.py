"""The file system behind a URI: opened once in a process, by pyarrow.fs, or by fsspec where pyarrow needs a JVM."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.object_store import ObjectStore
from rocketmq_reindex.udfs.files.s3 import open_s3
from rocketmq_reindex.udfs.files.uris import Uri, is_remote, lacks_slash, plain, split

if TYPE_CHECKING:
    from pyarrow import fs as pafs

# numpy and pyarrow are imported where they are used: a command that reads a few pages of local files must not wait for them.
FLAT: Final = ("s3", "gs", "abfss", "abfs")
"""Stores without folders, where a file appears as a whole when it is closed."""
_MOUNTED: Final = ("/Volumes/", "/dbfs/")
"""Databricks' mounts of object stores: no mapping, no holes, no rename of folders, only writes from begin to end."""


@dataclass(frozen=True)
class System:
    """An open file system."""

    fs: pafs.FileSystem | ObjectStore
    root: str
    """how its paths begin"""
    flat: bool
    """whether it has no folders, and shows no file before it is whole"""


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Add ``path`` to an OSError of a call that knows only a handle."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or os.strerror(error.errno), path) from error
        raise


def checked(path: str) -> str:
    """A path or URI from the command line, in the form that this package takes. Raises InputError for a wrong URI."""
    path = plain(path)
    if lacks_slash(path):
        raise InputError(f"{escape(path)}: is no URI: write it with ://, or ./{escape(path)} for a folder of that name")
    if is_remote(path):
        split(path)
    return path


def is_flat(path: str) -> bool:
    """Whether the store of ``path`` has no folders."""
    return is_remote(path) and split(path).scheme in FLAT


def no_rename(path: str) -> bool:
    """Whether the store of ``path`` cannot rename a folder in one step."""
    return is_remote(path) or os.path.abspath(path).startswith(_MOUNTED)


def resolve(path: str) -> tuple[System | None, str]:
    """The file system of a path (None: the local one), and the path there. Raises InputError when it cannot be opened."""
    if not is_remote(path):
        return None, os.path.abspath(path)
    uri = split(path)
    system = _system(uri)
    return system, "/".join((system.root, *uri.segments)) if uri.segments else system.root or "/"


def resolve_to_write(path: str) -> tuple[System | None, str]:
    """As ``resolve``, but a mount of an object store has a file system, too: it is written as a stream."""
    system, inner = resolve(path)
    if system is None and inner.startswith(_MOUNTED):
        from pyarrow import fs as pafs

        system = System(pafs.LocalFileSystem(), "", False)
    return system, inner


_systems: dict[tuple[str, str, str], System] = {}
_opening = threading.Lock()
# A fork has none of the threads behind a connection.
os.register_at_fork(after_in_child=_systems.clear)


def _system(uri: Uri) -> System:
    key = (uri.scheme, uri.authority, uri.query)
    found = _systems.get(key)
    if found is None:
        with _opening:
            found = _systems.get(key) or _open(uri)
            _systems[key] = found
    return found


def _open(uri: Uri) -> System:
    shown = escape(f"{uri.scheme}://{uri.authority}")
    try:
        if uri.scheme in ("webhdfs", "swebhdfs"):
            return System(_webhdfs(uri), "", False)
        from pyarrow import fs as pafs

        if uri.scheme == "s3":
            return System(open_s3(uri), uri.authority.rpartition("@")[2], True)
        query = f"?{uri.query}" if uri.query else ""
        system, root = pafs.FileSystem.from_uri(f"{uri.scheme}://{uri.authority}/{query}")
        flat = uri.scheme in FLAT
        return System(ObjectStore(system, system, uri.scheme) if flat else system, str(root).rstrip("/"), flat)
    except InputError:
        raise
    except (OSError, ValueError, ImportError, TypeError) as error:
        # The text of pyarrow and fsspec may repeat the whole URI, with a password.
        reason = escape(str(error).splitlines()[0] if str(error) else type(error).__name__, 200)
        if uri.scheme == "hdfs":
            reason = (
                f"Hadoop's native library does not load ({reason}): set JAVA_HOME, HADOOP_HOME and CLASSPATH as "
                "`hadoop classpath --glob` says, or take webhdfs://, which needs none of them"
            )
        raise InputError(f"{shown}: {reason}") from None


def _webhdfs(uri: Uri) -> pafs.FileSystem:
    try:
        from fsspec.caching import BaseCache  # type: ignore[import-untyped]
        from fsspec.implementations.webhdfs import WebHDFS  # type: ignore[import-untyped]
        from pyarrow import fs as pafs
    except ImportError:
        raise InputError("webhdfs:// needs the packages fsspec and requests: pip install fsspec requests") from None

    class Timed(WebHDFS):  # type: ignore[misc]  # fsspec ships no types
        """Gives the modification time of a file under the name that pyarrow takes."""

        @staticmethod
        def _process_info(info: dict[str, Any]) -> dict[str, Any]:
            # In place: a listing ignores the result.
            found: dict[str, Any] = WebHDFS._process_info(info)
            found["mtime"] = found.get("modificationTime", 0) / 1000
            return found

        def _open(self, path: str, mode: str = "rb", *words: Any, **more: Any) -> Any:
            found = super()._open(path, mode, *words, **more)
            if mode == "rb":
                # Without a cache: it would read 5 MB for a unit of 20 bytes.
                found.cache = BaseCache(found.blocksize, found._fetch_range, found.size)
            return found

        def _call(self, *words: Any, **more: Any) -> Any:
            try:
                return super()._call(*words, **more)
            except (RuntimeError, ValueError) as error:
                # A refusal of the server is an error of files like any other.
                raise OSError(str(error)) from None

    found = urlsplit(f"{uri.scheme}://{uri.authority}")
    options: dict[str, Any] = dict(parse_qsl(uri.query))
    for name in ("kerberos", "use_https"):
        if name in options:
            options[name] = options[name].lower() in ("1", "true", "yes")
    if found.username:
        options["user"] = unquote(found.username)
    if found.password:
        options["password"] = unquote(found.password)
    if not options.keys() & {"user", "token", "kerberos"} and os.environ.get("HADOOP_USER_NAME"):
        options["user"] = os.environ["HADOOP_USER_NAME"]
    https = options.pop("use_https", uri.scheme == "swebhdfs")
    port = found.port or (9871 if https else 9870)
    system = Timed(host=found.hostname, port=port, use_https=https, skip_instance_cache=True, **options)
    return pafs.PyFileSystem(pafs.FSSpecHandler(system))
