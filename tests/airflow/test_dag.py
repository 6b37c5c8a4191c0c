"""The DAG in a real Airflow: it loads clean, and dag.test() runs it through a real spark-submit."""

from __future__ import annotations

import json
import platform
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketmq_reindex.jobs.spark.session import configuration
from tests.airflow.airflow_home import AirflowHome, airflow_home, site
from tests.airflow.workspace import JOB_ID, NAME as NAME_OF_JOB, workspace
from tests.golden.stores import GoldenStore
from tests.golden.test_build import assert_is_rebuilt
from tests.tools import spoil
from tests.tools.bundle import BUNDLE, JOB, deployed
from tests.tools.distributed import DIST
from tests.tools.jvm import SMALL_TABLES
from tests.tools.local_engine import local_build

Stores = Callable[[str], GoldenStore]
NAME = "v2-ipv6-batch"
TASKS = ("build", "news", "verify", "publish")
SUBMIT = """#!/bin/sh
# A command that asks for no Spark goes to Python itself: spark-submit would start a JVM that does nothing.
case " $* " in
    *" --engine local "* | *"/rmq_reindex.py fetch "*) ;;
    *) exec '{submit}' "$@" ;;
esac
while [ "${{1##*/}}" != rmq_reindex.py ]; do shift; done
exec '{python}' "$@"
"""
STORES = {"orders": {"schedule": "@hourly", "store": "/data/orders", "out": "/data/built", "publish_to": "/data/orders"}}


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    conf = configuration("local[2]") | SMALL_TABLES
    # The DAG's own: what it sends of log4j2 is what is seen here.
    java = "spark.driver.extraJavaOptions"
    conf[java] = re.sub(r"-Dlog4j2\S+", "", conf[java])
    # A JVM that starts as those of the command line do.
    folder = tmp_path_factory.mktemp("airflow")
    submit = folder / "spark-submit"
    submit.write_text(SUBMIT.format(submit=site()["spark_submit"], python=sys.executable))
    submit.chmod(0o755)
    given = {"site": site() | {"conf": conf, "spark_submit": str(submit)}, "stores": STORES}
    return airflow_home(folder / "home", given)


@pytest.fixture(scope="module")
def migrated(airflow: AirflowHome) -> AirflowHome:
    """With its database."""
    airflow.migrate()
    return airflow


PLACES = {
    "store": "s3://logs/a b?region=x", "out": "s3://logs/out/?region=x", "publish_to": "/data/$(id)", "tables": "",
    "on_damage": "salvage", "build_options": "--delay-levels '1s 5s'", "verify_options": "", "fetch_options": "--partial",
}  # fmt: skip


@pytest.fixture(scope="module")
def lacking(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files that are not there."""
    folder = tmp_path_factory.mktemp("lacking")
    return [folder / "rmq_reindex.py", folder / "rmq_python"]


@pytest.fixture(scope="module")
def told(airflow: AirflowHome, lacking: list[Path]) -> dict[str, Any]:
    """What it says without a database, of one process."""
    questions = [
        ["load"],
        ["words", "rocketmq_reindex", PLACES],
        ["needed", "rocketmq_reindex", [str(path) for path in lacking]],
    ]
    return dict(zip(("load", "words", "needed"), airflow.ask("all", json.dumps(questions)), strict=True))


def test_the_dags_load_clean(told: dict[str, Any]) -> None:
    """Without a word of pyspark or of this project."""
    found = told["load"]
    assert (found["errors"], found["modules"]) == ({}, [])
    assert set(found["dags"]) == {"rocketmq_reindex", "rocketmq_reindex_orders", "rocketmq_reindex_databricks"}
    assert found["dags"]["rocketmq_reindex_databricks"]["max_active_runs"] == 1
    for name in ("rocketmq_reindex", "rocketmq_reindex_orders"):
        dag = found["dags"][name]
        assert dag["tasks"] == {"build": ["news"], "news": ["verify"], "verify": ["publish"], "publish": []}
        assert (dag["max_active_runs"], dag["retries"]) == (1, [1, 1, 1, 1])
    orders = found["dags"]["rocketmq_reindex_orders"]
    assert orders["schedule"] == "@hourly"
    assert {name: orders["params"][name] for name in ("store", "out", "publish_to")} == {
        name: value for name, value in STORES["orders"].items() if name != "schedule"
    }


def test_places_may_be_uris_with_options(told: dict[str, Any]) -> None:
    """And none of them is a word for a shell."""
    assert told["words"] == {
        "build": ["build", PLACES["store"], "--out", PLACES["out"], "--overwrite", "--on-damage", "salvage", "--json",
                  "--delay-levels", "1s 5s"],
        "verify": ["verify", PLACES["out"], "--commitlog", "s3://logs/a b/commitlog?region=x", "--json",
                   "--work", "s3://logs/out/work?region=x", "--only", "consumequeue,index,checkpoint"],
        "news": ["fetch", PLACES["out"], "--to", "/data/$(id)", "--json", "--partial", "--dry-run"],
        "publish": ["fetch", PLACES["out"], "--to", "/data/$(id)", "--json", "--partial"],
    }  # fmt: skip


def test_the_databricks_variant_starts_the_bundles_job(migrated: AirflowHome) -> None:
    """Through the provider's own client; the workspace is a few lines on loopback."""
    hostile = "--tables=/t' --out=/x"
    known = "--incremental '--tables=/Volumes/t t' "
    conf = {"store": "/Volumes/s", "out": "/Volumes/o", "tables": "/Volumes/t t", "build_options": "--lmq"}
    expected = {"store": "/Volumes/s", "out": "/Volumes/o", "publish_to": "", "fetch_options": ""}
    with workspace() as there:
        connection = {"conn_type": "databricks", "host": "127.0.0.1", "schema": "http", "port": there.port, "password": "token"}
        more = {"AIRFLOW_CONN_DATABRICKS_DEFAULT": json.dumps(connection)}
        runs = [
            {"conf": conf},
            {"conf": conf | {"tables": "", "verify_options": "--sample 0.1"}},
            {"conf": conf | {"tables": hostile.removeprefix("--tables=")}},
            {"conf": conf | {"verify_options": "--sample 0.1"}},
        ]
        told = migrated.ask("run", "rocketmq_reindex_databricks", json.dumps(runs), more=more)
        assert [run["state"] for run in told] == ["success"] * 4
        started = [given for _, path, given in there.asked if path.endswith("/run-now")]
    assert [given["job_id"] for given in started] == [JOB_ID] * 4
    assert [given["job_parameters"] for given in started] == [
        expected | {"build_options": f"{known}--lmq", "verify_options": known},
        expected | {"build_options": "--lmq", "verify_options": "--sample 0.1"},
        expected
        | {
            "build_options": f"--incremental {shlex.quote(hostile)} --lmq",
            "verify_options": f"--incremental {shlex.quote(hostile)} ",
        },
        expected | {"build_options": f"{known}--lmq", "verify_options": "--sample 0.1"},
    ]
    assert shlex.split(started[2]["job_parameters"]["build_options"]) == ["--incremental", hostile, "--lmq"]
    assert set(started[0]["job_parameters"]) == {parameter["name"] for parameter in JOB["parameters"]}
    assert JOB["name"] == NAME_OF_JOB


def test_databricks_own_classes_take_the_job(airflow: AirflowHome) -> None:
    """Each field by its name and type: `databricks-bundles` refuses any other. A target's fields are given to its jobs."""
    prod = BUNDLE["targets"]["prod"]
    variables = {"run_as": "principal", "managers": "operators", "notify_emails": ["a@b"], "notify_webhooks": [{"id": "71"}]}
    job = JOB | {name: prod[name] for name in ("run_as", "permissions")}
    deployments = [JOB, job, deployed(job, variables)]
    assert airflow.says(Path(__file__).with_name("in_bundles.py"), json.dumps(deployments)) == deployments


def test_runs(migrated: AirflowHome, golden_store: Stores, tmp_path: Path) -> None:
    """A run to its end; a spoilt build is not published; what a retry cannot mend is not tried again, the rest is.

    The first build is Spark's. Of all others the exit status counts, which is that of any engine: theirs is the quick one. Of
    these the refused one has a real spark-submit, too, for its exit status. `make slow` has one for each, with Airflow 2.
    """
    store = golden_store(NAME)
    options = f"--broker-version {store.broker_version} --queue-order broker --checkpoint broker {' '.join(store.size_words())}"
    out, spoilt, to = (tmp_path / name for name in ("out", "spoilt", "to"))
    damaged = spoil.copy_store(store.path, tmp_path / "damaged")
    spoil.flip_body(damaged, 700)
    assert local_build(store.path, spoilt, **store.broker_settings()).exit == 0
    unit = min(path for path in (spoilt / "consumequeue").rglob("*") if path.is_file())
    unit.write_bytes(bytes([unit.read_bytes()[0] ^ 1]) + unit.read_bytes()[1:])
    spoil.copy_store(store.path, to)
    # Where the first run has published the same there would be no news.
    apart = spoil.copy_store(store.path, tmp_path / "apart")

    def conf(**more: object) -> dict[str, Any]:
        common = {
            "store": str(store.path),
            "out": str(out),
            "build_options": f"{options} --engine local",
            "verify_options": "--engine local",
            "publish_to": str(to),
        }
        return common | {name: str(value) for name, value in more.items()}

    runs = {
        "whole": {"conf": conf(build_options=options)},
        "spoilt": {"conf": conf(out=spoilt, publish_to=apart), "done": "^build$"},
        "salvaged": {"conf": conf(store=damaged, out=tmp_path / "salvaged", publish_to="", on_damage="salvage")},
        "unquoted": {"conf": conf(build_options="--include-topic 'a")},
        "refused": {"conf": conf(store=damaged, out=tmp_path / "refused", build_options=f"{options} --engine=local")},
        "another's": {"conf": conf(out="/data//built/")},
        "absent": {"conf": conf(store=tmp_path / "nowhere", out=tmp_path / "absent")},
    }
    told = dict(zip(runs, migrated.ask("run", "rocketmq_reindex", json.dumps(list(runs.values()))), strict=True))
    ended = {name: [run["state"], *(run["tasks"][task] for task in TASKS)] for name, run in told.items()}
    never = ["upstream_failed", 0]
    done = ["success", 1]
    assert ended == {
        "whole": ["success", done, done, done, done],
        "spoilt": ["failed", done, done, ["failed", 1], never],
        "salvaged": ["success", done, done, done, ["skipped", 1]],
        "unquoted": ["failed", ["failed", 1], never, never, never],
        "refused": ["failed", ["failed", 1], never, never, never],
        "another's": ["failed", ["failed", 1], never, never, never],
        "absent": ["failed", ["failed", 2], never, never, never],
    }
    assert_is_rebuilt(out, store)
    log = (migrated.folder / "log").read_text(errors="replace")
    assert "build_options: No closing quotation" in log
    assert "built, but damaged parts of the log are missing" in log
    assert "the build differs from its log (exit 4)" in log
    assert "refused: damage, or queues out of order (exit 5)" in log
    assert "is written by rocketmq_reindex_orders, one run at a time: trigger that one" in log
    assert_is_rebuilt(to, store)
    assert not (apart / "consumequeue").exists()
    # Of Spark's own words only what is wrong.
    assert re.findall(r" INFO (?:SparkContext|SparkEnv|BlockManager|DAGScheduler)\b", log) == []


@pytest.mark.slow
def test_a_run_with_tables(migrated: AirflowHome, golden_store: Stores, tmp_path: Path) -> None:
    """As any other run, and its rows are there. `make test-rest` has the words of such a run, and all that is in tables."""
    store, out, tables = golden_store(NAME), tmp_path / "out", tmp_path / "tables"
    options = f"--broker-version {store.broker_version} --queue-order broker --checkpoint broker {' '.join(store.size_words())}"
    conf = {"store": str(store.path), "out": str(out), "tables": str(tables), "build_options": options, "publish_to": ""}
    (told,) = migrated.ask("run", "rocketmq_reindex", json.dumps([{"conf": conf | {"verify_options": "--engine local"}}]))
    assert (told["state"], told["tasks"]["build"]) == ("success", ["success", 1])
    assert_is_rebuilt(out, store)
    assert {path.name for path in tables.iterdir()} >= {"builds", "segments", "files"}


def test_publishes_what_is_not_published(migrated: AirflowHome, golden_store: Stores, tmp_path: Path) -> None:
    """Also what an earlier run did not come to publish. The run after it verifies and publishes nothing, and leaves no copy."""
    store, out, to = golden_store(NAME), tmp_path / "out", tmp_path / "to"
    assert local_build(store.path, out, **store.broker_settings()).exit == 0
    spoil.copy_store(store.path, to)
    (to / "consumequeue").mkdir(exist_ok=True)
    conf = {"store": str(store.path), "out": str(out), "publish_to": str(to)}
    runs = [{"conf": conf, "done": "^(build|verify)$"}, {"conf": conf, "done": "^build$"}]
    done, passed = ["success", 1], ["skipped", 0]
    first, second = migrated.ask("run", "rocketmq_reindex", json.dumps(runs))
    assert first == {"state": "success", "tasks": dict.fromkeys(TASKS, done)}
    assert_is_rebuilt(to, store)
    assert second["state"] == "success"
    assert second["tasks"] == {"build": done, "news": ["skipped", 1], "verify": passed, "publish": passed}
    assert [path.name for path in to.iterdir() if path.name.startswith("consumequeue.")] == ["consumequeue.previous"]
    log = (migrated.folder / "log").read_text(errors="replace")
    assert f"{to} holds this build already: nothing is published" in log


def test_the_jars_of_delta_are_sent_where_tables_are_asked_for(tmp_path: Path) -> None:
    """All of the folder, and nothing else of it; without tables, or where Spark has Delta already, none."""
    dist, told = tmp_path / "dist", tmp_path / "told"
    (dist / "jars").mkdir(parents=True)
    sent_always = ("rmq_python", "environment.tar.gz")
    for name in ("rmq_reindex.py", "spark-defaults.conf", "log4j2.properties", "jars/b.jar", "jars/a.jar", "jars/jars.txt"):
        (dist / name).write_text("")
    for name in sent_always:
        (dist / name).write_text("")
    said = '"$@" "$PYSPARK_PYTHON" "$PYSPARK_DRIVER_PYTHON"'
    (dist / "spark-submit").write_text(f'#!/bin/sh\n(printf "%s\\n" {said}; echo) >> {told}\n')
    (dist / "spark-submit").chmod(0o755)
    bare = {
        "dist": str(dist),
        "spark_submit": str(dist / "spark-submit"),
        "py_files": "",
    }
    homes = {
        jars: airflow_home(tmp_path / f"home-{bool(jars)}", {"site": {**bare, "jars": jars}, "stores": STORES})
        for jars in ("jars", "")
    }
    given = {"store": "/s", "out": "/o", "publish_to": "", "on_damage": "fail", "build_options": "", "verify_options": "",
             "fetch_options": ""}  # fmt: skip
    asked = (("jars", "/t"), ("jars", ""), ("", "/t"))
    for jars, home in homes.items():
        submits = [["submit", "rocketmq_reindex", {**given, "tables": tables}] for name, tables in asked if name == jars]
        home.ask("all", json.dumps(submits))
    sent = {}
    for (jars, tables), said in zip(asked, told.read_text().removesuffix("\n\n").split("\n\n"), strict=True):
        words = said.splitlines()
        extended = "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension" in words
        sent[jars, tables] = (words[words.index("--jars") + 1] if "--jars" in words else "", extended)
        assert ("--build-id" in words) == bool(tables)
        assert words[words.index("--files") + 1] == ",".join(str(dist / name) for name in sent_always)
        assert words[-2:] == ["./rmq_python", str(dist / "rmq_python")]
    assert sent == {
        ("jars", "/t"): (f"{dist}/jars/a.jar,{dist}/jars/b.jar", True),
        ("jars", ""): ("", False),
        ("", "/t"): ("", False),
    }


def test_what_a_worker_lacks(told: dict[str, Any], lacking: list[Path]) -> None:
    """One line names the file, the host and what to do, where spark-submit would end in a trace of Java's."""
    needed = [DIST / "rmq_reindex.py", DIST / "spark-defaults.conf", DIST / "log4j2.properties", Path(sys.executable)]
    assert told["needed"]["needed"] == [str(path) for path in needed]
    for path, said in zip(lacking, told["needed"]["said"], strict=True):
        assert said.startswith(f"{path}: is not there on {platform.node()}: copy dist/ there")


def test_a_setting_or_parameter_that_there_is_not(tmp_path: Path) -> None:
    """A setting of an earlier DAG, and one that is misspelt, are refused where Airflow shows the errors of DAG files."""
    given = [({"archives": "environment.tar.gz#environment"}, {}), ({}, {"ouT": "/out"})]
    said = []
    for number, (more, store) in enumerate(given):
        home = airflow_home(tmp_path / str(number), {"site": site() | more, "stores": {"orders": STORES["orders"] | store}})
        (error,) = home.ask("load")["errors"].values()
        said.append(error.strip().splitlines()[-1])
    assert said == [
        'ValueError: rocketmq_reindex: no such setting of "site": archives',
        "ValueError: rocketmq_reindex_orders: no such parameter: ouT",
    ]
