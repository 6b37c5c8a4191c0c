"""The file system behind a URI: how a bucket is reached, and what is opened once in a process."""

from __future__ import annotations

import configparser
import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from rocketmq_reindex.files.object_store import ObjectStore, patiently
from rocketmq_reindex.files.uris import Uri, is_remote, lacks_slash, plain, split
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

if TYPE_CHECKING:
    from pyarrow import fs as pafs

# --------------------------------------------------------------------------------------------------------------------------- s3
# How to reach a bucket: by the options of its URI, else by environment variables of AWS's and of our own.

_CHECKSUMS: Final = {
    "AWS_REQUEST_CHECKSUM_CALCULATION": "request_checksum_calculation",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "response_checksum_validation",
}
"""What says in the environment, and in AWS's configuration file, which checksums the AWS SDK adds and looks at."""
_AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn")
_SECONDS: Final = {"request_timeout": 60.0, "connect_timeout": 10.0}
"""Of silence before a request is given up, and of waiting for a connection. pyarrow has 3 s and 1 s, too short for many."""
_MOST_SECONDS: Final = 3600
_VARIABLE: Final = "RMQ_REINDEX_{}"
_FLAGS: Final = ("allow_bucket_creation", "allow_bucket_deletion", "force_virtual_addressing", "allow_delayed_open")
_WORDS: Final = ("endpoint_override", "scheme", "region", "tls_ca_file_path")
_NO_DELAY: Final = "allow_delayed_open"
"""An option by which a small file takes one request instead of three; older versions of pyarrow do not know it."""
_PART_TRIES: Final = 3
"""of each part of a large file: AWS's SDK makes pauses of 25 ms and then twice as long each"""


def s3_options(uri: Uri) -> dict[str, str]:
    """Return the options in pyarrow's names: ``endpoint_override`` (HOST:PORT), ``scheme``, ``region``, and all others of the
    URI."""
    options = dict(parse_qsl(uri.query, keep_blank_values=True))
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint and "endpoint_override" not in options:
        url = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": url.netloc, "scheme": url.scheme}
    if "endpoint_override" in options and "region" not in options:
        # Amazon's own store is asked for its region; others do not answer that.
        options["region"] = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return options


def open_s3(uri: Uri) -> ObjectStore:
    """Return the store of a URI. Raises InputError for a wrong option, and what pyarrow raises."""
    options = s3_options(uri)
    seconds = {name: _seconds(uri, options.pop(name, ""), name) for name in _SECONDS}
    with plain_checksums(options):
        once, parts = _s3_systems(uri, options, seconds)
    return ObjectStore(once, parts, "s3")


def _seconds(uri: Uri, value: str, name: str) -> float:
    """Return the seconds that a URI or the environment gives for one of _SECONDS."""
    variable = _VARIABLE.format(name.upper())
    source = f"s3://{escape(uri.authority.rpartition('@')[2])}?{name}={escape(value)}"
    if not value and (value := os.environ.get(variable, "")):
        source = f"{variable}={escape(value)}"
    try:
        seconds = float(value or _SECONDS[name])
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= _MOST_SECONDS:
        raise InputError(f"{source}: takes seconds, from 1 to {_MOST_SECONDS}")
    return seconds


def _s3_systems(uri: Uri, options: dict[str, str], seconds: dict[str, float]) -> tuple[pafs.FileSystem, pafs.FileSystem]:
    """Return the file systems that try a request once, and that send a file in parts."""
    from pyarrow import fs as pafs

    if options.keys() - {*_FLAGS, *_WORDS}:
        # pyarrow knows some only in a URI, which cannot have the time limits. It refuses what it does not know.
        system, _ = pafs.FileSystem.from_uri(f"s3://{uri.authority}/?{urlencode(options)}")
        return system, system
    user, _, bucket = uri.authority.rpartition("@")
    access, _, secret = user.partition(":")
    words: dict[str, Any] = dict(seconds)
    words |= {name: _flag(value) if name in _FLAGS else value for name, value in options.items()}
    if user:
        words |= {"access_key": unquote(access), "secret_key": unquote(secret)}
    if "region" not in words:
        words["region"] = patiently(lambda: pafs.resolve_s3_region(bucket), f"s3://{bucket}")

    once, few = pafs.AwsStandardS3RetryStrategy(max_attempts=1), pafs.AwsDefaultS3RetryStrategy(max_attempts=_PART_TRIES)
    delayed = words.pop(_NO_DELAY, True)
    # Without delay an upload begins as its stream is opened: a stream that could not begin it later leaves an empty object.
    parts = pafs.S3FileSystem(**words, retry_strategy=few)
    try:
        return pafs.S3FileSystem(**words, **{_NO_DELAY: delayed}, retry_strategy=once), parts
    except TypeError as error:
        if _NO_DELAY not in str(error):
            raise
        return pafs.S3FileSystem(**words, retry_strategy=once), parts


def _flag(value: str) -> bool:
    return value.lower() in ("1", "true")


@contextlib.contextmanager
def plain_checksums(options: dict[str, str]) -> Iterator[None]:
    """Open a connection in this block: unless it leads to AWS, its requests have only checksums that every server knows.

    The AWS SDK adds a CRC64NVME to each write since 2025, and other servers answer 501 or 400 to that. It asks the environment
    when it makes a client. What the user has set, there or in AWS's configuration file, stays.
    """
    host = options.get("endpoint_override", "").partition(":")[0].lower()
    known = _configured() if host and not host.endswith(_AMAZON) else set(_CHECKSUMS.values())
    missing = [name for name, key in _CHECKSUMS.items() if name not in os.environ and key not in known]
    os.environ.update(dict.fromkeys(missing, "when_required"))
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _configured() -> set[str]:
    """Return the keys that AWS's configuration file has for the profile in use."""
    file = configparser.RawConfigParser(strict=False)
    path = os.environ.get("AWS_CONFIG_FILE") or os.path.expanduser("~/.aws/config")
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    with contextlib.suppress(OSError, ValueError, configparser.Error):
        file.read(path, encoding="utf-8")
    sections = [name for name in (f"profile {profile}", profile) if file.has_section(name)]
    return {key for name in sections for key in file.options(name)}


# ---------------------------------------------------------------------------------------------------------------------- systems
# The file system behind a URI: opened once in a process, by pyarrow.fs, or by fsspec where pyarrow needs a JVM.

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
    """Return a path or URI from the command line, in the form that this package takes. Raises InputError for a wrong URI."""
    path = plain(path)
    if lacks_slash(path):
        raise InputError(f"{escape(path)}: is no URI: write it with ://, or ./{escape(path)} for a path of that name")
    if is_remote(path):
        split(path)
    return path


def is_flat(path: str) -> bool:
    """Return whether the store of ``path`` has no folders."""
    return is_remote(path) and split(path).scheme in FLAT


def no_rename(path: str) -> bool:
    """Return whether the store of ``path`` cannot rename a folder in one step."""
    return is_remote(path) or os.path.abspath(path).startswith(_MOUNTED)


def resolve(path: str) -> tuple[System | None, str]:
    """Return the file system of a path (None: the local one), and the path there. Raises InputError when it cannot be
    opened."""
    if not is_remote(path):
        return None, os.path.abspath(path)
    uri = split(path)
    system = _system(uri)
    return system, "/".join((system.root, *uri.segments)) if uri.segments else system.root or "/"


def resolve_to_write(path: str) -> tuple[System | None, str]:
    """Return what ``resolve`` does, but with a file system for a mount of an object store: it is written as a stream."""
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
    system = _systems.get(key)
    if system is None:
        with _opening:
            system = _systems.get(key) or _open(uri)
            _systems[key] = system
    return system


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
        text = getattr(error, "strerror", None) or str(error)
        reason = escape(text.splitlines()[0] if text else type(error).__name__, 200)
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

    class TimedWebHDFS(WebHDFS):  # type: ignore[misc]  # fsspec ships no types
        """Gives the modification time of a file under the name that pyarrow takes."""

        @staticmethod
        def _process_info(info: dict[str, Any]) -> dict[str, Any]:
            # In place: a listing ignores the result.
            info_of_file: dict[str, Any] = WebHDFS._process_info(info)
            info_of_file["mtime"] = info_of_file.get("modificationTime", 0) / 1000
            return info_of_file

        def _open(self, path: str, mode: str = "rb", *words: Any, **more: Any) -> Any:
            opened = super()._open(path, mode, *words, **more)
            if mode == "rb":
                # Without a cache: it would read 5 MB for a unit of 20 bytes.
                opened.cache = BaseCache(opened.blocksize, opened._fetch_range, opened.size)
            return opened

        def _call(self, *words: Any, **more: Any) -> Any:
            try:
                return super()._call(*words, **more)
            except (RuntimeError, ValueError) as error:
                # A refusal of the server is an error of files like any other.
                raise OSError(str(error)) from None

    url = urlsplit(f"{uri.scheme}://{uri.authority}")
    options: dict[str, Any] = dict(parse_qsl(uri.query))
    for name in ("kerberos", "use_https"):
        if name in options:
            options[name] = options[name].lower() in ("1", "true", "yes")
    if url.username:
        options["user"] = unquote(url.username)
    if url.password:
        options["password"] = unquote(url.password)
    if not options.keys() & {"user", "token", "kerberos"} and os.environ.get("HADOOP_USER_NAME"):
        options["user"] = os.environ["HADOOP_USER_NAME"]
    https = options.pop("use_https", uri.scheme == "swebhdfs")
    port = url.port or (9871 if https else 9870)
    system = TimedWebHDFS(host=url.hostname, port=port, use_https=https, skip_instance_cache=True, **options)
    return pafs.PyFileSystem(pafs.FSSpecHandler(system))
