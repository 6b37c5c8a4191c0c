"""What a session of our own takes from beside the sources: Delta Lake's jars, and an archive of Spark's classes."""

import functools
import os
import re
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark
from pyspark.sql import SparkSession

from rocketmq_reindex.jobs.spark.java import CHECKOUT, java_version
from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.showing import escape

# ------------------------------------------------------------------------------------------------------------------------- jars
# The jars that a checkout has, and those that a user is told of.

_DELTA_SPARK: Final = re.compile(r"delta-spark_(\d+\.\d+)_")


class _Jar(NamedTuple):
    """A jar by its Maven coordinates."""

    group: str
    artifact: str
    version: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def spark(self) -> str:
        """The Spark that it is for alone, as ``4.1``; "" for any."""
        match = _DELTA_SPARK.match(self.artifact)
        return match[1] if match else ""


@functools.cache
def _delta_listed() -> tuple[_Jar, ...]:
    """Return the jars of ``conf/jars.txt``, which lies in the wheel and in the zip, too."""
    text = (resources.files("rocketmq_reindex") / "conf" / "jars.txt").read_text(encoding="utf-8")
    return tuple(_Jar(*line.split()[1].split(":")) for line in text.splitlines() if not line.startswith("#"))


def delta_sparks() -> list[str]:
    """Return the versions of Spark, as ``4.1``, for which ``conf/jars.txt`` has a Delta Lake."""
    return [jar.spark for jar in _delta_listed() if jar.spark]


def _delta_ours() -> list[_Jar]:
    """Return Delta Lake's jars that fit this Spark, its own one first; none where it has no Delta Lake yet."""
    ours = ".".join(pyspark.__version__.split(".")[:2])
    return [jar for jar in _delta_listed() if jar.spark in (ours, "")] if ours in delta_sparks() else []


def delta_packages() -> list[str]:
    """Return the Maven coordinates of Delta Lake's jars that fit this Spark; none where it has no Delta Lake yet."""
    return [":".join(jar) for jar in _delta_ours()]


def delta_jars() -> list[str]:
    """Return Delta Lake's jars, where set-up fetched them; without these Spark must have been given some."""
    if CHECKOUT is None:
        return []
    return [str(path.resolve()) for jar in _delta_ours() if (path := CHECKOUT / "jars" / jar.file).is_file()]


_PACKAGES: Final = re.compile(r"""(?:--packages[ =]|\bspark\.jars\.packages=)['"]?(?=[^\s'"])""")
_UNUSED: Final = "io.delta:delta-kernel-*,io.unitycatalog:*"
"""What Delta's POM asks for besides: for catalogs, with a Hadoop and a log4j of their own."""


def delta_by_maven() -> dict[str, str]:
    """Return the settings by which Spark fetches Delta Lake's jars, as the package delta-spark names them for this Spark.

    There are none without that package, and where the user has given Spark a Delta Lake. Packages that PYSPARK_SUBMIT_ARGS
    names would take the place of these: ours are put before them there.
    """
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
    if "delta-spark_" in given or any(Path(os.environ["SPARK_HOME"], "jars").glob("delta-spark_*.jar")):
        return {}
    try:
        from delta import configure_spark_with_delta_pip
    except ImportError:
        return {}
    # A builder keeps what it was told, and has no word for it.
    named: str = configure_spark_with_delta_pip(SparkSession.builder)._options["spark.jars.packages"]
    if _PACKAGES.search(given):
        os.environ["PYSPARK_SUBMIT_ARGS"] = _PACKAGES.sub(lambda match: f"{match[0]}{named},", given)
    return {"spark.jars.packages": named, "spark.jars.excludes": _UNUSED}


def class_archive() -> Path | None:
    """Return where ``scripts/class_archive.py`` leaves the classes of Spark and Delta Lake, as a JVM keeps them in memory.

    A JVM that maps the file need not find, parse and check 15,000 classes: half of the processor time of a short run.
    """
    version = java_version(os.environ.get("JAVA_HOME", ""))
    # Its JVM asks for the same jars, by their names.
    delta = "".join(f"-{jar.version}" for jar in _delta_ours()[:1])
    return CHECKOUT / "jars" / f"spark-{pyspark.__version__}-delta{delta}-jdk-{version}.jsa" if version and CHECKOUT else None


# ------------------------------------------------------------------------------------------------------------------- delta_lake
# A session without Delta Lake, where --tables needs it: said as the session starts, with how to get it.

_INSTALL: Final = "pip install 'rocketmq-reindex[delta]'"
_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"


def check_delta(spark: Any, own: bool) -> None:
    """Raise InputError where a session that has just been started has no Delta Lake. ``own``: not by spark-submit."""
    if pyspark.__version__.startswith("3."):
        # Rows go to Spark as Arrow tables, which its createDataFrame takes from 4.0 on.
        words = f"Delta tables need Spark 4, and this is Spark {pyspark.__version__}"
        raise InputError(f"--tables: {words}: leave out --tables")
    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(_CLASS, False, False)
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            # Whatever it is: the first table shows it.
            return
        if own and find_spec("delta") is not None:
            words = "the JVM of this process has started without Delta Lake: run this in a process of its own"
            raise InputError(f"--tables: {words}, or leave out --tables") from error
        if not _delta_ours():
            tested = " and ".join(delta_sparks())
            words = f"Spark {pyspark.__version__} has no Delta Lake, and --tables is tested with Spark {tested} alone"
            to_do = f"{_INSTALL} brings one that has, or " if own else ""
            raise InputError(f"--tables: {words}: {to_do}leave out --tables") from error
        raise InputError(f"--tables: {how_to_get_delta(own)}, or leave out --tables") from error


def how_to_get_delta(own: bool) -> str:
    """Return one line for a session without Delta Lake."""
    ours = _delta_ours()
    # Its other jar comes with it.
    asked, jars = f"--packages {':'.join(ours[0])}", " and ".join(jar.file for jar in ours)
    if own:
        way = _INSTALL
    else:
        way = f"give spark-submit {asked} and the two settings of docs/how-to/delta-tables.md"
    by_hand = f"or put {jars} of Maven Central into SPARK_HOME/jars"
    return f"Spark has no Delta Lake, whose jars are no part of the wheel: {way}, {by_hand}"


def not_fetched(package: str) -> str:
    """Return one line for a ``group:artifact:version`` that Maven has not given."""
    repository = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY", "https://repo1.maven.org/maven2")
    told = f"{escape(package)} cannot be fetched from {escape(repository)}"
    another = "name another repository, DEFAULT_ARTIFACT_REPOSITORY"
    if not package.startswith("io.delta:"):
        return f"Spark does not start: {told}: {another}"
    names = " and ".join(jar.file for jar in _delta_ours())
    return f"--tables: {told}: {another}, {f'put {names} into SPARK_HOME/jars, ' if names else ''}or leave out --tables"
