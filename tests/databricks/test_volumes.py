"""The bundle's tasks by their entry point, where schemas are read-only and volumes are not: as on a cluster of Databricks."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rocketmq_reindex
from rocketmq_reindex.jobs.spark.jars import delta_jars
from scripts.bundle_wheel import BROUGHT, LABEL, bundle_wheel
from tests.databricks.runtime import Runtime, Told, runtime
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools import spoil
from tests.tools.bundle import wheel_tasks
from tests.tools.faulty_cluster import quick
from tests.tools.installed import uv
from tests.tools.jvm import SMALL_TABLES

Stores = Callable[[str], GoldenStore]
NAME = "v2-ipv6-batch"
SCHEMA = "/Volumes/main/rocketmq"
DEPLOYED = {"store": f"{SCHEMA}/orders", "out": f"{SCHEMA}/built"}
"""The example of docs/how-to/databricks.md."""
VOLUME = "/Volumes/CATALOG/SCHEMA/VOLUME"
VOLUMES = ("orders", "built", "others", "tables")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    folder = tmp_path_factory.mktemp("runtime")
    uv("build", "-q", "--no-create-gitignore", "--wheel", "-o", folder)
    (wheel,) = folder.glob("*.whl")
    (folder / "bundle").mkdir()
    return runtime(bundle_wheel(wheel, folder / "bundle"), folder)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, golden_store: Stores) -> Path:
    """A store in a volume of its own, empty volumes beside it, and a standby's store that is mounted on the driver."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in VOLUMES:
        (folder / "volumes/main/rocketmq" / name).mkdir(parents=True)
    spoil.copy_store(golden_store(NAME).path, folder / "volumes/main/rocketmq/orders")
    spoil.copy_store(golden_store(NAME).path, folder / "standby")
    (folder / "volumes/main/rocketmq/others/deep").mkdir()
    return folder


@pytest.fixture(scope="module")
def told(cluster: Runtime, world: Path, golden_store: Stores) -> dict[str, Told]:
    """What each run said. They follow each other in one session: a cluster's start takes most of the time."""
    store = golden_store(NAME)
    sizes = " ".join(store.size_words())
    options = f"--broker-version {store.broker_version} --queue-order broker --checkpoint broker {sizes}"
    tables = f"--incremental --tables {SCHEMA}/tables"
    runs = {
        "example": wheel_tasks(DEPLOYED, build_options=options, publish_to=str(world / "standby")),
        "folder": wheel_tasks(DEPLOYED, build_options=f"{options} {tables}", out=f"{SCHEMA}/others/deep/built"),
        "no volume": wheel_tasks(DEPLOYED, build_options=options, out=f"{SCHEMA}/nowhere/built"),
        "schema": wheel_tasks(DEPLOYED, build_options=options, out="/Volumes/main/others/"),
        "no tables": wheel_tasks(DEPLOYED, build_options=f"{options} --tables {SCHEMA}/nowhere"),
    }
    del runs["folder"]["publish"]
    delta = {
        # On the class path, as on a cluster of Databricks.
        "spark.driver.extraClassPath": ":".join(delta_jars()),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.ui.enabled": "false",
    }
    delta |= quick("driver") | SMALL_TABLES
    return dict(zip(runs, cluster.run(world, list(runs.values()), delta), strict=True))


def test_the_example_builds_verifies_and_publishes(told: dict[str, Told], world: Path, golden_store: Stores) -> None:
    run = told["example"]
    assert {task: said[0] for task, said in run.items()} == {"build": None, "verify": None, "publish": None}, run
    assert_is_rebuilt(world / "standby", golden_store(NAME))
    assert json.loads(run["verify"][1])["findings"] == []


def test_nothing_is_left_beside_the_build(told: dict[str, Told], world: Path) -> None:
    assert told
    volumes = world / "volumes/main/rocketmq"
    assert sorted(path.name for path in volumes.iterdir()) == sorted(VOLUMES)
    assert sorted(path.name for path in (volumes / "built").iterdir()) == ["builds", "published", "work"]
    assert list((volumes / "built/work").iterdir()) == []


def test_a_folder_in_a_volume_with_tables(told: dict[str, Told], world: Path) -> None:
    run = told["folder"]
    assert {task: said[0] for task, said in run.items()} == {"build": None, "verify": None}, run
    assert list((world / "volumes/main/rocketmq/tables").rglob("_delta_log"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no volume", f"error: {SCHEMA}/nowhere: is no volume that this user sees: make it first, or name another\n"),
        (
            "schema",
            f"error: /Volumes/main/others: is no folder of a volume: name {VOLUME} or a folder in it\n",
        ),
        ("no tables", f"error: {SCHEMA}/nowhere: is no volume that this user sees: make it first, or name another\n"),
    ],
)
def test_where_no_folder_can_be_made_one_line_says_so(name: str, says: str, told: dict[str, Told]) -> None:
    ((task, (status, _, err)),) = told[name].items()
    assert (task, status, err) == ("build", 1, says)


def test_pip_installs_no_spark(cluster: Runtime) -> None:
    """All that the wheel asks for is there, and no Spark is among it."""
    (found,) = metadata.distributions(name="rocketmq-reindex", path=[str(cluster.installed.packages)])
    assert found.version == f"{rocketmq_reindex.__version__}{LABEL}"
    wanted = [required for text in found.requires or [] if not (required := Requirement(text)).marker]
    assert {"numpy", "pyarrow", "pandas", "numba", "rich"} <= {required.name for required in wanted}
    for required in wanted:
        (there,) = metadata.distributions(name=required.name, path=[str(cluster.installed.packages)])
        assert there.version in required.specifier, required
    asked = [str(cluster.installed.python), "-c", "import pyspark; print(pyspark.__file__)"]
    done = subprocess.run(asked, env=cluster.environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(cluster.spark))
    assert not {found.name for found in metadata.distributions(path=[str(cluster.installed.packages)])} & set(BROUGHT)
