"""Where ``--tables`` points to: one place for Spark's Hadoop and for ``files``, apart from what is read and replaced."""

import os
import re
from collections.abc import Iterable
from typing import Final

from rocketmq_reindex import files
from rocketmq_reindex.storage_format.errors import InputError, UsageError
from rocketmq_reindex.storage_format.showing import escape

_S3A: Final = re.compile(r"^s3[an]://")
"""what Hadoop calls ``s3://``"""
_VOLUMES: Final = "/Volumes/"
"""Databricks' volumes: Spark knows them by this path alone"""
_DBFS: Final = "/dbfs/"
"""where Databricks mounts what Spark knows as ``dbfs:/``"""


def given_place(place: str, scans: bool) -> str:
    """Return ``--tables`` as the command line gives it, in the form that all here take; ``file://`` is a folder like any other.

    Without ``scans`` nothing but tables is written there: then it may be of a kind that Spark alone knows. Raises UsageError.
    """
    place = _S3A.sub("s3://", files.plain(place), count=1)
    try:
        if not files.is_remote(place):
            return files.checked(place)
        if not (scans or files.is_known(place)):
            return place
        uri = files.split(place)
    except InputError as error:
        raise UsageError(f"--tables {error}") from None
    if uri.scheme != "file":
        return place
    return "/" + "/".join(uri.segments)


def spark_path(place: str) -> str:
    """Return a place as Hadoop's ``Path`` takes it: decoded, without user and options.

    A local folder has its scheme, since Spark's default file system may be another.
    """
    if not files.is_remote(place):
        path = os.path.abspath(place)
        if path.startswith(_DBFS):
            return f"dbfs:/{path.removeprefix(_DBFS)}"
        return path if path.startswith(_VOLUMES) else f"file:{path}"
    if not files.is_known(place):
        return place.rstrip("/")
    uri = files.split(place)
    return "/".join([_root(uri), *uri.segments])


def _root(uri: files.Uri) -> str:
    user, _, host = uri.authority.rpartition("@")
    if uri.scheme == "s3":
        return f"s3a://{host}"
    if uri.scheme in ("abfss", "abfs"):
        # What stands before the @ is the container there, and behind its colon a key.
        container = user.partition(":")[0]
        return f"{uri.scheme}://{container}@{host}" if container else f"{uri.scheme}://{host}"
    if uri.scheme == "webhdfs" and files.option(uri, "use_https").lower() in ("1", "true", "yes"):
        return f"swebhdfs://{host}"
    return f"{uri.scheme}://{host}"


def table_path(place: str, name: str) -> str:
    return f"{spark_path(place)}/{name}"


def quoted(path: str) -> str:
    """Return a Delta table by its path, in SQL."""
    return f"delta.`{path.replace('`', '``')}`"


def check_place(place: str, others: Iterable[str]) -> None:
    """Raise InputError when the tables would lie in one of the others: what is read, and what a build replaces as a whole; and
    for a place above Databricks' volumes.
    """
    if not place or not files.is_known(place):
        return
    where = f"--tables {escape(place)}"
    files.check_volume(place)
    if not files.is_remote(place) and os.path.lexists(place) and not os.path.isdir(place):
        raise InputError(f"{where}: is not a folder: name another")
    for other in others:
        if files.within(place, other):
            raise InputError(f"{where}: lies inside {escape(other)}: name a folder apart from the store and DIR")
