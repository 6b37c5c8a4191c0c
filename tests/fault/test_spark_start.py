"""Spark that does not start, or whose own disk is full: the line says why, and where."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from rocketmq_reindex.jobs.spark import engine, gateway, jars, session
from rocketmq_reindex.storage_format.errors import InputError
from tests.golden.stores import GoldenStore
from tests.tools.faulty_cluster import quick, spark_home
from tests.tools.faulty_disk import namespace
from tests.tools.faulty_processes import PATIENCE, ROOT, java as chosen_java
from tests.unit.jobs.spark.test_full_disk import SAID

Stores = Callable[[str], GoldenStore]
COMMAND = Path(sys.executable).with_name("rmq-reindex")
MAIN = "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"


def launched(options: str) -> list[str]:
    """The words with which Spark's launcher starts a JVM that is given these options."""
    jvm = [str(Path(chosen_java().get("JAVA_HOME") or os.environ["JAVA_HOME"], "bin", "java")), "-cp", f"{spark_home()}/jars/*"]
    words = [*jvm, *MAIN, "--conf", f"spark.driver.extraJavaOptions={options}", "pyspark-shell"]
    environment = os.environ | {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    told = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
    return told.decode().split("\0")


@pytest.mark.parametrize("name", ["a b", "c'd", 'e"f', "g\\h", "plain"])
def test_a_class_archive_in_any_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / name
    (checkout / "jars").mkdir(parents=True)
    monkeypatch.setattr(jars, "CHECKOUT", checkout)
    monkeypatch.setenv("JAVA_HOME", chosen_java().get("JAVA_HOME") or os.environ["JAVA_HOME"])
    archive = jars.class_archive()
    assert archive is not None
    archive.write_bytes(b"")
    options = session.configuration("local[2]", "some user")["spark.driver.extraJavaOptions"]
    words = launched(options)
    assert f"-XX:SharedArchiveFile={archive}" in words
    assert "-DHADOOP_USER_NAME=some user" in words


def build_words(store: GoldenStore, tmp_path: Path) -> list[str]:
    words = ["build", str(store.path), "--out", str(tmp_path / "out"), "--master", "local[2]"]
    return words + [f"--{name.replace('_', '-')}={size}" for name, size in store.sizes().items()]


def run(
    store: GoldenStore, tmp_path: Path, *before: str, command: Sequence[str] = (str(COMMAND),), **more: str
) -> tuple[int, list[str]]:
    """The exit status of a build, and the lines that say its error."""
    words = [*before, *command, *build_words(store, tmp_path)]
    environment = os.environ | chosen_java() | more
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert not (tmp_path / "out").exists()
    # Of threads that only see that the end has come.
    assert "Traceback" not in done.stderr
    assert "BrokenPipeError" not in done.stderr
    return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("error: ")]


def test_the_jvms_own_reason_is_told(golden_store: Stores, tmp_path: Path) -> None:
    """The JDK is right: so it is not blamed."""
    given = {"PYSPARK_SUBMIT_ARGS": "--driver-java-options -javaagent:/none pyspark-shell"}
    status, errors = run(golden_store("trimmed-head"), tmp_path, **given)
    assert status == 1
    assert errors == ["error: Spark does not start: Error opening zip file or JAR manifest missing : /none"]


def test_a_wrong_setting_names_itself(golden_store: Stores, tmp_path: Path) -> None:
    """Spark's own first words are "Error while instantiating 'org.apache.spark.sql.internal.SessionStateBuilder'"."""
    given = {"PYSPARK_SUBMIT_ARGS": "--conf spark.sql.shuffle.partitions=abc pyspark-shell"}
    status, (error,) = run(golden_store("trimmed-head"), tmp_path, **given)
    assert status == 1
    assert "spark.sql.shuffle.partitions" in error
    assert "abc" in error
    assert "SessionStateBuilder" not in error
    assert error.endswith("nothing was published")


@pytest.mark.parametrize("name", ["spark.executor.memory", pytest.param("spark.executor.cores", marks=pytest.mark.slow)])
def test_a_wrong_setting_is_told_without_a_trace(name: str, golden_store: Stores, tmp_path: Path) -> None:
    """Spark's launcher prints one, and names no setting."""
    words = [str(COMMAND), *build_words(golden_store("trimmed-head"), tmp_path)]
    environment = os.environ | chosen_java() | {"PYSPARK_SUBMIT_ARGS": f"--conf {name}=-3 pyspark-shell"}
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 1
    assert not [line for line in done.stderr.splitlines() if line.startswith(("\tat ", "Exception", "Caused by"))]
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert error.startswith(f"error: Spark does not start: {name}: Executor ")
    assert error.endswith(" must be a positive number")


SMALL_RESULTS = """
import json, sys
from pyspark.sql import SparkSession
from rocketmq_reindex.jobs.cli import main
builder = SparkSession.builder.master("local[2]").config("spark.driver.maxResultSize", "1")
for name, value in json.loads(sys.argv.pop(1)).items():
    builder = builder.config(name, value)
builder.getOrCreate()
sys.exit(main(sys.argv[1:]))
"""


def test_results_above_a_setting_name_it(golden_store: Stores, tmp_path: Path) -> None:
    """In a session of somebody else's, as spark-submit gives it: ours has a setting of its own."""
    words = [sys.executable, "-c", SMALL_RESULTS, json.dumps(quick("driver"))]
    status, (error,) = run(golden_store("trimmed-head"), tmp_path, command=words, PYSPARK_PYTHON=sys.executable)
    assert status == 1
    assert error.startswith("error: spark.driver.maxResultSize is too small: Total size of serialized results of 1 tasks (")
    assert error.endswith(" is bigger than spark.driver.maxResultSize (1.0 B): nothing was published")


def test_a_full_disk_of_sparks_own(golden_store: Stores, tmp_path: Path) -> None:
    store, disk = golden_store("trimmed-head"), tmp_path / "small"
    disk.mkdir()
    words = namespace()
    if not words:
        # Nothing may be mounted here: what a JVM says then.
        with pytest.raises(InputError, match="Spark's own folder: No space left on device"), engine.named(None):
            raise RuntimeError(SAID)
        return
    mount = f"mount -t tmpfs -o size=8k none '{disk}' && exec \"$@\""
    status, errors = run(store, tmp_path, *words, "sh", "-c", mount, "sh", SPARK_LOCAL_DIRS=str(disk))
    assert status == 1
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {disk}: No space left on device: ")
    assert "SPARK_LOCAL_DIRS" in errors[0]
    assert errors[0].endswith("nothing was published")


def test_a_python_that_lacks_us(golden_store: Stores, tmp_path: Path) -> None:
    """The whole command: nothing is started. Its other cases are in tests/unit/jobs/spark."""
    status, errors = run(golden_store("trimmed-head"), tmp_path, PYSPARK_PYTHON=sys._base_executable)  # type: ignore[attr-defined]
    assert status == 1
    (error,) = errors
    assert error.startswith(f"error: PYSPARK_PYTHON, on {platform.node()}: {sys._base_executable} lacks rocketmq_reindex, ")  # type: ignore[attr-defined]


def test_a_wrong_python_for_a_local_session_of_spark_submit(tmp_path: Path) -> None:
    """A packed one that was not unpacked here, for one."""

    class Submitted:
        master, pythonExec = "local[2]", f"{tmp_path}/environment/bin/python"
        _temp_dir = str(tmp_path)

    with pytest.raises(InputError, match=f"PYSPARK_PYTHON, on .*: {Submitted.pythonExec} is no program: leave"):
        gateway.wrap_python(Submitted)
    assert list(tmp_path.iterdir()) == []


def test_relative_paths_count_from_where_the_command_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers work elsewhere: a relative folder of compiled code would be made in the root folder."""
    relative = {"NUMBA_CACHE_DIR": "kept", "AWS_CONFIG_FILE": "aws", "PYTHONPATH": ":lib"}
    given = relative | {"KRB5_CONFIG": "~/krb5", "SSL_CERT_FILE": ""}
    meant = given | {name: f"{tmp_path}/{value.lstrip(':')}" for name, value in relative.items()}
    monkeypatch.chdir(tmp_path)
    for name, value in given.items():
        monkeypatch.setenv(name, value)

    class Submitted:
        """The JVM that spark-submit started stays where it was started, its workers do not."""

        master, pythonExec = "local[2]", sys.executable
        _temp_dir = str(tmp_path)
        environment: ClassVar = {"AWS_CONFIG_FILE": "/of/executors"}

    gateway.wrap_python(Submitted)
    assert Submitted.environment["AWS_CONFIG_FILE"] == "/of/executors"
    for name in ("NUMBA_CACHE_DIR", "PYTHONPATH"):
        assert Submitted.environment[name] == meant[name]
    gateway.absolute_paths()
    assert {name: os.environ[name] for name in given} == meant
