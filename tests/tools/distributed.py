"""What ``make dist`` made, in a folder that has no checkout, for a Python that has no packages."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocketmq_reindex.udfs.worker.environment import ARCHIVE, PROGRAM
from tests.tools.faulty_cluster import quick, spark_home
from tests.tools.faulty_processes import ROOT, java

DIST = ROOT / "dist"
PATIENCE = 900


@dataclass(frozen=True)
class Submitted:
    """A spark-submit that has ended; it joins what Python says on stderr into stdout."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class Place:
    """The folder with what a user submits, and with the only Python on PATH."""

    folder: Path
    more: Mapping[str, str] = field(default_factory=dict)
    """of the environment"""
    here: Path | None = None
    """from where the user submits, if not from there"""
    by_archives: bool = False
    """whether Spark unpacks the environment, as YARN does once a node"""

    @property
    def environment(self) -> dict[str, str]:
        """Nothing of the shell that runs the tests."""
        return {
            **java(),
            "PATH": f"{self.folder / 'python' / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "PYSPARK_PYTHON": f"./{PROGRAM}",
            # The driver's is where the user is.
            **({"PYSPARK_DRIVER_PYTHON": str(self.folder / PROGRAM)} if self.here else {}),
            # Where executors find the driver, whatever the host's name leads to.
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self.more,
        }

    def submit(self, master: str, settings: Mapping[str, str], *words: str | Path) -> Submitted:
        """``spark-submit ... rmq_reindex.py WORDS`` as docs/how-to/cluster.md has it."""
        at = self.folder if self.here else Path()
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", master]
        submit += ["--properties-file", str(at / "spark-defaults.conf")]
        # Else Spark tells all that it does.
        log4j2 = (self.folder / "log4j2.properties").as_uri()
        driver = quick("driver")
        driver["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile={log4j2}"
        submit += ["--py-files", str(at / "rocketmq_reindex.zip")]
        if self.by_archives:
            submit += ["--files", str(at / PROGRAM), "--archives", f"{at / ARCHIVE}#environment"]
        else:
            submit += ["--files", f"{at / PROGRAM},{at / ARCHIVE}"]
        submit += [word for name, value in (driver | dict(settings)).items() for word in ("--conf", f"{name}={value}")]
        done = subprocess.run(
            [*submit, str(at / "rmq_reindex.py"), *map(str, words)],
            cwd=self.here or self.folder, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", check=False, timeout=PATIENCE,
        )  # fmt: skip
        return Submitted(done.returncode, done.stdout, done.stderr)


def place(folder: Path) -> Place:
    """A new folder with what a user copies there."""
    assert (DIST / PROGRAM).exists(), "make dist has not run"
    folder.mkdir(parents=True)
    (folder / "home").mkdir()
    for path in DIST.iterdir():
        if path.is_file():
            os.symlink(path, folder / path.name)
    venv.create(folder / "python", symlinks=True)
    # Named as this Python is.
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    assert (folder / "python" / "bin" / name).exists()
    return Place(folder)
