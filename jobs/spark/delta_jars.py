"""A session without Delta Lake, where --tables needs it: said as the session starts, with how to get it."""

from __future__ import annotations

from typing import Any, Final

import pyspark

from rocketmq_reindex.jobs.spark.java import delta_packages
from rocketmq_reindex.storage_format.errors import InputError

_SPARK: Final = "4.1."
"""the Spark whose Delta Lake is tested; another one's has other names"""
_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"


def check_delta(spark: Any, own: bool) -> None:
    """Raises InputError where a session that has just been started has no Delta Lake. ``own``: not by spark-submit."""
    try:
        spark._jvm.org.apache.spark.util.Utils.classForName(_CLASS, False, False)
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            # Whatever it is: the first table shows it.
            return
        if not pyspark.__version__.startswith(_SPARK):
            words = (
                f"Spark {pyspark.__version__} has no Delta Lake, and --tables is tested with Spark {_SPARK.rstrip('.')} alone"
            )
            raise InputError(f"--tables: {words}: leave out --tables") from error
        raise InputError(f"--tables: {how_to_get_delta(own)}, or leave out --tables") from error


def how_to_get_delta(own: bool) -> str:
    """One line for a session without Delta Lake."""
    packages = delta_packages() or ["io.delta:delta-spark_4.1_2.13"]
    asked = f"--packages {packages[0]}"
    # Its other jar comes with it.
    jars = " and ".join(
        f"{name}-{version}.jar" for _, name, version in (it.split(":") for it in packages if it.count(":") == 2)
    )
    if own:
        way = f"set PYSPARK_SUBMIT_ARGS='{asked} pyspark-shell'"
    else:
        way = f"give spark-submit {asked} and the two settings of docs/how-to/delta-tables.md"
    by_hand = f", or put {jars} of Maven Central into SPARK_HOME/jars" if jars else ""
    return f"Spark has no Delta Lake, whose jars are no part of the wheel: {way}{by_hand}"
