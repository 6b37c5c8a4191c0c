"""Where ``--tables`` points to: the path that Spark is told, and that it lies apart from what is read and replaced."""

from __future__ import annotations

import os
import re
from typing import Final

from jobs.settings import BuildSettings
from storage_format.errors import InputError
from storage_format.names import escape

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_VOLUMES: Final = "/Volumes/"
"""Databricks' volumes: Spark knows them by this path alone"""


def is_uri(place: str) -> bool:
    """Whether a place has a scheme: ``s3://``, ``abfss://``, ``dbfs:/``."""
    return _SCHEME.match(place) is not None


def spark_path(place: str) -> str:
    """A place as Spark should be told: a local folder with its scheme, since Spark's default file system may be another."""
    if is_uri(place) or place.startswith(_VOLUMES):
        return place.rstrip("/")
    return f"file:{os.path.abspath(place)}"


def table_path(place: str, name: str) -> str:
    return f"{spark_path(place)}/{name}"


def quoted(path: str) -> str:
    """A Delta table by its path, in SQL."""
    return f"delta.`{path.replace('`', '``')}`"


def check_place(settings: BuildSettings) -> None:
    """Raises InputError when the tables would lie in what is read, or in what a build replaces as a whole."""
    place = settings.tables
    if not place or is_uri(place):
        return
    real = os.path.realpath(place)
    where = f"--tables {escape(place)}"
    if os.path.lexists(real) and not os.path.isdir(real):
        raise InputError(f"{where}: is not a folder: name another")
    for other in (settings.out, *settings.inputs):
        if not is_uri(other) and os.path.commonpath([real, os.path.realpath(other)]) == os.path.realpath(other):
            raise InputError(f"{where}: lies inside {escape(other)}: name a folder apart from the store and DIR")
