"""The wheel of the Databricks bundle: the same files as the ordinary one, and its extra ``spark`` but for Spark itself.

The runtime brings a Spark of its own, which pip may not see. If pip installs a ``pyspark`` beside it, that one may be imported.
The version gets the local label ``+databricks``, so that nobody takes one wheel for the other.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from pathlib import Path
from typing import Final

BROUGHT: Final = ("pyspark", "py4j", "delta-spark")
"""packages that the runtime brings"""
LABEL: Final = "+databricks"


def asks_for_spark(line: str) -> bool:
    """Whether a line of METADATA makes pip install a part of Spark."""
    name, _, value = line.partition(": ")
    required = re.match(r"[A-Za-z0-9._-]+", value)
    return name == "Requires-Dist" and required is not None and re.sub(r"[-_.]+", "-", required[0]).lower() in BROUGHT


def metadata(text: str, version: str) -> str:
    """Return METADATA for the bundle, of the version ``version``."""
    head, blank, description = text.partition("\n\n")
    # What Spark needs besides is asked for without the extra.
    lines = [re.sub(r" *; *extra == 'spark'$", "", line) for line in head.split("\n") if not asks_for_spark(line)]
    return "\n".join(f"Version: {version}" if line.startswith("Version: ") else line for line in lines) + blank + description


def bundle_wheel(wheel: Path, folder: Path) -> Path:
    """Make the bundle's wheel of the ordinary one in ``folder``. Returns its path. The same wheel gives the same bytes."""
    package, version, tags = wheel.name.split("-", 2)
    new = version + LABEL
    old_info, info = f"{package}-{version}.dist-info", f"{package}-{new}.dist-info"
    made = folder / f"{package}-{new}-{tags}"
    record = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for member in source.infolist():
            data = source.read(member)
            name = member.filename.replace(f"{old_info}/", f"{info}/", 1)
            name = name.replace(f"{package}-{version}.data/", f"{package}-{new}.data/", 1)
            if name == f"{info}/RECORD":
                continue
            if name == f"{info}/METADATA":
                data = metadata(data.decode(), new).encode()
            _add(target, member, name, data)
            record.append(f"{name},sha256={_digest(data)},{len(data)}\n")
        at = f"{info}/RECORD"
        _add(target, source.getinfo(f"{old_info}/RECORD"), at, "".join([*record, f"{at},,\n"]).encode())
    return made


def _add(target: zipfile.ZipFile, like: zipfile.ZipInfo, name: str, data: bytes) -> None:
    member = zipfile.ZipInfo(name, like.date_time)
    member.external_attr, member.compress_type = like.external_attr, like.compress_type
    target.writestr(member, data)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
