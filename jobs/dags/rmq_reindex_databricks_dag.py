"""Airflow 3, and 2.11: the same on Databricks, as one run of the job in ``conf/databricks``; its tasks build, verify, publish.

Airflow's connection ``databricks_default`` names workspace and token; the bundle is deployed there. What a refused build or a
failed verify means for the tasks behind it is decided by the job, and so are its retries.
"""

from __future__ import annotations

import shlex
from datetime import datetime, timezone

from airflow.providers.databricks.operators.databricks import DatabricksRunNowOperator

try:
    from airflow.sdk import DAG, Param
except ModuleNotFoundError as error:
    if error.name != "airflow.sdk":
        raise
    # Airflow 2.
    from airflow.models import DAG, Param

CONNECTION = "databricks_default"
JOB = "rocketmq-reindex"
PARAMS = {
    "store": Param("", type="string", description="STORE, with commitlog/ in it: it is only read"),
    "out": Param("", type="string", description="DIR for the build, apart from STORE"),
    "publish_to": Param("", type="string", description="the broker's store that takes the build; empty: it stays in DIR"),
    "tables": Param("", type="string", description="URI of the Delta tables, for incremental builds; empty: full ones"),
    "build_options": Param("", type="string", description="more of `build`, such as --broker-conf FILE or --snapshot"),
    "verify_options": Param("", type="string", description="more of `verify`, such as --broker-conf FILE or --sample 0.1"),
    "fetch_options": Param("", type="string", description="more of `fetch`, such as --partial after --only"),
}
# A verify of a sample is none that goes on from an earlier one.
WHOLE = "'--sample' not in params.verify_options"


def incremental(where: str = "true") -> str:
    """Return a template of the options for incremental runs, if there are tables and ``where`` is true."""
    return "{% if params.tables and " + where + " %}--incremental {{ ('--tables=' ~ params.tables) | quoted }} {% endif %}"


with DAG(
    "rocketmq_reindex_databricks",
    description="Rebuild ConsumeQueue, IndexFiles and checkpoint on Databricks, verify them, publish them",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    params=PARAMS,
    user_defined_filters={"quoted": shlex.quote},
    tags=["rocketmq"],
) as dag:
    DatabricksRunNowOperator(
        task_id="run",
        databricks_conn_id=CONNECTION,
        job_name=JOB,
        job_parameters={
            **{name: f"{{{{ params.{name} }}}}" for name in ("store", "out", "publish_to")},
            "build_options": incremental() + "{{ params.build_options }}",
            "verify_options": incremental(WHOLE) + "{{ params.verify_options }}",
            "fetch_options": "{{ params.fetch_options }}",
        },
    )
