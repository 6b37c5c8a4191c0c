"""The entry point of a wheel task: empty parameters are left out, and only a run that did its work returns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_reindex.jobs import task
from tests.golden.stores import GoldenStore
from tests.tools.bundle import wheel_tasks

pytestmark = pytest.mark.usefixtures("inline_local")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["build", "/s", "--out=/o", "--json"], ["build", "/s", "--out=/o", "--json"]),
        (["fetch", "/o", "--to="], ["fetch", "/o"]),
        (["build", "options="], ["build"]),
        (["build", "options=--lmq --delay-levels '1s 5s'"], ["build", "--lmq", "--delay-levels", "1s 5s"]),
        # A value that ends so is given as a word of its own.
        (["query", "--topic", "a=", "--key=b="], ["query", "--topic", "a="]),
    ],
)
def test_words(given: list[str], expected: list[str]) -> None:
    assert task.words(given) == expected


def test_what_is_not_done_does_not_return(
    golden_store: Callable[[str], GoldenStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    golden = golden_store("trimmed-head")
    store = str(golden.path)
    sizes = [f"--{name.replace('_', '-')}={size}" for name, size in golden.sizes().items()]
    plan = ["build", store, f"--out={tmp_path / 'out'}", "--dry-run", *sizes]
    for given, status in ((plan, None), ([*plan, "options=--no-such"], 2), (["build", store, "--out="], 2), (["no-such"], 2)):
        monkeypatch.setattr(sys, "argv", ["task", *given])
        if status is None:
            task.task()
        else:
            with pytest.raises(SystemExit) as ended:
                task.task()
            assert ended.value.code == status


def test_options_that_cannot_be_split_are_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["task", "build", "/store", "options=--include-topic 'a\nb"])
    with pytest.raises(SystemExit) as ended:
        task.task()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        "error: options: --include-topic 'a\\nb: no closing quotation: quote words as a shell does\n"
    )


def run_bundle(task_key: str, out: Path, store: Path, sizes: str, verify_options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a task of the Databricks bundle, on the local engine."""
    parameters = {"store": str(store), "out": str(out), "build_options": f"--engine local {sizes}"}
    given = wheel_tasks({}, **parameters, verify_options=verify_options)[task_key]
    monkeypatch.setattr(sys, "argv", ["task", *given])
    task.task()


def test_the_bundle_builds_nothing_that_it_cannot_verify(
    golden_store: Callable[[str], GoldenStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """DIR outside of volumes: verify's ``--work`` is no folder there. One that is there, in verify_options, is taken."""
    golden = golden_store("trimmed-head")
    sizes = " ".join(f"--{name.replace('_', '-')}={size}" for name, size in golden.sizes().items())
    out, work = tmp_path / "out", tmp_path / "work"
    for options in ("", "--sample 0.5", f"--work {work}", f"--work={work}"):
        with pytest.raises(SystemExit) as ended:
            run_bundle("build", out, golden.path, sizes, options, monkeypatch)
        assert ended.value.code == 2
        (error,) = capsys.readouterr().err.splitlines()
        named = work if "--work" in options else out / "work"
        assert error.startswith(f"error: --work {named}: ")
        assert error.endswith("nothing was built")
        assert not out.exists()
    work.mkdir()
    for task_key in ("build", "verify"):
        run_bundle(task_key, out, golden.path, sizes, f"--work {work} --engine local", monkeypatch)


@pytest.mark.parametrize("place", ["/Volumes/c/s/v/out/work", "/dbfs/out/work", "s3://bucket/out/work"])
def test_places_where_verify_makes_its_folder(place: str) -> None:
    task.check_verify([f"--work={place}", "options="])


@pytest.mark.parametrize("name", ["rmq_reindex_dag", "rmq_reindex_databricks_dag"])
def test_the_dags_without_airflow(name: str, tmp_path: Path) -> None:
    """Python says in a line that there is none."""
    script = Path(task.__file__).parent / "dags" / f"{name}.py"
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("No module named 'airflow'")
