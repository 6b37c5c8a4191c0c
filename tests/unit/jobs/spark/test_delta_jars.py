"""How to get Delta Lake, for a session that has none."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pyspark
import pytest

from rocketmq_reindex.jobs.spark import jars
from rocketmq_reindex.storage_format.errors import InputError


@pytest.mark.parametrize("own", [True, False])
def test_which_jars_and_where_to(own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that conf/jars.txt has, which fit this Spark."""
    monkeypatch.setattr(jars, "find_spec", lambda _: None)

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
    assert ("pip install 'rocketmq-reindex[delta]'" if own else f"give spark-submit --packages {pinned[0]}") in told
    for package in pinned:
        _, name, version = package.split(":")
        assert f"{name}-{version}.jar" in told
    assert told.endswith("into SPARK_HOME/jars, or leave out --tables")


@pytest.mark.parametrize(("spark", "fits"), [("4.1.1", "4.1"), ("4.2.1", "4.2"), ("4.3.0", ""), ("4.0.1", ""), ("4.10.0", "")])
def test_each_spark_has_the_delta_lake_of_its_name(spark: str, fits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", spark)
    names = [package.split(":")[1] for package in jars.delta_packages()]
    assert names == ([f"delta-spark_{fits}_2.13", "delta-storage"] if fits else [])
    assert len(jars.delta_jars()) == len(names)
    assert jars.delta_sparks() == ["4.1", "4.2"]


NAMED = f"io.delta:delta-spark_{'.'.join(pyspark.__version__.split('.')[:2])}_2.13:{version('delta-spark')}"


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("", ""),
        ("--conf spark.ui.enabled=false pyspark-shell", "--conf spark.ui.enabled=false pyspark-shell"),
        ("--packages a:b:1 pyspark-shell", f"--packages {NAMED},a:b:1 pyspark-shell"),
        ("--packages='a:b:1,c:d:2' pyspark-shell", f"--packages='{NAMED},a:b:1,c:d:2' pyspark-shell"),
        ("--conf spark.jars.packages=a:b:1 pyspark-shell", f"--conf spark.jars.packages={NAMED},a:b:1 pyspark-shell"),
    ],
)
def test_what_delta_spark_names_is_fetched_beside_the_users_packages(
    given: str, then: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    assert jars.delta_by_maven()["spark.jars.packages"] == NAMED
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == then


@pytest.mark.parametrize("given", ["--packages io.delta:delta-spark_4.1_2.13:4.3.1 pyspark-shell", ""])
def test_a_delta_lake_of_the_users_own_is_taken(given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", given)
    if not given:
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "delta-spark_4.1_2.13-4.3.1.jar").touch()
    assert jars.delta_by_maven() == {}
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == given
