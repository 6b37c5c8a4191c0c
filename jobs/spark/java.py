"""The JVM of a session of our own: which one, and where its archive of classes is."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pyspark

JAVA_VERSIONS = ("17", "21")
ROOT = Path(__file__).resolve().parents[2]


def _java_version(home: str) -> str:
    """The version that a JDK's ``release`` file names, or nothing."""
    with contextlib.suppress(OSError):
        found = re.search(r'^JAVA_VERSION="?([\d.]+)', (Path(home) / "release").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def choose_java() -> None:
    """Spark's launcher takes JAVA_HOME: ``make setup`` leaves its choice in .java-home, used unless the shell's one fits."""
    if _java_version(os.environ.get("JAVA_HOME", "")).partition(".")[0] in JAVA_VERSIONS:
        return
    with contextlib.suppress(OSError):
        chosen = (ROOT / ".java-home").read_text().strip()
        if chosen:
            os.environ["JAVA_HOME"] = chosen


def class_archive() -> Path | None:
    """Where ``scripts/class_archive.py`` leaves the classes of Spark and Delta Lake as JAVA_HOME's JVM keeps them in memory.

    A JVM that maps the file need not find, parse and check 15,000 classes: half of the processor time of a short run.
    """
    version = _java_version(os.environ.get("JAVA_HOME", ""))
    return ROOT / "jars" / f"spark-{pyspark.__version__}-delta-jdk-{version}.jsa" if version else None
