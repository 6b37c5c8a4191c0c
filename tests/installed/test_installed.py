"""The wheel, installed where no checkout is: one import package, the same everywhere, that looks at nothing beside itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from pathlib import Path

import pytest

import rocketmq_reindex
from rocketmq_reindex.jobs.spark import jars
from scripts import manuals
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools.faulty_processes import PATIENCE, ROOT, java
from tests.tools.installed import Installed, install, put, uv
from tests.tools.trap import Opened, Trap

Stores = Callable[[str], GoldenStore]
PACKAGE = "rocketmq_reindex"
NAMES = f"""
import pkgutil, sys
import {PACKAGE}

def names(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        print(module.name)
        if module.ispkg:
            names(__import__(module.name, fromlist=["x"]))

assert not [name for name in ("jobs", "udfs", "files", "storage_format", "conf") if name in sys.modules]
print({PACKAGE}.__version__)
names({PACKAGE})
"""
PROGRAM = f"""
import sys
from {PACKAGE}.jobs.cli import main
sys.exit(main())
"""
BESIDE = f"""
import os
from {PACKAGE}.jobs.spark import jars, java
java.choose_java()
print(java.settings_folder(), jars.delta_jars(), jars.class_archive(), os.environ.get("JAVA_HOME"))
"""
TYPED = f"""
import {PACKAGE}
from {PACKAGE}.storage_format.showing import escape

reveal_type({PACKAGE}.__version__)
escape(3)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution and the wheel that is made of it, in a folder outside the checkout; in ``direct`` the wheel that
    is made of the checkout."""
    folder = tmp_path_factory.mktemp("built")
    uv("build", "-q", "--no-create-gitignore", "-o", folder)
    uv("build", "-q", "--no-create-gitignore", "--wheel", "-o", folder / "direct")
    return folder


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    (wheel,) = built.glob("*.whl")
    return install(wheel, tmp_path_factory.mktemp("installed") / "environment")


@pytest.fixture(scope="module")
def without_spark(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel with what it asks for by itself, as uv.lock has it, and nothing of an extra."""
    (wheel,), made = built.glob("*.whl"), Installed(tmp_path_factory.mktemp("without-spark") / "environment")
    # As set-up made .venv: by the addresses in uv.lock, whose files are in uv's cache by now.
    words = ("sync", "-q", "--frozen", "--offline", "--no-default-groups", "--no-install-project", "--python", sys.executable)
    uv(*words, UV_PROJECT_ENVIRONMENT=str(made.folder))
    put(wheel, made)
    return made


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path / "trap")


@pytest.fixture
def opened(trap: Trap) -> Iterator[Opened]:
    found = Opened({trap.here, trap.here.parent, *(path for path in trap.here.parent.rglob("*") if path.is_dir())})
    yield found
    found.close()


def run(words: list[str | Path], cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """In an environment with nothing of the shell that runs the tests."""
    clean = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "SPARK_LOCAL_IP": "127.0.0.1", **java()}
    return subprocess.run(
        list(map(str, words)), cwd=cwd, env=clean | more, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", check=False, timeout=PATIENCE,
    )  # fmt: skip


def names_of(python: Path | str, *options: str | Path, cwd: Path, **more: str) -> list[str]:
    """The version and all modules of the package, as a Python finds them."""
    done = run([python, *options, "-c", NAMES], cwd, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_it_puts_one_package_beside_the_others(installed: Installed) -> None:
    (record,) = installed.packages.glob("*.dist-info/RECORD")
    tops = {line.split("/")[0] for line in record.read_text().splitlines()}
    assert tops == {PACKAGE, record.parent.name, ".."}
    assert {path.name for path in installed.packages.iterdir()} == {PACKAGE, record.parent.name, "dependencies.pth"}
    assert [path.name for path in installed.folder.glob("bin/rmq*")] == ["rmq-reindex"]
    assert all((installed.folder / place).read_text() == text for place, text in manuals.files())
    found = Parser().parsestr((record.parent / "METADATA").read_text())
    assert (found["Name"], found["Version"]) == ("rocketmq-reindex", rocketmq_reindex.__version__)
    assert "Typing :: Typed" in found.get_all("Classifier", [])


def test_type_checkers_are_told_of_types_in_all_forms(built: Path, installed: Installed) -> None:
    """The wheel's bytes are those of the zip for ``--py-files``."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive, tarfile.open(sdist) as source:
        told = f"{PACKAGE}/py.typed"
        assert told in archive.namelist()
        assert f"{sdist.name.removesuffix('.tar.gz')}/{told}" in source.getnames()
    assert (installed.packages / told).read_bytes() == b""


def test_the_source_distribution_makes_the_same_wheel(built: Path) -> None:
    (one,), (two,) = built.glob("*.whl"), built.glob("direct/*.whl")
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(two) as second:
        assert {name: first.read(name) for name in first.namelist()} == {name: second.read(name) for name in second.namelist()}


def test_all_see_the_same_names(built: Path, installed: Installed, tmp_path: Path) -> None:
    """The wheel is what Databricks installs. Its bytes are those of the zip for ``--py-files``, which Airflow submits."""
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    here = names_of(sys.executable, "-P", cwd=ROOT) if sys.version_info >= (3, 11) else names_of(sys.executable, cwd=ROOT)
    assert {f"{PACKAGE}.jobs.cli", f"{PACKAGE}.udfs.worker.daemon", f"{PACKAGE}.storage_format.record.loop"} <= set(here)
    assert names_of(installed.python, cwd=tmp_path) == here
    (tmp_path / "rocketmq_reindex.zip").write_bytes(wheel.read_bytes())
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert not [path for path in (unpacked / PACKAGE).iterdir() if path.is_dir()]
    # The part of `make setup` that makes it a checkout; the rest of it downloads.
    subprocess.run([unpacked / "scripts" / "links"], check=True)
    bare = install(wheel, tmp_path / "bare")
    uv("pip", "uninstall", "-q", "--python", bare.python, "rocketmq-reindex")
    for path in (tmp_path / "rocketmq_reindex.zip", unpacked):
        assert names_of(bare.python, cwd=tmp_path, PYTHONPATH=str(path)) == here, path
    # A checkout: it has scripts and tests, and what links lead to is there once.
    assert (unpacked / "scripts" / "setup").exists()
    assert (unpacked / "tests" / "conftest.py").exists()


def test_what_lies_beside_it_is_not_looked_for(installed: Installed, tmp_path: Path) -> None:
    """Only a checkout, which has the project's own pyproject.toml, has jars/ and .java-home."""
    beside = {
        "jars/delta-evil.jar": "", ".java-home": "/evil\n", "conf/spark-defaults.conf": "spark.driver.memory 1k\n",
        "pyproject.toml": 'name = "rocketmq-reindex"\n', "jobs/__init__.py": "raise SystemExit(9)\n",
    }  # fmt: skip
    for name, text in beside.items():
        path = installed.packages / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    try:
        done = run([installed.python, "-c", BESIDE], tmp_path, JAVA_HOME="")
    finally:
        for name in beside:
            path = installed.packages / name
            path.unlink()
            if path.parent != installed.packages:
                for left in path.parent.rglob("*.pyc"):
                    left.unlink()
                path.parent.rmdir()
    assert done.stdout.split() == [str(installed.packages / PACKAGE / "conf"), "[]", "None"], done.stdout + done.stderr


def test_a_users_program_sees_its_types(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    words: list[str | Path] = [Path(sys.executable).with_name("mypy"), "--strict", "--python-executable", installed.python]
    done = run([*words, "--cache-dir", tmp_path / "cache", "program.py"], tmp_path)
    said = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if line.startswith("program.py")]
    assert said == [
        'note: Revealed type is "str"',
        'error: Argument 1 to "escape" has incompatible type "int"; expected "str"  [arg-type]',
    ], done.stdout + done.stderr


def test_commands_without_spark_from_a_hostile_folder(
    installed: Installed, trap: Trap, opened: Opened, golden_store: Stores, tmp_path: Path
) -> None:
    store = golden_store("trimmed-head").path
    segment = next((store / "commitlog").iterdir())
    for words in (["--version"], ["query", store, "--topic", "TopicA", "--key", "none"], ["inspect", segment]):
        done = run([installed.command, *words], trap.here, **installed.compiled)
        assert "Traceback" not in done.stderr, done.stderr
        assert (trap.marked(), opened.paths()) == ([], set()), words
    # What is not a command is a program of the user's, which lies elsewhere.
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run([installed.python, tmp_path / "program.py", "--version"], trap.here)
    assert done.stdout == f"rmq-reindex {rocketmq_reindex.__version__}\n", done.stderr
    assert (trap.marked(), opened.paths()) == ([], set())


def test_build_and_verify_from_a_hostile_folder(
    installed: Installed, trap: Trap, opened: Opened, golden_store: Stores, tmp_path: Path
) -> None:
    """A run of Spark, and so of the daemon of its workers, and one of the local engine's processes."""
    store, out = golden_store("trimmed-head"), tmp_path / "out"
    words: list[str | Path] = ["build", store.path, "--out", out, "--json", "--master", "local[2]", *store.size_words()]
    words += ["--broker-version", store.broker_version, "--checkpoint", "broker", "--queue-order", "broker"]
    done = run([installed.command, *words], trap.here, **installed.compiled)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["error"] is None
    assert_is_rebuilt(out, store)
    words = ["verify", out, "--commitlog", store.path / "commitlog", "--json", "--engine", "local", "--master", "local[2]"]
    done = run([installed.command, *words], trap.here, **installed.compiled)
    assert done.returncode == 0, done.stderr
    assert (trap.marked(), opened.paths()) == ([], set())


MODEL = """<project><modelVersion>4.0.0</modelVersion>
<groupId>{0}</groupId><artifactId>{1}</artifactId><version>{2}</version>
<dependencies>{3}</dependencies></project>
"""
WANTED = "<dependency><groupId>io.delta</groupId><artifactId>{1}</artifactId><version>{2}</version></dependency>"


def repository(folder: Path) -> Path:
    """A Maven repository with Delta Lake's jars, which asks for one more, as Delta's POM does, that it has not."""
    own, *others = [package.split(":") for package in jars.delta_packages()]
    kernel = ["io.delta", "delta-kernel-api", own[2]]
    for names, wanted in ((own, [*others, kernel]), *((names, []) for names in others)):
        group, artifact, version = names
        place = folder.joinpath(*group.split("."), artifact, version)
        place.mkdir(parents=True)
        name = f"{artifact}-{version}"
        (place / f"{name}.pom").write_text(MODEL.format(*names, "".join(WANTED.format(*one) for one in wanted)))
        shutil.copyfile(ROOT / "jars" / f"{name}.jar", place / f"{name}.jar")
    return folder


@pytest.mark.parametrize("reached", [True, False])
def test_tables_by_the_extra_delta(reached: bool, installed: Installed, golden_store: Stores, tmp_path: Path) -> None:
    """delta-spark is in the environment, Delta's jars are in no folder: Spark gets them from Maven."""
    store, tables = golden_store("trimmed-head"), tmp_path / "tables"
    maven = (repository(tmp_path / "maven") if reached else tmp_path / "none").as_uri()
    # A cache of its own: the user's has them, maybe.
    environment = {"DEFAULT_ARTIFACT_REPOSITORY": maven, "JDK_JAVA_OPTIONS": f"-Duser.home={tmp_path}"}
    words: list[str | Path] = ["build", store.path, "--out", tmp_path / "out", "--tables", tables, *store.size_words()]
    done = run([installed.command, *words, "--master", "local[2]"], tmp_path, **installed.compiled, **environment)
    own = jars.delta_packages()[0]
    if reached:
        assert done.returncode == 0, done.stderr
        assert list((tables / "builds" / "_delta_log").glob("*.json"))
        assert "io.delta" not in done.stderr
    else:
        (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 1
        assert error.startswith(f"error: --tables: {own} cannot be fetched from {maven}: name another repository, ")
        assert error.endswith("into SPARK_HOME/jars, or leave out --tables")


def test_without_spark(without_spark: Installed, golden_store: Stores, tmp_path: Path) -> None:
    assert not [path for name in ("pyspark", "py4j", "pandas") for path in without_spark.packages.glob(f"{name}*")]
    store, out = golden_store("basic-5.3"), tmp_path / "out"
    log, sizes = store.path / "commitlog", store.size_words()
    broker = ["--broker-version", store.broker_version, "--checkpoint", "broker", "--queue-order", "broker"]
    install_it = "Spark is not installed: pip install 'rocketmq-reindex[spark]'"

    def told(*words: str | Path) -> tuple[int, str, list[str]]:
        done = run([without_spark.command, *words], tmp_path, JAVA_HOME="", **without_spark.compiled)
        return done.returncode, done.stdout, [line for line in done.stderr.splitlines() if install_it in line]

    build: list[str | Path] = ["build", store.path, "--out", out, *sizes, *broker]
    asked = f"error: {install_it}, or take --engine local"
    assert told(*build, "--engine", "spark") == (1, "", [asked])
    assert told(*build, "--tables", tmp_path / "tables") == (1, "", [asked])
    status, _, lines = told(*build)
    assert (status, lines) == (0, [f"engine local: {install_it}"])
    assert_is_rebuilt(out, store)
    status, _, lines = told("verify", out, "--commitlog", log, *sizes, "--master", "local[2]")
    assert (status, lines) == (0, [f"engine local: {install_it}"])
    status, text, lines = told("query", out, "--commitlog", log, "--topic", "TopicA", "--queue", "0", "--offset", "0", "--json")
    assert (status, lines, json.loads(text)["topic"]) == (0, [], "TopicA")
    status, text, lines = told("info", out, "--json")
    assert (status, lines) == (0, []), text
    status, _, lines = told("export", out, "--commitlog", log, "--to", tmp_path / "messages.jsonl")
    assert (status, lines) == (0, [])
    assert len((tmp_path / "messages.jsonl").read_text().splitlines()) > 100


def test_no_code_of_ours_runs_a_module_by_name_in_the_users_folder() -> None:
    """``python -m`` imports from the working folder first. The three that do so work in the root folder."""
    folders = ("jobs", "udfs", "files", "storage_format", "conf", "notebooks", PACKAGE)
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    found = [path for path in paths if path.suffix in (".py", ".yml") and '"-m"' in path.read_text(encoding="utf-8")]
    ours = {path.relative_to(ROOT).as_posix() for path in found if not os.path.islink(path.parent)}
    assert ours == {"jobs/browsing/checks.py", "jobs/spark/daemon.py", "jobs/engines/pool.py"}
    assert all("cwd=FOLDER" in (ROOT / path).read_text(encoding="utf-8") for path in ours)
