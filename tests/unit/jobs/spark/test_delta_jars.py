"""How to get Delta Lake, for a session that has none."""

from __future__ import annotations

import pytest

from rocketmq_reindex.jobs.spark import java
from rocketmq_reindex.storage_format.errors import InputError
from tests import ROOT


@pytest.mark.parametrize(
    ("own", "way"), [(True, "set PYSPARK_SUBMIT_ARGS='--packages "), (False, "give spark-submit --packages ")]
)
def test_which_jars_and_where_to(own: bool, way: str) -> None:
    """Those that conf/jars.txt has, which fit this Spark."""

    class Session:
        class _jvm:
            class org:
                class apache:
                    class spark:
                        class util:
                            class Utils:
                                @staticmethod
                                def classForName(name: str, *_: object) -> None:
                                    raise RuntimeError(f"java.lang.ClassNotFoundException: {name}")

    pinned = [line.split()[1] for line in (ROOT / "conf" / "jars.txt").read_text().splitlines() if not line.startswith("#")]
    with pytest.raises(InputError) as raised:
        java.check_delta(Session(), own)
    told = str(raised.value)
    assert told.startswith("--tables: Spark has no Delta Lake, whose jars are no part of the wheel: ")
    assert f"{way}{pinned[0]}" in told
    for package in pinned:
        _, name, version = package.split(":")
        assert f"{name}-{version}.jar" in told
    assert told.endswith("into SPARK_HOME/jars, or leave out --tables")
