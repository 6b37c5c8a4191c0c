"""spark-submit on a standalone cluster, from a hostile folder without a checkout: what ``make dist`` made is all there is."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rocketmq_reindex.udfs.worker.environment import PROGRAM, VARIABLE
from tests.cluster.test_carried import fits
from tests.golden.guard import guarded
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools.distributed import Place, place
from tests.tools.faulty_cluster import HOSTS, Cluster, cluster, quick, spark_home
from tests.tools.trap import Trap

Stores = Callable[[str], GoldenStore]
NAME = "v2-ipv6-batch"


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "spark") as found:
        yield found


@pytest.fixture(scope="module")
def submitter(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return place(tmp_path_factory.mktemp("user") / "place")


COMPILE = "NUMBA_ENABLE_AVX"
"""Who names a processor's features to numba gets loops that are compiled for them; 1 is what numba takes here anyway."""
ONE_EXECUTOR = {"spark.cores.max": "1"}
"""Each executor unpacks the environment: it takes most of the time."""


def one_core_a_worker(submitter: Place) -> dict[str, str]:
    """Settings of an application: its executors' Python and their user's home are as bare as the driver's."""
    bare = submitter.environment
    return {
        "spark.cores.max": str(len(HOSTS)),
        "spark.executor.cores": "1",
        # Else one of them may do all the work, and be done, before the other has begun.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
        "spark.executorEnv.PYTHONPATH": "",
        **quick("executor"),
        **{f"spark.executorEnv.{name}": bare[name] for name in ("PATH", "HOME", COMPILE) if name in bare},
    }


def test_the_python_is_bare(submitter: Place) -> None:
    for module in ("rocketmq_reindex", "jobs", "numpy", "pyarrow", "pyspark"):
        words = ["python3", "-c", f"import {module}"]
        done = subprocess.run(
            words, cwd=submitter.folder, env=submitter.environment, capture_output=True, text=True, check=False
        )
        assert f"No module named '{module}'" in done.stderr


@pytest.mark.parametrize("carried", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["carried", "compiled"])
def test_build_and_verify(
    carried: bool, submitter: Place, standalone: Cluster, golden_store: Stores, tmp_path: Path
) -> None:  # fmt: skip
    """``carried``: the zip has the record loops for these processors, and nothing is compiled. To compile them on two executors
    and the driver takes longer than all the rest: `make slow` has that.
    """
    store, out, home = golden_store(NAME), tmp_path / "place" / "out", tmp_path / "home"
    out.parent.mkdir()
    home.mkdir()
    (tmp_path / "work").mkdir()
    trap = Trap(tmp_path / "trap")
    submitter = Place(submitter.folder, {"HOME": str(home)} | ({} if carried else {COMPILE: "1"}), trap.here)
    settings = one_core_a_worker(submitter)
    earlier = set(standalone.folder.glob("work-*/app-*"))
    with guarded(store.path, out):
        words: list[str | Path] = [
            "build",
            store.path,
            "--out",
            out,
            "--broker-version",
            store.broker_version,
            "--queue-order",
            "broker",
            "--checkpoint",
            "broker",
            *store.size_words(),
        ]
        built = submitter.submit(standalone.url, settings, *words, "--range-size", str(1 << 18), "--json")
        assert built.status == 0, built.out[-3000:] + built.err[-3000:]
        summary = json.loads(built.out.splitlines()[-1])
        assert (summary["exit"], summary["error"], summary["records"]) == (0, None, 1885)
        assert_is_rebuilt(out, store)
        # The workers fetched what was submitted: nothing of the tree is on their path. The user whom they and the driver share
        # here has unpacked it once. An executor that got no task has fetched nothing: the other one was quicker.
        fetched = list[set[str]]()
        for host in HOSTS:
            (application,) = set((standalone.folder / f"work-{host}").glob("app-*")) - earlier
            executors = list(application.glob("*/"))
            assert executors
            fetched += [{path.name for path in executor.iterdir()} - {"stdout", "stderr"} for executor in executors]
            assert not any(list(executor.glob("environment*/")) for executor in executors)
        assert any(fetched)
        assert all({"rocketmq_reindex.zip", PROGRAM} <= names for names in fetched if names)
        (environment,) = (home / ".cache" / "rmq-reindex").glob("environment-*")
        assert (environment / "bin" / "python").is_file()

        words = ["verify", out, "--commitlog", store.path / "commitlog", "--work", tmp_path / "work", "--json"]
        submitter = replace(submitter, by_archives=True)
        verified = submitter.submit(standalone.url, settings | ONE_EXECUTOR, *words)
        assert verified.status == 0, verified.out[-3000:] + verified.err[-3000:]
        assert json.loads(verified.out.splitlines()[-1])["exit"] == 0
    later = set(standalone.folder.glob("work-*/app-*")) - earlier
    assert [path for application in later for path in application.glob("*/environment/bin/python")]
    # No process of the driver, of the executors or of their workers ran what lies where the user is.
    assert trap.marked() == []
    # Where the next application finds what this one compiled.
    (cache,) = (home / ".cache" / "numba").iterdir()
    assert cache.name.startswith("rmq-reindex-")
    assert (list(cache.glob("*.nbc")) == []) is (carried and fits is not None)


READ = """
import sys
import rocketmq_reindex as rr
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rr.sql.register(spark)
print("rows:", *(spark.read.format(kind).load(sys.argv[1]).count() for kind in ("rocketmq-commitlog", "rocketmq-consumequeue")))
"""


def test_data_sources_of_sql(submitter: Place, golden_store: Stores, tmp_path: Path) -> None:
    """They need no more of the packages than the archive has, nor loops that the zip lacks. Without spark-submit, which would
    unpack the archive once more.
    """
    python = str(submitter.folder / PROGRAM)
    paths = [submitter.folder / "rocketmq_reindex.zip", *(spark_home() / "python" / "lib").glob("*.zip")]
    more = {"SPARK_HOME": str(spark_home()), "PYTHONPATH": ":".join(map(str, paths)), "HOME": str(tmp_path)}
    more[VARIABLE] = str(submitter.folder / "cache")
    reader = Place(
        submitter.folder, more | {"PYSPARK_PYTHON": python, "PYSPARK_SUBMIT_ARGS": "--master local[1] pyspark-shell"}
    )
    words = [python, "-c", READ, str(golden_store(NAME).path)]
    done = subprocess.run(words, cwd=tmp_path, env=reader.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^rows: 1885 \d+$", done.stdout, re.MULTILINE), done.stdout
    assert (list((tmp_path / ".cache" / "numba").rglob("*.nbc")) == []) is (fits is not None)


@pytest.mark.slow
def test_executors_whose_python_lacks_packages(
    submitter: Place, standalone: Cluster, golden_store: Stores, tmp_path: Path
) -> None:  # fmt: skip
    """PYSPARK_PYTHON was forgotten: one line names the Python and what to do, and no host of which Spark does not tell."""
    store, out = golden_store(NAME), tmp_path / "out"
    forgetful = Place(submitter.folder, {"PYSPARK_PYTHON": "python3", "PYSPARK_DRIVER_PYTHON": f"./{PROGRAM}"})
    settings = one_core_a_worker(forgetful) | ONE_EXECUTOR | {"spark.task.maxFailures": "1"}
    built = forgetful.submit(standalone.url, settings, "build", store.path, "--out", out, *store.size_words())
    assert built.status == 1
    (error,) = [line for line in built.out.splitlines() if line.startswith("error: ")]
    assert error.startswith("error: PYSPARK_PYTHON, on an executor: python3 lacks ")
    assert "which is ./rmq_python with --files rmq_python,environment.tar.gz of dist/" in error
    assert not out.exists()


@pytest.mark.slow
def test_a_folder_for_packages_that_others_may_write_to(
    submitter: Place, standalone: Cluster, golden_store: Stores, tmp_path: Path
) -> None:  # fmt: skip
    """What lies there is not run, and the one line of the run says why."""
    store, out, shared = golden_store(NAME), tmp_path / "out", tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    settings = one_core_a_worker(submitter) | ONE_EXECUTOR | {"spark.task.maxFailures": "1"}
    settings[f"spark.executorEnv.{VARIABLE}"] = str(shared)
    built = submitter.submit(standalone.url, settings, "build", store.path, "--out", out, *store.size_words())
    assert built.status == 1
    (error,) = [line for line in built.out.splitlines() if line.startswith("error: ")]
    told = f"./{PROGRAM} ends before it does anything ({VARIABLE}: others may write to {shared}: "
    assert any(error.startswith(f"error: PYSPARK_PYTHON, on {host}: {told}") for host in HOSTS)
    assert not out.exists()


def test_a_driver_whose_python_lacks_packages(submitter: Place, tmp_path: Path) -> None:
    """Both variables were forgotten, for which Spark takes python3, or the zip was."""
    words: list[str | Path] = ["build", tmp_path, "--out", tmp_path / "out"]
    forgetful = Place(submitter.folder, {"PYSPARK_PYTHON": "python3", "PYSPARK_DRIVER_PYTHON": "python3"})
    told = forgetful.submit("local[1]", {}, *words)
    assert (told.status, told.out.count("Traceback")) == (1, 0)
    assert re.search(
        r"^error: \S+/python3 \(Python [0-9.]+ on \S+\) lacks \w+: .*PYSPARK_DRIVER_PYTHON", told.out, re.MULTILINE
    )
    alone = [str(submitter.folder / "python" / "bin" / "python3"), str(submitter.folder / "rmq_reindex.py"), *map(str, words)]
    done = subprocess.run(alone, env=submitter.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r"error: \S+ lacks rocketmq_reindex: give spark-submit --py-files rocketmq_reindex.zip.*\n", done.stderr
    )
