"""The JVM of a session of our own, and whether a run that names no engine can have Spark. This imports nothing of Spark."""

import contextlib
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ------------------------------------------------------------------------------------------------------------------------- java
# The JVM of a session of our own: which one, and what lies beside the sources for it.
#
# Only a checkout has such things. Beside an installed package, folders of these names are somebody else's.

JAVA_VERSIONS = ("17", "21")
JAVA_RUNS = range(17, 24)
"""versions that are not refused: Spark 4 asks for 17, and for what Java 24 has no more (``Subject.getSubject``)"""
_NOT_INSTALLED: Final = "Spark is not installed"
_INSTALL: Final = "pip install 'rocketmq-reindex[spark]'"
_SESSIONS: Final = ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION")
"""what spark-submit, Spark Connect and Databricks set"""
_ABOVE = Path(__file__).resolve().parents[2]
"""the package ``rocketmq_reindex`` where it is installed; in a checkout, where its packages are links, the checkout"""
_PROJECT = re.compile(r'^name = "rocketmq-reindex"$', re.MULTILINE)


def _checkout(above: Path) -> Path | None:
    """Return the folder above ``jobs`` where that is a checkout, known by the project's own pyproject.toml; else None."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if _PROJECT.search((above / "pyproject.toml").read_text(encoding="utf-8")):
            return above
    return None


CHECKOUT = _checkout(_ABOVE)


def settings_folder() -> Path | None:
    """Return where spark-defaults.conf and log4j2.properties are: in the wheel, or in the checkout; None in a zip."""
    folder = _ABOVE / "conf"
    return folder if (folder / "spark-defaults.conf").exists() else None


def java_version(home: str) -> str:
    """Return the version that a JDK's ``release`` file names, or nothing."""
    with contextlib.suppress(OSError):
        match = re.search(r'^JAVA_VERSION="?([\d.]+)', (Path(home) / "release").read_text(), re.MULTILINE)
        return match[1] if match else ""
    return ""


def fits() -> bool:
    """Return whether JAVA_HOME is a JDK that Spark runs on."""
    return java_version(os.environ.get("JAVA_HOME", "")).partition(".")[0] in JAVA_VERSIONS


def choose_java() -> None:
    """Spark's launcher takes JAVA_HOME: ``make setup`` leaves its choice in .java-home, used unless the shell's one fits."""
    if fits() or CHECKOUT is None:
        return
    with contextlib.suppress(OSError):
        chosen = (CHECKOUT / ".java-home").read_text().strip()
        if chosen:
            os.environ["JAVA_HOME"] = chosen


def _trouble() -> str:
    """Return what is wrong with the Java that Spark would start; "" where nothing is."""
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME", "") or (os.path.dirname(os.path.dirname(os.path.realpath(java))) if java else "")
    if not home or not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        where = f"JAVA_HOME={escape(home)} is none" if home else "JAVA_HOME is not set, and no java is on PATH"
        return f"Spark needs Java, and {where}"
    version = java_version(home)
    major = version.partition(".")[0]
    if major.isdigit() and int(major) not in JAVA_RUNS:
        return f"Spark does not run on Java {escape(version)} ({escape(home)})"
    return ""


def check_java() -> None:
    """Raise InputError where there is no Java, or one that Spark does not run on, before its JVM says so in its own words."""
    if trouble := _trouble():
        to_do = f"set JAVA_HOME to a JDK {' or '.join(JAVA_VERSIONS)}, or take --engine local, which needs no Java"
        raise InputError(f"{trouble}: {to_do}")


def check_spark() -> None:
    """Raise InputError where no Spark is installed."""
    if find_spec("pyspark") is None:
        raise InputError(f"{_NOT_INSTALLED}: {_INSTALL}, or take --engine local")


def what_is_lacking() -> str:
    """Return why a run that names no engine cannot have Spark, and what to do about it; "" where it can.

    It can where a session is there or spark-submit is, whatever Java this process sees.
    """
    if find_spec("pyspark") is None:
        return f"{_NOT_INSTALLED}: {_INSTALL}"
    if any(os.environ.get(name) for name in _SESSIONS) or _has_session():
        return ""
    choose_java()
    return _trouble()


def _has_session() -> bool:
    # Nobody has a session who has not imported it. getActiveSession() knows only this thread's.
    sql, context = sys.modules.get("pyspark.sql"), getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return sql is not None and bool(sql.SparkSession.getActiveSession() or getattr(context, "_active_spark_context", None))


def java_option(text: str) -> str:
    """Return one option of ``extraJavaOptions``, quoted for Spark's launcher (``CommandBuilderUtils.parseOptionString``)."""
    if not re.search(r"[\s\"'\\]", text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
