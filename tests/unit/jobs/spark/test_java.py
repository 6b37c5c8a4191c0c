"""A Java that Spark does not run on is refused before Spark's own words come."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex.jobs.spark.java import check_java
from rocketmq_reindex.storage_format.errors import InputError


def jdk(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").touch(0o755)
    if version:
        (folder / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return folder


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "24", "25.0.1"])
def test_a_java_that_spark_does_not_run_on(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(jdk(tmp_path / "a\njdk", version)))
    with pytest.raises(InputError) as refused:
        check_java()
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"Spark does not run on Java {version.partition('_')[0]} (")
    assert line.endswith("set JAVA_HOME to a JDK 17 or 21, or take --engine local, which needs no Java")


@pytest.mark.parametrize("version", ["17.0.10", "21.0.2", "22", ""])
def test_one_that_it_may_run_on(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = jdk(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    check_java()
    monkeypatch.delenv("JAVA_HOME")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    check_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"^Spark needs Java, and JAVA_HOME=.* is none: .*--engine local"):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    with pytest.raises(InputError, match=r"^Spark needs Java, and JAVA_HOME is not set, and no java is on PATH: "):
        check_java()
