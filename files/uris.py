"""Paths and URIs as text: join them, take them apart, compare them. Nothing is opened here."""

import os
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ------------------------------------------------------------------------------------------------------------------------- uris
# In a URI names are percent-encoded, and options follow ``?``; a plain path is taken as it is.

SCHEMES: Final = ("s3", "gs", "abfss", "abfs", "hdfs", "webhdfs", "swebhdfs", "file")
_HDFS: Final = ("hdfs", "webhdfs", "swebhdfs")
_SAME: Final = {"webhdfs": "hdfs", "swebhdfs": "hdfs", "abfs": "abfss"}
"""Schemes that are another name of the same store."""
_DBFS: Final = re.compile(r"dbfs:/+")


class Uri(NamedTuple):
    """A URI in parts. ``authority`` is as given, and may hold a password; the ``segments`` of the path are decoded."""

    scheme: str
    authority: str
    segments: tuple[str, ...]
    query: str


def is_remote(path: str) -> bool:
    """Return whether a path is a URI."""
    return "://" in path


def is_known(path: str) -> bool:
    """Return whether a path is no URI, or one with a known scheme."""
    return not is_remote(path) or path.partition("://")[0] in SCHEMES


_LACKS_SLASH: Final = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)|({'|'.join(SCHEMES)}):(?!//)", re.IGNORECASE)


def plain(path: str) -> str:
    """Return the folder where Databricks mounts ``dbfs:/X``, and any other path as it is."""
    match = _DBFS.match(path)
    if not match:
        return path
    inner = path[match.end() :]
    return f"/{inner}" if inner == "Volumes" or inner.startswith("Volumes/") else f"/dbfs/{inner}"


def lacks_slash(path: str) -> bool:
    """Return whether a path looks like a URI with one slash in the place of two, or none: ``s3:/bucket``, ``file:store``."""
    return _LACKS_SLASH.match(path) is not None


def split(uri: str) -> Uri:
    """Return the parts of a URI. Raises InputError for an unknown scheme, a malformed URI, or one with ``..`` in its path."""
    shown = escape(uri)
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InputError(f"{shown}: is no URI") from None
    if parts.scheme not in SCHEMES:
        raise InputError(f"{shown}: is a URI of an unknown kind: take {', '.join(f'{name}://' for name in SCHEMES)}, or a path")
    if parts.fragment or uri.endswith("#"):
        raise InputError(f"{shown}: has a # in it: write it as %23")
    if not parts.netloc and parts.scheme != "file":
        raise InputError(f"{shown}: names no {'host' if parts.scheme in _HDFS else 'bucket'}")
    if parts.scheme == "file" and parts.netloc:
        raise InputError(f"{shown}: names a host: write file:///FOLDER, or the path alone")
    host, colon, port = parts.netloc.rpartition("@")[2].rpartition(":")
    if colon and not port.isdigit() and "]" not in port and host:
        raise InputError(
            f"{shown}: has {escape(parts.scheme)}://HOST:PORT with a port that is no number: write / in a password as %2F"
        )
    segments = tuple(unquote(part) for part in parts.path.split("/") if part)
    if any(part in (".", "..") or "/" in part or "\0" in part for part in segments):
        raise InputError(f"{shown}: has . or .. or an encoded / in it: name the place itself")
    return Uri(parts.scheme, parts.netloc, segments, parts.query)


def option(uri: Uri, name: str) -> str:
    """Return the value of the option ``name`` of a URI; "" when it has none."""
    return dict(parse_qsl(uri.query)).get(name, "")


def _cut(uri: str) -> tuple[str, str]:
    """Return a URI without its options, and the options with their ``?``."""
    head, mark, query = uri.partition("?")
    return head, mark + query


def join(folder: str, *names: str) -> str:
    """Return the path of ``names`` below ``folder``. Each is a valid component, or several of them with slashes between."""
    if "://" not in folder:
        return "/".join([folder.rstrip("/"), *names])
    head, query = _cut(folder)
    return "/".join([head.rstrip("/"), *(quote(name, safe="/") for name in names)]) + query


def beside(path: str, ending: str) -> str:
    """Return the path with ``ending`` appended to its last name."""
    head, query = _cut(path) if is_remote(path) else (path, "")
    return f"{head}{ending}{query}"


def parent(path: str) -> str:
    """Return the folder of a path; of the root or of a bucket, itself."""
    if not is_remote(path):
        return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    head, query = _cut(path)
    scheme, _, inner = head.partition("://")
    above, slash, _ = inner.rstrip("/").rpartition("/")
    return f"{scheme}://{above}{query}" if slash else path


def base(path: str) -> str:
    """Return the last name of a path, decoded."""
    if not is_remote(path):
        return path.rstrip("/").rpartition("/")[2]
    _, _, inner = _cut(path)[0].partition("://")
    _, slash, name = inner.rstrip("/").rpartition("/")
    return unquote(name) if slash else ""


def absolute(path: str) -> str:
    """Return the path independent of the working folder: executors have other ones."""
    return path if is_remote(path) else os.path.abspath(path)


def canonical(path: str) -> tuple[str, ...]:
    """Return a form in which two paths of one folder are equal, and a path below another begins with it.

    Options, credentials and ports do not count: two folders may look like one, but never one like two.
    """
    if is_remote(path):
        uri = split(path)
        if uri.scheme != "file":
            # In abfss://container@account there is no password before the @.
            host = uri.authority if uri.scheme in ("abfss", "abfs") else uri.authority.rpartition("@")[2]
            if uri.scheme in _HDFS:
                host = re.sub(r":\d+$", "", host)
            return (_SAME.get(uri.scheme, uri.scheme), host.lower(), *uri.segments)
        path = "/" + "/".join(uri.segments)
    return ("", *(part for part in os.path.realpath(path).split("/") if part))


def overlap(first: str, second: str) -> bool:
    """Return whether two paths are the same folder, or one lies in the other."""
    a, b = canonical(first), canonical(second)
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def within(path: str, folder: str) -> bool:
    """Return whether ``path`` is ``folder``, or lies in it."""
    above = canonical(folder)
    return canonical(path)[: len(above)] == above


# ---------------------------------------------------------------------------------------------------------------------- volumes
# Databricks' volumes: /Volumes/CATALOG/SCHEMA/VOLUME is a folder to write in, and everything above it is read-only.

_TOP: Final = "/Volumes"
_NAMES: Final = 3
"""names of a volume below it: catalog, schema, volume"""


def check_volume(path: str) -> None:
    """Check that a folder can be made at ``path``, as far as volumes decide that; other paths pass.

    Raises InputError for a path above all volumes, and for one in a volume that is not there.
    """
    path = plain(path)
    if is_remote(path):
        return
    path = os.path.abspath(path)
    if not f"{path}/".startswith(f"{_TOP}/"):
        return
    names = path[len(_TOP) :].split("/")[1:]
    if len(names) < _NAMES:
        raise InputError(f"{escape(path)}: is no folder of a volume: name /Volumes/CATALOG/SCHEMA/VOLUME or a folder in it")
    volume = "/".join((_TOP, *names[:_NAMES]))
    if not os.path.isdir(volume):
        raise InputError(f"{escape(volume)}: is no volume that this user sees: make it first, or name another")
