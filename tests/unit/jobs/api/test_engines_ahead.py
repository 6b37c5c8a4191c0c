"""Which engine a run has that names none."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rocketmq_reindex.jobs.api import engines_ahead
from rocketmq_reindex.jobs.building.options import build_settings
from rocketmq_reindex.jobs.spark import java
from rocketmq_reindex.storage_format.errors import InputError, UsageError

NO_JAVA = "Spark needs Java, and JAVA_HOME is not set, and no java is on PATH"
NO_SPARK = "Spark is not installed: pip install 'rocketmq-reindex[spark]'"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No Java, and no session."""
    for name in ("JAVA_HOME", *java._SESSIONS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "CHECKOUT", None)
    return monkeypatch


def chosen(session: Any = None, **given: Any) -> tuple[str, str]:
    settings, said = engines_ahead.with_engine(build_settings({"store": "store", "out": "out", **given}), session)
    return settings.engine, said


def test_spark_where_it_has_a_java(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    bare.setenv("JAVA_HOME", str(tmp_path))
    assert chosen() == ("spark", "")
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    assert chosen() == ("local", f"engine local: Spark does not run on Java 1.8.0 ({tmp_path})")


def test_this_machine_where_it_has_none(bare: pytest.MonkeyPatch) -> None:
    assert chosen() == chosen(master="local[2]") == ("local", f"engine local: {NO_JAVA}")
    assert chosen(engine="local") == ("local", "")
    bare.setattr(java, "find_spec", lambda _: None)
    assert chosen() == ("local", f"engine local: {NO_SPARK}")


@pytest.mark.parametrize("given", [{"engine": "spark"}, {"tables": "tables"}, {"master": "spark://host:7077"}])
def test_spark_is_not_replaced_where_it_alone_will_do(given: dict[str, Any], bare: pytest.MonkeyPatch) -> None:
    assert chosen(**given) == ("spark", "")
    bare.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(InputError) as raised:
        chosen(**given)
    assert str(raised.value) == f"{NO_SPARK}, or take --engine local"


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION"])
def test_a_session_needs_no_java_here(name: str, bare: pytest.MonkeyPatch) -> None:
    bare.setenv(name, "1")
    assert chosen() == ("spark", "")


def test_a_session_that_is_given(bare: pytest.MonkeyPatch) -> None:
    assert bare is not None
    assert chosen(object()) == ("spark", "")


def test_an_export_takes_spark_where_it_is_asked_for(bare: pytest.MonkeyPatch) -> None:
    assert not engines_ahead.is_on_spark("", "", None)
    assert not engines_ahead.is_on_spark("local", "", None)
    assert engines_ahead.is_on_spark("", "spark://host:7077", None)
    assert engines_ahead.is_on_spark("", "", cast(Any, object()))
    with pytest.raises(UsageError, match="engine local has no use for a session"):
        engines_ahead.is_on_spark("local", "", cast(Any, object()))
    bare.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert engines_ahead.is_on_spark("", "", None)
    assert not engines_ahead.is_on_spark("local", "", None)
    bare.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(InputError) as raised:
        engines_ahead.is_on_spark("spark", "", None)
    assert str(raised.value) == f"{NO_SPARK}, or take --engine local"
