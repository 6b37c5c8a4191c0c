"""The file system behind a URI: opened once in a process, by pyarrow.fs or by fsspec where pyarrow needs a JVM."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.names import escape
from rocketmq_reindex.udfs.files.s3 import s3_options
from rocketmq_reindex.udfs.files.uris import Uri, is_remote, plain, split

if TYPE_CHECKING:
    from pyarrow import fs as pafs

# numpy and pyarrow are imported where they are needed: a command that reads a few pages of local files must not wait for them.
FLAT: Final = ("s3", "gs", "abfss", "abfs")
"""stores without folders, where a file appears as a whole when it is closed"""
_MOUNTED: Final = ("/Volumes/", "/dbfs/")
"""Databricks' mounts of object stores: no mapping, no holes, no rename of folders, nothing but writing from begin to end"""
_NO_DELAY: Final = "allow_delayed_open"
"""A small file is then one request instead of three; older versions of pyarrow do not know it."""


@dataclass(frozen=True)
class System:
    """``root`` is what the paths there begin with."""

    fs: pafs.FileSystem
    root: str
    flat: bool
    """no folders to make; and no file is seen before it is whole, so that it is written at its place"""


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Errors of calls that know only a handle name the file, too."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror or os.strerror(error.errno), path) from error
        raise


def checked(path: str) -> str:
    """A place as the command line gives it, in the form that all here take. Raises InputError for a URI that is none."""
    path = plain(path)
    if is_remote(path):
        split(path)
    return path


def is_flat(path: str) -> bool:
    """Whether folders need not be made there, and are not there before a file is."""
    return is_remote(path) and split(path).scheme in FLAT


def no_rename(path: str) -> bool:
    """Whether a folder cannot be put in the place of another there in one step."""
    return is_remote(path) or os.path.abspath(path).startswith(_MOUNTED)


def resolve(path: str) -> tuple[System | None, str]:
    """The file system of a URI, or None for local files, and the path there."""
    if not is_remote(path):
        return None, os.path.abspath(path)
    uri = split(path)
    system = _system(uri)
    return system, "/".join((system.root, *uri.segments)) if uri.segments else system.root or "/"


def resolve_to_write(path: str) -> tuple[System | None, str]:
    """As ``resolve``; a mount of an object store is written as a stream, too."""
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
            return _s3(uri)
        query = f"?{uri.query}" if uri.query else ""
        system, root = pafs.FileSystem.from_uri(f"{uri.scheme}://{uri.authority}/{query}")
        return System(system, str(root).rstrip("/"), uri.scheme in FLAT)
    except InputError:
        raise
    except (OSError, ValueError, ImportError, TypeError) as error:
        # What pyarrow and fsspec say may repeat the whole URI.
        reason = escape(str(error).splitlines()[0] if str(error) else type(error).__name__, 200)
        if uri.scheme == "hdfs":
            reason = (
                f"Hadoop's native library does not load ({reason}): set JAVA_HOME, HADOOP_HOME and CLASSPATH as "
                "`hadoop classpath --glob` says, or take webhdfs://, which needs none of them"
            )
        raise InputError(f"{shown}: {reason}") from None


def _s3(uri: Uri) -> System:
    from pyarrow import fs as pafs

    options = s3_options(uri)

    def opened(options: dict[str, str]) -> System:
        query = f"?{urlencode(options)}" if options else ""
        system, root = pafs.FileSystem.from_uri(f"s3://{uri.authority}/{query}")
        return System(system, str(root).rstrip("/"), True)

    try:
        return opened({_NO_DELAY: "true"} | options)
    except ValueError as error:
        if _NO_DELAY not in str(error):
            raise
        return opened(options)


def _webhdfs(uri: Uri) -> pafs.FileSystem:
    try:
        from fsspec.caching import BaseCache  # type: ignore[import-untyped]
        from fsspec.implementations.webhdfs import WebHDFS  # type: ignore[import-untyped]
        from pyarrow import fs as pafs
    except ImportError:
        raise InputError("webhdfs:// needs the packages fsspec and requests: pip install 'rocketmq-reindex[hdfs]'") from None

    class Timed(WebHDFS):  # type: ignore[misc]  # fsspec ships no types
        """Tells of each file when it was changed, in the words that pyarrow asks for."""

        @staticmethod
        def _process_info(info: dict[str, Any]) -> dict[str, Any]:
            # In place: a listing does not look at what is returned.
            found: dict[str, Any] = WebHDFS._process_info(info)
            found["mtime"] = found.get("modificationTime", 0) / 1000
            return found

        def _open(self, path: str, mode: str = "rb", *words: Any, **more: Any) -> Any:
            found = super()._open(path, mode, *words, **more)
            if mode == "rb":
                # Read as it is asked for: else a unit of 20 bytes costs 5 MB.
                found.cache = BaseCache(found.blocksize, found._fetch_range, found.size)
            return found

        def _call(self, *words: Any, **more: Any) -> Any:
            try:
                return super()._call(*words, **more)
            except (RuntimeError, ValueError) as error:
                # What the server refuses is an error of files, like any other.
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
