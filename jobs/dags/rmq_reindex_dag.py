"""Airflow 3, and 2.11: build a store's derived files aside, verify what was built, then publish it into the store.

Where "publish_to" holds what was built already, because nothing was new, nothing is verified and published. What an earlier run
did not come to publish is verified and published by the next.

A copy of this file in Airflow's DAG folder is all that Airflow needs: it imports neither pyspark nor this project. Airflow can
import from that folder, so the file must not have the package's name. What runs is ``rmq_reindex.py`` of `make dist`, by the
``spark-submit`` of the worker. ``rocketmq_reindex.json`` beside it may say where that lies ("site": see SITE) and name stores,
each of which becomes a DAG with a schedule and with parameters of its own:

    {"site": {"dist": "/opt/rocketmq-reindex", "connection": "spark_default"},
     "stores": {"orders": {"schedule": "@hourly", "store": "/snap/orders", "out": "/data/built", "publish_to": "/data/b"}}}

The log of "store" does not change meanwhile. No broker runs on "publish_to": it stands by, or is stopped.
One run at a time for each DAG, and so for each store: no DAG writes where another one's "out" or "publish_to" is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

try:
    from airflow.sdk import DAG, BaseOperator, Param
    from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
except ModuleNotFoundError as error:
    if error.name != "airflow.sdk":
        raise
    # Airflow 2.
    from airflow.exceptions import AirflowException, AirflowFailException, AirflowSkipException
    from airflow.models import DAG, BaseOperator, Param

SITE: dict[str, Any] = {
    # What `make dist` made, on every worker of Airflow.
    "dist": "/opt/rocketmq-reindex",
    # Airflow's connection of type Spark: the master.
    "connection": "spark_default",
    # Not that of Airflow's own environment, which has none: pyspark-client alone.
    "spark_submit": "spark-submit",
    # Python of the driver (in dist, if relative) and of the executors (in their working folders), and what these are sent from
    # dist. Where the wheel is installed on all hosts, name the Python that has it, and "" for the other two.
    "python": "rmq_python",
    "files": "rmq_python,environment.tar.gz",
    "py_files": "rocketmq_reindex.zip",
    # Delta's jars, a folder of dist, sent where tables are asked for; "" where Spark has Delta already.
    "jars": "jars",
    # Of Spark's own log: what is wrong, and not all that it does. A file of dist; "" where Spark's own settings are to count.
    "log4j2": "log4j2.properties",
    "conf": {},
    "retries": 2,
    "retry_delay": 300,
}
PARAMS = {
    "store": Param("", type="string", description="STORE, with commitlog/ in it: it is only read"),
    "out": Param("", type="string", description="DIR for the build, apart from STORE"),
    "publish_to": Param("", type="string", description="the broker's store that takes the build; empty: it stays in DIR"),
    "tables": Param("", type="string", description="URI of the Delta tables, for incremental builds; empty: full ones"),
    "on_damage": Param("fail", enum=["fail", "salvage"], description="salvage: build and publish what damage leaves"),
    "build_options": Param("", type="string", description="more of `build`, such as --broker-conf FILE or --snapshot"),
    "verify_options": Param("", type="string", description="more of `verify`, such as --broker-conf FILE or --sample 0.1"),
    "fetch_options": Param("", type="string", description="more of `fetch`, such as --partial after --only"),
}
PUBLISHED_WITH_LOSS = 3
FINAL = {2: "wrong usage", 4: "the build differs from its log", 5: "refused: damage, or queues out of order"}
"""exit statuses after which a retry would end the same. Not 1: a broker that runs may stop, a disk may be mounted"""

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

Params = Mapping[str, Any]


def more_words(params: Params, name: str) -> list[str]:
    """Return the words of a parameter, as a shell splits them."""
    try:
        return shlex.split(params[name])
    except ValueError as error:
        raise AirflowFailException(f"{name}: {error}") from error


def build_words(params: Params) -> list[str]:
    words = ["build", params["store"], "--out", params["out"], "--overwrite", "--on-damage", params["on_damage"], "--json"]
    words += ["--incremental", "--tables", params["tables"]] if params["tables"] else []
    return [*words, *more_words(params, "build_options")]


def below(place: str, name: str) -> str:
    head, mark, options = place.partition("?") if "://" in place else (place, "", "")
    return os.path.join(head, name) + mark + options


def work_of(out: str) -> str:
    """Return a folder for what a verify keeps for a while: executors share it, as they share DIR.

    A build behind a URI or in a volume has one in DIR. What is around DIR may be a whole bucket, or read-only.
    """
    return below(out, "work") if "://" in out or out.startswith("/Volumes/") else os.path.dirname(out.rstrip("/"))


def sampled(params: Params) -> bool:
    """Return whether a verify is of a sample, which is none that goes on from an earlier one."""
    return any(word.partition("=")[0] == "--sample" for word in more_words(params, "verify_options"))


def verify_words(params: Params) -> list[str]:
    words = ["verify", params["out"], "--commitlog", below(params["store"], "commitlog"), "--json"]
    words += ["--work", work_of(params["out"])]
    # The build has said where the log itself is damaged.
    words += ["--only", "consumequeue,index,checkpoint"] if params["on_damage"] == "salvage" else []
    words += ["--incremental", "--tables", params["tables"]] if params["tables"] and not sampled(params) else []
    return [*words, *more_words(params, "verify_options")]


def publish_words(params: Params) -> list[str]:
    if not params["publish_to"]:
        raise AirflowSkipException(f"publish_to is empty: the build stays in {params['out']}")
    return ["fetch", params["out"], "--to", params["publish_to"], "--json", *more_words(params, "fetch_options")]


def same_place(place: str) -> str:
    """Return one name for a folder, however it is written."""
    return place.partition("?")[0].rstrip("/") if "://" in place else os.path.normpath(place)


def owners(stores: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the store whose DAG alone writes a place: no other run may change what was built before it is published."""
    owner: dict[str, str] = {}
    for name, store in stores.items():
        for place in {same_place(store[key]) for key in ("out", "publish_to") if store.get(key)}:
            if owner.setdefault(place, name) != name:
                raise ValueError(f"{name}: {place} is written by the DAG of {owner[place]}: give each store folders of its own")
    return owner


def look_at(needed: list[Path]) -> None:
    """Raises AirflowException for a file that this worker lacks: spark-submit would end in a trace of Java's."""
    for path in needed:
        if not path.exists():
            raise AirflowException(f"{path}: is not there on {socket.gethostname()}: copy dist/ there (docs/how-to/airflow.md)")


class News(BaseOperator):
    """Skip what comes next where ``publish_to`` holds the build in ``out`` already, as an earlier run published it."""

    def __init__(self, *, python: Path, application: Path, py_files: Path | None, **more: Any) -> None:
        super().__init__(**more)
        self.python, self.application, self.py_files = python, application, py_files

    def words(self, params: Params) -> list[str]:
        return [*publish_words(params), "--dry-run"] if params["publish_to"] else []

    def execute(self, context: Any) -> None:
        """Ask a dry run of fetch, which needs no Spark. What it cannot say is left to the tasks that come next."""
        words = self.words(context["params"])
        if not words:
            return
        look_at([self.python, self.application])
        environment = dict(os.environ)
        if self.py_files:
            environment["PYTHONPATH"] = str(self.py_files)
        done = subprocess.run(
            [str(self.python), str(self.application), *words], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        # Not its words: a URI there may hold a key. The summary does not show it.
        self.log.info("%s", done.stdout + done.stderr)
        try:
            held = bool(json.loads(done.stdout.splitlines()[-1])["already_there"])
        except (ValueError, KeyError, TypeError, IndexError):
            return
        if done.returncode == 0 and held:
            raise AirflowSkipException(f"{context['params']['publish_to']} holds this build already: nothing is published")


class RmqReindex(SparkSubmitOperator):
    """spark-submit of one command. Its exit status decides whether a retry makes sense."""

    conf: dict[str, Any] | None

    def __init__(self, *, words: Callable[[Params], list[str]], delta: Path | None, needed: list[Path], **more: Any) -> None:
        super().__init__(**more)
        self.words = words
        self.delta = delta
        self.needed = needed

    def execute(self, context: Any) -> None:
        params = context["params"]
        for place in (params["out"], params["publish_to"]):
            dag = f"{ANY}_{OWNERS[same_place(place)]}" if place and same_place(place) in OWNERS else self.dag_id
            if dag != self.dag_id:
                raise AirflowFailException(f"{place}: is written by {dag}, one run at a time: trigger that one")
        self.application_args = self.words(params)
        look_at(self.needed)
        # Where there is no such connection the provider would take YARN.
        SparkSubmitHook.get_connection(self._conn_id)
        if self.application_args[0] == "build" and "--tables" in self.application_args:
            # The same for each try of the task: what a try before recorded is replaced.
            run = re.sub(r"[^A-Za-z0-9_.:+@/=-]", "_", f"{self.dag_id}/{context['run_id']}")
            if not any(word.startswith("--build-id") for word in self.application_args):
                self.application_args += ["--build-id", run[:200]]
            if self.delta is not None:
                self.jars = ",".join(sorted(map(str, self.delta.glob("*.jar"))))
                self.conf = {**(self.conf or {}), **DELTA}
        try:
            super().execute(context)
        except AirflowException as error:
            # The hook gives the exit status nowhere else. In cluster deploy mode it is not the command's: then all is retried.
            match = re.search(r"Error code is: (\d+)", str(error))
            status = int(match[1]) if match else 1
            if status == PUBLISHED_WITH_LOSS and self.application_args[0] == "build":
                self.log.warning("built, but damaged parts of the log are missing: see the summary above")
            elif status in FINAL:
                raise AirflowFailException(f"{FINAL[status]} (exit {status}): see the log of this task") from error
            else:
                raise


def reindex_dag(name: str, site: Mapping[str, Any], schedule: str | None = None, **defaults: Any) -> DAG:
    """Return a DAG whose parameters have these defaults."""
    for what, unknown in (('setting of "site"', site.keys() - SITE.keys()), ("parameter", defaults.keys() - PARAMS.keys())):
        if unknown:
            raise ValueError(f"{name}: no such {what}: {', '.join(sorted(unknown))}")
    dist = Path(site["dist"])
    python, application = dist / site["python"], dist / "rmq_reindex.py"
    py_files = dist / site["py_files"] if site["py_files"] else None
    files = [dist / name for name in site["files"].split(",") if name]
    properties, log4j2 = dist / "spark-defaults.conf", dist / site["log4j2"] if site["log4j2"] else None
    conf, java = dict(site["conf"]), "spark.driver.extraJavaOptions"
    if log4j2 is not None and "log4j2.configurationFile" not in conf.get(java, ""):
        conf[java] = f"-Dlog4j2.configurationFile={log4j2.as_uri()} {conf.get(java, '')}".strip()
    spark = {
        "conn_id": site["connection"],
        "spark_binary": site["spark_submit"],
        "application": str(application),
        "py_files": py_files and str(py_files),
        "files": ",".join(map(str, files)) or None,
        "properties_file": str(properties),
        "conf": conf,
        "env_vars": {"PYSPARK_PYTHON": os.path.join(".", site["python"]), "PYSPARK_DRIVER_PYTHON": str(python)},
        "needed": [path for path in (application, properties, log4j2, py_files, *files, python) if path is not None],
        "name": name,
        "delta": dist / site["jars"] if site["jars"] else None,
    }
    params = {key: Param(defaults.get(key, param.value), param.description, **param.schema) for key, param in PARAMS.items()}
    dag = DAG(
        name,
        description="Rebuild ConsumeQueue, IndexFiles and checkpoint, verify them, publish them",
        schedule=schedule,
        start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
        catchup=False,
        max_active_runs=1,
        params=params,
        default_args={"retries": site["retries"], "retry_delay": timedelta(seconds=site["retry_delay"])},
        tags=["rocketmq"],
    )
    with dag:
        build = RmqReindex(task_id="build", words=build_words, **spark)
        news = News(task_id="news", python=python, application=application, py_files=py_files)
        verify = RmqReindex(task_id="verify", words=verify_words, **spark)
        publish = RmqReindex(task_id="publish", words=publish_words, **spark)
        build >> news >> verify >> publish
    return dag


_beside = Path(__file__).with_name("rocketmq_reindex.json")
_given = json.loads(_beside.read_text(encoding="utf-8")) if _beside.exists() else {}
_site = SITE | _given.get("site", {})
ANY = "rocketmq_reindex"
"""the DAG for any store that has none of its own"""
OWNERS = owners(_given.get("stores", {}))
reindex_dag(ANY, _site)
for _name, _store in _given.get("stores", {}).items():
    reindex_dag(f"{ANY}_{_name}", _site, **_store)
