"""What `make dist` made: this tree, the packages that it imports, and the Databricks bundle with its wheel."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata

from rocketmq_reindex.udfs.worker.environment import ARCHIVE, PROGRAM, digest_of
from scripts.dist import DIST, PYTHON
from tests import ROOT
from tests.tools.bundle import TASKS

PACKAGES = ("storage_format", "files", "udfs", "jobs")
PACKAGE = "rocketmq_reindex"
DATABRICKS = DIST / "databricks"
CARRIED = "/storage_format/kernels/carried/"
"""the folder of compiled loops in the zip"""


def test_the_zip_is_the_tree() -> None:
    """Else `make dist` has not run since."""
    paths = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    here = {f"{PACKAGE}/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in paths}
    here |= {f"{PACKAGE}/{path.name}": path.read_bytes() for path in (ROOT / PACKAGE).glob("*.py")}
    with zipfile.ZipFile(DIST / "rocketmq_reindex.zip") as archive:
        code = {name: archive.read(name) for name in archive.namelist() if name.endswith(".py")}
        conf = {name.rpartition("/")[2] for name in archive.namelist() if name.startswith(f"{PACKAGE}/conf/")}
    assert code == here
    assert {"spark-defaults.conf", "log4j2.properties"} <= conf
    (wheel,) = DIST.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(DIST / "rocketmq_reindex.zip") as made:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            name: made.read(name) for name in made.namelist() if not name.endswith(".pyc") and CARRIED not in name
        }
    assert (DIST / "rmq_reindex.py").read_bytes() == (ROOT / "jobs" / "cli.py").read_bytes()


def test_what_is_compiled_is_the_same_for_the_wheel_and_the_zip() -> None:
    """A driver has the one, executors the other: both find the loops that one of them compiled."""
    stamps = set()
    for path in (*DIST.glob("*.whl"), DIST / "rocketmq_reindex.zip", ROOT):
        asked = f"import sys; sys.path.insert(0, {str(path)!r})\n"
        asked += "from rocketmq_reindex.storage_format.kernels import cache_folder as c; print(c.__file__, c.at_start())"
        done = subprocess.run([sys.executable, "-I", "-c", asked], capture_output=True, text=True, check=True)
        file, stamp = done.stdout.split()
        assert file.startswith(str(path))
        stamps.add(stamp)
    assert len(stamps) == 1


def test_the_environment_has_what_the_jobs_import_and_not_spark() -> None:
    with tarfile.open(DIST / "environment.tar.gz") as archive:
        members = {member.name: member for member in archive}
    top = {name.split("/")[1] for name in members if name.startswith("lib/")}
    assert {"numpy", "pyarrow", "numba", "llvmlite", "mmh3", "xxhash", "pandas", "rich"} <= top
    assert not top & {"pyspark", "py4j", "pytest", "atheris", *PACKAGES}
    assert list(members) == sorted(members)
    assert {(member.mtime, member.uid, member.uname) for member in members.values()} == {(0, 0, "")}
    assert members["bin/python"].mode == 0o755


def test_the_program_is_for_this_archive() -> None:
    """It is known by its digest. Python is named as the environment's own launcher names it, and imports nothing around it."""
    text = (DIST / PROGRAM).read_text(encoding="utf-8")
    assert text.startswith(f"#!/usr/bin/env -S {PYTHON} -I\n")
    assert f'"{digest_of(str(DIST / ARCHIVE))}"' in text
    assert (DIST / PROGRAM).stat().st_mode & 0o777 == 0o755


def test_the_environment_has_nothing_that_no_process_loads() -> None:
    """Each executor unpacks it."""
    with tarfile.open(DIST / "environment.tar.gz") as archive:
        sizes = {member.name: member.size for member in archive}
    # The packages of a test, in the folder of the one that it tests.
    assert not [name for name in sizes if "tests" in name.split("/")]
    libraries = [name for name in sizes if re.fullmatch(r"lib/pyarrow/lib.*\.so.*", name) and ".cpython-" not in name]
    assert len(libraries) >= 5
    assert all(re.fullmatch(r".*\.so\.\d+", name) for name in libraries), libraries
    assert sum(sizes.values()) < 440_000_000


def test_the_environment_has_bytecode_that_goes_by_the_source() -> None:
    """Unpacking gives the files another time. Bit 0 of the flags: known by a hash; bit 1: which is compared (PEP 552)."""
    with tarfile.open(DIST / "environment.tar.gz") as archive:
        names = set(archive.getnames())
        bytecode = [name for name in names if name.endswith(".pyc")]
        core = next(name for name in bytecode if name.startswith("lib/numba/core/__pycache__/compiler."))
        packed = archive.extractfile(core)
        assert packed is not None
        assert packed.read(8) == importlib.util.MAGIC_NUMBER + (3).to_bytes(4, "little")
    sources = {name for name in names if name.endswith(".py") and name.startswith(("lib/numba/", "lib/pyarrow/", "lib/rich/"))}
    assert {importlib.util.cache_from_source(name) for name in sources} <= set(bytecode)


def test_the_wheel_has_the_entry_point() -> None:
    """As a wheel task looks for it: a name among the entry points of a distribution."""
    (wheel,) = DATABRICKS.glob("*.whl")
    for task in TASKS.values():
        if "python_wheel_task" not in task:
            continue
        wanted = task["python_wheel_task"]
        (found,) = metadata.distributions(name=wanted["package_name"], path=[str(wheel)])
        (entry,) = [entry for entry in found.entry_points if entry.name == wanted["entry_point"]]
        module, _, name = entry.value.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
        assert [library["whl"] for library in task["libraries"]] == ["./*.whl"]


def test_what_is_deployed_is_what_is_here() -> None:
    assert (DATABRICKS / "databricks.yml").read_bytes() == (ROOT / "conf" / "databricks" / "databricks.yml").read_bytes()
    here = {path.name: path.read_bytes() for path in (ROOT / "notebooks").glob("*.py")}
    assert {path.name: path.read_bytes() for path in (DATABRICKS / "notebooks").iterdir()} == here


def test_the_image_copies_what_is_there() -> None:
    """Its context is dist/. Its Python is that of the environment by default only where `make dist` ran with it."""
    lines = (ROOT / "conf" / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [
        name for line in lines if line.startswith(("ADD ", "COPY ")) and "--from" not in line for name in line.split()[1:-1]
    ]
    assert {"environment.tar.gz", "rocketmq_reindex.zip", "rmq_reindex.py", "jars/"} <= set(copied)
    assert all((DIST / name).exists() for name in copied), copied
