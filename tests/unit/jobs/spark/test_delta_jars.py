"""How to get Delta Lake, for a session that has none."""

from __future__ import annotations

import pyspark
import pytest

from rocketmq_reindex.jobs.spark import jars
from rocketmq_reindex.storage_format.errors import InputError


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

    pinned = jars.delta_packages()
    assert pinned
    with pytest.raises(InputError) as raised:
        jars.check_delta(Session(), own)
    told = str(raised.value)
    assert told.startswith("--tables: Spark has no Delta Lake, whose jars are no part of the wheel: ")
    assert f"{way}{pinned[0]}" in told
    for package in pinned:
        _, name, version = package.split(":")
        assert f"{name}-{version}.jar" in told
    assert told.endswith("into SPARK_HOME/jars, or leave out --tables")


@pytest.mark.parametrize(
    ("version", "fits"), [("4.1.1", "4.1"), ("4.2.1", "4.2"), ("4.3.0", ""), ("4.0.1", ""), ("4.10.0", "")]
)
def test_each_spark_has_the_delta_lake_of_its_name(version: str, fits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    names = [package.split(":")[1] for package in jars.delta_packages()]
    assert names == ([f"delta-spark_{fits}_2.13", "delta-storage"] if fits else [])
    assert len(jars.delta_jars()) == len(names)
    assert jars.delta_sparks() == ["4.1", "4.2"]
