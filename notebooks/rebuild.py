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

import contextlib
import io
import json
import shlex

from rocketmq_reindex.jobs.build import build

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
# MAGIC Warnings and progress go to stderr, below the cell.

# COMMAND ----------

given = dbutils.widgets.get
arguments = [given("store"), "--out", given("out"), "--only", given("only")]
arguments += ["--on-damage", given("on_damage"), "--queue-order", given("queue_order"), *shlex.split(given("more"))]

printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    status = build([*arguments, "--json"])
summary = json.loads(printed.getvalue().splitlines()[-1])

# COMMAND ----------

display(spark.createDataFrame([(name, json.dumps(value)) for name, value in summary.items()], "name string, value string"))

# COMMAND ----------

# 3: published, but damaged parts of the log are missing from it (stop, salvage).
if status not in (0, 3):
    raise RuntimeError(f"exit status {status}: {summary['error']}")
