"""Which Spark a session starts, and with which paths, found out before the JVM starts; and what that JVM says."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyspark
import pytest

from rocketmq_reindex.jobs.spark import gateway
from rocketmq_reindex.storage_format.errors import InputError


def test_which_spark_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pyspark itself would take one from the folder above the working folder; an empty SPARK_HOME is that one, too."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").write_text("")
    (tmp_path / "jars").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("SPARK_HOME", "")
    monkeypatch.setenv("PYTHONPATH", f":one:{tmp_path}:")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "two,/three")
    gateway.absolute_paths()
    assert os.environ["SPARK_HOME"] == str(Path(pyspark.__file__).parent)
    assert os.environ["PYTHONPATH"] == f"{tmp_path}/here/one:{tmp_path}"
    assert os.environ["SPARK_LOCAL_DIRS"] == f"{tmp_path}/here/two,/three"


@pytest.mark.parametrize(
    ("jar", "told"),
    [
        ("", "is no Spark, it has no bin/spark-submit: unset it"),
        ("spark-core_2.12-3.5.1.jar", f"is Spark 3.5.1, and pyspark is {pyspark.__version__}: unset it"),
        (f"spark-core_2.13-{pyspark.__version__}.jar", None),
    ],
)
def test_a_wrong_spark_home(jar: str, told: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Found out before the JVM starts, and told apart from a missing JDK."""
    for name in ("bin", "jars"):
        (tmp_path / name).mkdir()
    if jar:
        (tmp_path / "jars" / jar).touch()
        (tmp_path / "bin" / "spark-submit").symlink_to("/bin/false")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    if told is None:
        gateway.absolute_paths()
        return
    with pytest.raises(InputError) as raised:
        gateway.absolute_paths()
    assert str(raised.value).startswith(f"Spark does not start: SPARK_HOME={tmp_path} {told}")


def test_what_a_jvm_says_is_passed_on(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What it said before it was up, and what it says later; not the line that every one of Spark's writes."""
    # A command that logs as JSON leaves its handler to the process.
    monkeypatch.setattr(gateway._log, "handlers", [])
    reading, writing = os.pipe()
    errors = gateway.JvmErrors(os.fdopen(reading, "rb"))
    errors.start()
    with os.fdopen(writing, "wb", buffering=0) as pipe:
        pipe.write(b"WARNING: Using incubator modules: jdk.incubator.vector\nearly\n")
        end = time.monotonic() + 60
        while not errors.first and time.monotonic() < end:
            time.sleep(0.01)
        errors.show()
        pipe.write(b"late\n")
    errors.join(60)
    assert capfd.readouterr().err == "early\nlate\n"
