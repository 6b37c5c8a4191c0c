"""Make the archive of Spark's and Delta's classes that local sessions start with (``jobs.spark.jars.class_archive``).

It is made once for each JVM. It holds what two small builds load, one with tables. The JVM writes it when it ends, after the
session is stopped.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import tempfile
from pathlib import Path

from rocketmq_reindex.jobs.spark.jars import class_archive
from rocketmq_reindex.jobs.spark.java import choose_java, java_option
from rocketmq_reindex.jobs.spark.session import configuration
from scripts.demo import unpack

MASTER = "local[2]"


def load_classes(folder: Path) -> None:
    """Have a JVM load what a build and one with tables load, and end."""
    from pyspark import SparkContext

    from rocketmq_reindex.jobs.cli import main as rmq_reindex

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        store = str(unpack(folder))
        # The JVM outlives its session, and serves the next one. One without tables has settings of its own.
        for name, more in (("out", []), ("with-tables", ["--tables", str(folder / "tables")])):
            rmq_reindex(["build", store, "--out", str(folder / name), *more, "--master", MASTER])
    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.stdin.close()
    process.wait()


def main() -> int:
    choose_java()
    archive = class_archive()
    if archive is None or archive.exists():
        return 0
    print("setup: archiving the classes that Spark loads (a minute, once)", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        made = Path(folder) / "classes.jsa"
        options = configuration(MASTER)["spark.driver.extraJavaOptions"]
        options += f" {java_option(f'-XX:ArchiveClassesAtExit={made}')} -Xlog:disable -Xlog:all=error:stderr"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-java-options {shlex.quote(options)} pyspark-shell"
        load_classes(Path(folder))
        if made.exists():
            made.replace(archive)
            jdk = archive.name.rpartition("-jdk-")[2]
            for older in archive.parent.glob(f"spark-*-jdk-{jdk}"):
                if older != archive:
                    older.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
