"""The JVM of a session of our own: which one, and how to have it start while Python still imports."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark import SparkConf, SparkContext

JAVA_VERSIONS = ("17", "21")


def _java_major(home: str) -> str:
    """The major version that a JDK's ``release`` file names, or nothing."""
    with contextlib.suppress(OSError):
        found = re.search(r'^JAVA_VERSION="?(\d+)', (Path(home) / "release").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def choose_java() -> None:
    """Spark's launcher takes JAVA_HOME: ``make setup`` leaves its choice in .java-home, used unless the shell's one fits."""
    if _java_major(os.environ.get("JAVA_HOME", "")) in JAVA_VERSIONS:
        return
    with contextlib.suppress(OSError):
        chosen = (Path(__file__).resolve().parents[1] / ".java-home").read_text().strip()
        if chosen:
            os.environ["JAVA_HOME"] = chosen


def launch_early(configuration: Mapping[str, str]) -> threading.Thread:
    """Start the JVM in the background, with what it must know from its start: a session finds it running.

    It takes a second or two in which Python has imports to do. It ends with this process, or when its session is stopped.
    """

    def launch() -> None:
        # What goes wrong here goes wrong again, and is told, where the session starts.
        with contextlib.suppress(Exception):
            SparkContext._ensure_initialized(conf=SparkConf(False).setAll(list(configuration.items())))

    thread = threading.Thread(target=launch, name="launch-jvm", daemon=True)
    thread.start()
    return thread
