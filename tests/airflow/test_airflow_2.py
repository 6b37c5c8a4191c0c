"""The DAGs in a real Airflow 2.11, the last one with that API: `make slow` alone makes its environment."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.airflow.airflow_home import AirflowHome, airflow_home, site
from tests.airflow.test_dag import NAME, STORES, TASKS, Stores
from tests.golden.test_build import assert_is_rebuilt
from tests.tools import spoil

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info >= (3, 13), reason="Airflow 2.11 runs on Python up to 3.12"),
]


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> AirflowHome:
    home = airflow_home(tmp_path_factory.mktemp("airflow-2") / "home", {"site": site(), "stores": STORES}, ".venv-airflow-2")
    home.migrate()
    return home


def test_the_dags_load_clean(airflow: AirflowHome) -> None:
    found = airflow.ask("load")
    assert (found["errors"], found["modules"]) == ({}, [])
    assert set(found["dags"]) == {"rocketmq_reindex", "rocketmq_reindex_orders", "rocketmq_reindex_databricks"}
    for name in ("rocketmq_reindex", "rocketmq_reindex_orders"):
        assert found["dags"][name]["tasks"] == {"build": ["news"], "news": ["verify"], "verify": ["publish"], "publish": []}
    assert found["dags"]["rocketmq_reindex_orders"]["schedule"] == "@hourly"


def test_runs(airflow: AirflowHome, golden_store: Stores, tmp_path: Path) -> None:
    """Through a real spark-submit: a run that publishes, one without news, and one that no retry would mend."""
    store, out, to = golden_store(NAME), tmp_path / "out", spoil.copy_store(golden_store(NAME).path, tmp_path / "to")
    sizes = " ".join(store.size_words())
    options = f"--broker-version {store.broker_version} --queue-order broker --checkpoint broker {sizes} --engine local"
    conf = {"store": str(store.path), "out": str(out), "publish_to": str(to), "build_options": options}
    conf["verify_options"] = "--engine local"
    damaged = spoil.copy_store(store.path, tmp_path / "damaged")
    spoil.flip_body(damaged, 700)
    refused = conf | {"store": str(damaged), "out": str(tmp_path / "refused")}
    runs = [{"conf": conf}, {"conf": conf, "done": "^build$"}, {"conf": refused}]
    told = airflow.ask("run", "rocketmq_reindex", json.dumps(runs))
    done, passed, never = ["success", 1], ["skipped", 0], ["upstream_failed", 0]
    ended = [[run["state"], *(run["tasks"][task] for task in TASKS)] for run in told]
    assert ended == [
        ["success", done, done, done, done],
        ["success", done, ["skipped", 1], passed, passed],
        ["failed", ["failed", 1], never, never, never],
    ]
    assert_is_rebuilt(to, store)
    assert "refused: damage, or queues out of order (exit 5)" in (airflow.folder / "log").read_text(errors="replace")
