"""What a cluster needs that has no checkout and no package of this project, in ``dist/``: ``make dist``.

    rocketmq_reindex-VERSION-py3-none-any.whl    to install, on Databricks for one
    rocketmq_reindex.zip                         its files, bytecode and compiled loops, for --py-files: executors pass over a
                                                 .whl there
    rmq_reindex.py                               what spark-submit runs: the command line
    environment.tar.gz                           for --files or --archives: the third-party packages of uv.lock without pyspark
    rmq_python                                   for PYSPARK_PYTHON: runs the archive's Python, unpacked once a host
    spark-defaults.conf, log4j2.properties       for --properties-file and -Dlog4j2.configurationFile
    jars/                                        Delta Lake of this pyspark, for --jars where --tables is wanted
    databricks/                                  the bundle of conf/databricks with a wheel of its own, and the notebooks

The same sources give the same bytes. The environment fits this Python's minor version and this kind of machine.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from rocketmq_reindex.jobs.spark.jars import delta_jars
from rocketmq_reindex.udfs.worker.environment import ARCHIVE, PROGRAM, digest_of
from scripts.bundle_wheel import bundle_wheel
from scripts.carry import carry

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
BROUGHT_BY_SPARK = ("pyspark", "py4j")
LEFT_OUT = (
    "bin/",  # scripts name the folder that they were installed in
    "numba/cuda/", "pyarrow/include/", "pyarrow/src/",
    # A seventh of pyarrow's libraries is for servers of its own protocol. Substrait, Parquet and data sets are not needed
    # either, but libarrow_python has the system load their libraries.
    "pyarrow/_flight", "pyarrow/libarrow_flight", "pyarrow/libarrow_python_flight",
)  # fmt: skip
"""nobody imports it"""
TWICE = re.compile(r"pyarrow/lib\w+\.so(\.\d+\.\d+\.\d+)?")
"""copies of libraries by names that a compiler looks for; they are loaded as libarrow_python.so.N"""
SOURCES = (".a", ".c", ".cc", ".cpp", ".f", ".f90", ".h", ".hpp", ".pxd", ".pxi", ".pyf", ".pyi", ".pyx")
"""of compiled modules, and types for checkers"""
OF_INSTALLER = ("RECORD", "INSTALLER", "REQUESTED", ".lock")
LAUNCHER = f"""#!/bin/sh
# {PYTHON} with the packages beside this folder, for PYSPARK_PYTHON: wherever it is unpacked.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH=$here/lib${{PYTHONPATH:+:$PYTHONPATH}}
export PYTHONPATH
exec {PYTHON} "$@"
"""
UNPACKING = f"""#!/usr/bin/env -S {PYTHON} -I
# {PYTHON} with the packages of {ARCHIVE}, unpacked once a host, for PYSPARK_PYTHON. env has had -S for as long as the C library
# has had what the packages need.
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "rocketmq_reindex.zip"))
try:
    from rocketmq_reindex.udfs.worker.environment import become
except ImportError as error:
    sys.exit(f"error: {PROGRAM}: {{error}}: give spark-submit --py-files rocketmq_reindex.zip")
sys.exit(become(HERE, "%s", sys.argv[1:]))
"""


def uv(*words: str | Path) -> str:
    return subprocess.run([ROOT / "scripts" / "uv", *words], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def wanted(name: str) -> bool:
    """Whether a file of the installed packages goes into the archive."""
    *folders, file = name.split("/")
    if name.startswith(LEFT_OUT) or TWICE.fullmatch(name) or "tests" in folders:
        return False
    return not file.endswith(SOURCES) and file not in OF_INSTALLER


def compile_all(packages: Path, *words: str) -> None:
    """Put bytecode beside the sources, so that no process on an executor compiles what it imports.

    It is checked by a hash of its source: an archive is unpacked with other times than the files had here. ``words`` are more
    options of compileall.
    """
    words = ("-q", *words, "--invalidation-mode", "checked-hash", "-s", str(packages), str(packages))
    # A set of constants is written in the order of its hashes.
    surroundings = os.environ | {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""}
    # What is no Python of this version (templates, tests of other versions) has none. It is not imported either.
    subprocess.run([sys.executable, "-m", "compileall", *words], env=surroundings, stdout=subprocess.DEVNULL, check=False)


def pack(archive: Path, members: dict[str, tuple[bytes, int]]) -> None:
    """A tar.gz of {name: (bytes, mode)} that says nothing of when, where and by whom it was made."""
    aside = archive.with_name(archive.name + ".part")
    # Level 1: twice as fast as the default, and a tenth larger.
    with contextlib.ExitStack() as stack:
        packed = stack.enter_context(gzip.GzipFile("", "wb", 1, stack.enter_context(open(aside, "wb")), mtime=0))
        tar = stack.enter_context(tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT))
        for name, (content, mode) in sorted(members.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))
    aside.replace(archive)


def environment(archive: Path) -> None:
    """Install what uv.lock names aside, and pack it."""
    words = [word for name in BROUGHT_BY_SPARK for word in ("--no-emit-package", name)]
    words += ["--no-emit-project", "--no-default-groups", "--extra", "spark", "--extra", "hdfs", "--frozen", "--quiet"]
    with tempfile.TemporaryDirectory() as aside:
        listed, packages = Path(aside) / "requirements.txt", Path(aside) / "packages"
        listed.write_text(uv("export", *words), encoding="utf-8")
        uv("pip", "install", "-q", "--no-deps", "--python", sys.executable, "--target", packages, "-r", listed)
        for path in [path for path in packages.rglob("*") if path.is_file()]:
            if not wanted(path.relative_to(packages).as_posix()):
                path.unlink()
        compile_all(packages)
        files = {path.relative_to(packages).as_posix(): path for path in packages.rglob("*") if path.is_file()}
        members = {f"lib/{name}": (path.read_bytes(), 0o644) for name, path in files.items()}
    pack(archive, members | {"bin/python": (LAUNCHER.encode(), 0o755)})


def zipped(wheel: Path, target: Path) -> None:
    """The files of the wheel, and bytecode where zipimport looks for it: no process keeps what it compiles out of a zip.

    A Python of another version passes over it, and takes the sources. The record loops are compiled for common processors.
    """
    with tempfile.TemporaryDirectory() as aside:
        tree, made = Path(aside) / "tree", Path(aside) / target.name
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(tree)
        compile_all(tree, "-b")
        carry(tree)
        with zipfile.ZipFile(made, "w") as archive:
            for path in sorted(path for path in tree.rglob("*") if path.is_file()):
                # As of no day: the same sources give the same bytes.
                member = zipfile.ZipInfo(path.relative_to(tree).as_posix())
                member.external_attr = 0o644 << 16
                archive.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)
        put(made, target)


def put(source: Path, target: Path) -> None:
    """A copy in the place of what was there: a spark-submit that reads the old one goes on with it."""
    aside = target.with_name(target.name + ".part")
    shutil.copyfile(source, aside)
    aside.replace(target)


def put_program(archive: Path, target: Path) -> None:
    """The program that unpacks this very archive, and no other."""
    aside = target.with_name(target.name + ".part")
    aside.write_text(UNPACKING % digest_of(str(archive)), encoding="utf-8")
    aside.chmod(0o755)
    aside.replace(target)


def is_older(made: Path, *sources: Path) -> bool:
    return not made.exists() or made.stat().st_mtime <= max(source.stat().st_mtime for source in sources)


def main() -> int:
    DIST.mkdir(exist_ok=True)
    for wheel in DIST.glob("*.whl"):
        wheel.unlink()
    uv("build", "-q", "--wheel", "--no-create-gitignore", "-o", DIST)
    zipped(next(DIST.glob("*.whl")), DIST / "rocketmq_reindex.zip")
    put(ROOT / "jobs" / "cli.py", DIST / "rmq_reindex.py")
    for name in ("spark-defaults.conf", "log4j2.properties"):
        put(ROOT / "conf" / name, DIST / name)
    shutil.rmtree(DIST / "jars", ignore_errors=True)
    (DIST / "jars").mkdir()
    for path in map(Path, delta_jars()):
        shutil.copyfile(path, DIST / "jars" / path.name)
    databricks = DIST / "databricks"
    shutil.rmtree(databricks, ignore_errors=True)
    shutil.copytree(ROOT / "notebooks", databricks / "notebooks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / "conf" / "databricks" / "databricks.yml", databricks / "databricks.yml")
    bundle_wheel(next(DIST.glob("*.whl")), databricks)
    archive = DIST / ARCHIVE
    # Made anew where a package or this file has changed, or another Python has made it: it takes half a minute.
    made_by = DIST / ".environment"
    said = f"{PYTHON}\n"
    if is_older(archive, ROOT / "uv.lock", Path(__file__)) or not made_by.exists() or made_by.read_text() != said:
        environment(archive)
        made_by.write_text(said)
    put_program(archive, DIST / PROGRAM)
    for path in sorted(DIST.rglob("*")):
        if path.is_file() and not path.name.startswith("."):
            print(f"{path.stat().st_size:>12,}  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
