# Databricks notebook source
# MAGIC %md
# MAGIC # Rebuild a RocketMQ store
# MAGIC ConsumeQueue, IndexFiles and checkpoint from raw commitlog segments. The store is only read, and must not change
# MAGIC meanwhile: take a copy or a snapshot. Where a broker's lock still shows in it, `--snapshot` says that it is one.
# MAGIC
# MAGIC **STORE** holds `commitlog/`. **DIR** is a new folder apart from it, whose parent exists. Both are paths that the
# MAGIC driver and all executors see, such as `/Volumes/...`, or URIs. The wheel `rocketmq-reindex` is installed on the
# MAGIC cluster.

# COMMAND ----------

import json

import rocketmq_reindex as rr

dbutils.widgets.text("store", "", "STORE")
dbutils.widgets.text("out", "", "DIR")
ALL = "consumequeue,index,checkpoint"
dbutils.widgets.dropdown("only", ALL, [ALL, "consumequeue", "index,checkpoint", "index"], "Parts")
dbutils.widgets.dropdown("on_damage", "fail", ["fail", "stop", "salvage"], "On damage")
dbutils.widgets.dropdown("queue_order", "logical", ["logical", "broker", "fail"], "Queue order")
dbutils.widgets.text("more", "", "More options, as on the command line")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Build
# MAGIC Progress goes to stderr, below the cell.

# COMMAND ----------

given = dbutils.widgets.get
options = {name: given(name) for name in ("out", "only", "on_damage", "queue_order")} | {"progress": True}
try:
    summary, failed = rr.build(given("store"), spark=spark, **options | rr.options("build", given("more"))), None
except rr.ReindexError as error:
    summary, failed = error.result, error

# COMMAND ----------

if summary is not None:
    rows = [(name, json.dumps(value)) for name, value in summary.to_dict().items()]
    display(spark.createDataFrame(rows, "name string, value string"))

# COMMAND ----------

if failed:
    raise RuntimeError(f"exit status {failed.exit_status}: {failed}")
