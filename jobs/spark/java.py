"""The JVM of a session of our own, what lies beside the sources for it, and Delta's jars."""

import contextlib
import os
import re
import shutil
from importlib import resources
from pathlib import Path
from typing import Any, Final

import pyspark

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ------------------------------------------------------------------------------------------------------------------------- java
# The JVM of a session of our own: which one, and what lies beside the sources for it.
#
# Only a checkout has such things. Beside an installed package, folders of these names are somebody else's.

JAVA_VERSIONS = ("17", "21")
JAVA_RUNS = range(17, 24)
"""versions that are not refused: Spark 4 asks for 17, and for what Java 24 has no more (``Subject.getSubject``)"""
_ABOVE = Path(__file__).resolve().parents[2]
"""the package ``rocketmq_reindex`` where it is installed; in a checkout, where its packages are links, the checkout"""
_DELTA_SPARK = re.compile(r"delta-spark_(\d+\.\d+)_")
_PROJECT = re.compile(r'^name = "rocketmq-reindex"$', re.MULTILINE)


def _checkout(above: Path) -> Path | None:
    """The folder above ``jobs`` where that is a checkout, known by the project's own pyproject.toml; None where it is not."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if _PROJECT.search((above / "pyproject.toml").read_text(encoding="utf-8")):
            return above
    return None


CHECKOUT = _checkout(_ABOVE)


def settings_folder() -> Path | None:
    """Where spark-defaults.conf and log4j2.properties are: in the wheel, or in the checkout; None in a zip."""
    folder = _ABOVE / "conf"
    return folder if (folder / "spark-defaults.conf").exists() else None


def _delta_listed() -> list[tuple[str, str, str]]:
    """Return group, artifact and version of each jar of ``conf/jars.txt``, which lies in the wheel and in the zip, too."""
    text = (resources.files("rocketmq_reindex") / "conf" / "jars.txt").read_text(encoding="utf-8")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return [(group, artifact, version) for group, artifact, version in (line[1].split(":") for line in lines)]


def delta_sparks() -> list[str]:
    """Return the versions of Spark, as ``4.1``, for which ``conf/jars.txt`` has a Delta Lake."""
    return [found[1] for _, artifact, _ in _delta_listed() if (found := _DELTA_SPARK.match(artifact))]


def delta_packages() -> list[str]:
    """Return the Maven coordinates of Delta Lake's jars that fit this Spark; none where it has no Delta Lake yet."""
    ours = ".".join(pyspark.__version__.split(".")[:2])
    if ours not in delta_sparks():
        return []
    listed = [(_DELTA_SPARK.match(jar[1]), jar) for jar in _delta_listed()]
    return [":".join(jar) for spark, jar in listed if spark is None or spark[1] == ours]


def delta_jars() -> list[str]:
    """Delta Lake's, where set-up fetched them; without these Spark must have been given some."""
    if CHECKOUT is None:
        return []
    names = [f"{artifact}-{version}.jar" for _, artifact, version in (it.split(":") for it in delta_packages())]
    return [str(jar.resolve()) for name in names if (jar := CHECKOUT / "jars" / name).is_file()]


def _java_version(home: str) -> str:
    """The version that a JDK's ``release`` file names, or nothing."""
    with contextlib.suppress(OSError):
        found = re.search(r'^JAVA_VERSION="?([\d.]+)', (Path(home) / "release").read_text(), re.MULTILINE)
        return found[1] if found else ""
    return ""


def fits() -> bool:
    """Whether JAVA_HOME is a JDK that Spark runs on."""
    return _java_version(os.environ.get("JAVA_HOME", "")).partition(".")[0] in JAVA_VERSIONS


def choose_java() -> None:
    """Spark's launcher takes JAVA_HOME: ``make setup`` leaves its choice in .java-home, used unless the shell's one fits."""
    if fits() or CHECKOUT is None:
        return
    with contextlib.suppress(OSError):
        chosen = (CHECKOUT / ".java-home").read_text().strip()
        if chosen:
            os.environ["JAVA_HOME"] = chosen


def check_java() -> None:
    """Raises InputError where there is no Java, or one that Spark does not run on, before its JVM says so in its own words."""
    java = shutil.which("java")
    home = os.environ.get("JAVA_HOME", "") or (os.path.dirname(os.path.dirname(os.path.realpath(java))) if java else "")
    to_do = f"set JAVA_HOME to a JDK {' or '.join(JAVA_VERSIONS)}, or take --engine local, which needs no Java"
    if not home or not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        where = f"JAVA_HOME={escape(home)} is none" if home else "JAVA_HOME is not set, and no java is on PATH"
        raise InputError(f"Spark needs Java, and {where}: {to_do}")
    version = _java_version(home)
    major = version.partition(".")[0]
    if major.isdigit() and int(major) not in JAVA_RUNS:
        raise InputError(f"Spark does not run on Java {escape(version)} ({escape(home)}): {to_do}")


def class_archive() -> Path | None:
    """Where ``scripts/class_archive.py`` leaves the classes of Spark and Delta Lake as JAVA_HOME's JVM keeps them in memory.

    A JVM that maps the file need not find, parse and check 15,000 classes: half of the processor time of a short run.
    """
    version = _java_version(os.environ.get("JAVA_HOME", ""))
    # Its JVM asks for the same jars, by their names.
    delta = "".join(f"-{jar.rpartition(':')[2]}" for jar in delta_packages()[:1])
    return CHECKOUT / "jars" / f"spark-{pyspark.__version__}-delta{delta}-jdk-{version}.jsa" if version and CHECKOUT else None


def java_option(text: str) -> str:
    """Return one option of ``extraJavaOptions``, quoted for Spark's launcher (``CommandBuilderUtils.parseOptionString``)."""
    if not re.search(r"[\s\"'\\]", text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


# ------------------------------------------------------------------------------------------------------------------- delta_jars
# A session without Delta Lake, where --tables needs it: said as the session starts, with how to get it.

_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"


def check_delta(spark: Any, own: bool) -> None:
    """Raises InputError where a session that has just been started has no Delta Lake. ``own``: not by spark-submit."""
    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(_CLASS, False, False)
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            # Whatever it is: the first table shows it.
            return
        if not delta_packages():
            tested = " and ".join(delta_sparks())
            words = f"Spark {pyspark.__version__} has no Delta Lake, and --tables is tested with Spark {tested} alone"
            raise InputError(f"--tables: {words}: leave out --tables") from error
        raise InputError(f"--tables: {how_to_get_delta(own)}, or leave out --tables") from error


def how_to_get_delta(own: bool) -> str:
    """One line for a session without Delta Lake."""
    packages = delta_packages()
    asked = f"--packages {packages[0]}"
    # Its other jar comes with it.
    jars = " and ".join(f"{name}-{version}.jar" for _, name, version in (it.split(":") for it in packages))
    if own:
        way = f"set PYSPARK_SUBMIT_ARGS='{asked} pyspark-shell'"
    else:
        way = f"give spark-submit {asked} and the two settings of docs/how-to/delta-tables.md"
    by_hand = f"or put {jars} of Maven Central into SPARK_HOME/jars"
    return f"Spark has no Delta Lake, whose jars are no part of the wheel: {way}, {by_hand}"
