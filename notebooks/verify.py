# Databricks notebook source
# MAGIC %md
# MAGIC # Verify a RocketMQ store
# MAGIC Is the store what its commitlog says? ConsumeQueues, IndexFiles and checkpoint are compared with the log, both ways.
# MAGIC The store is only read.
# MAGIC
# MAGIC **STORE** is a broker's store, or what a build wrote, and then **LOG** the folder of segments it was built from.
# MAGIC **WORK** is a folder that the driver and all executors share, such as `DIR/work` of a build in a volume. The wheel
# MAGIC `rocketmq-reindex` is installed on the cluster.

# COMMAND ----------

import json

import rocketmq_reindex as rr

dbutils.widgets.text("store", "", "STORE")
dbutils.widgets.text("commitlog", "", "LOG, if not STORE/commitlog")
dbutils.widgets.text("work", "", "WORK")
dbutils.widgets.text("sample", "1", "Share of the segments to read")
dbutils.widgets.text("more", "", "More options, as on the command line")

# COMMAND ----------

given = dbutils.widgets.get
options = {name: given(name) or None for name in ("commitlog", "work", "sample")} | {"progress": True}
try:
    found, failed = rr.verify(given("store"), spark=spark, **options | rr.options("verify", given("more"))), None
except rr.ReindexError as error:
    found, failed = error.result, error

# COMMAND ----------

# MAGIC %md
# MAGIC ## Differences
# MAGIC Of each kind all are counted, and the first places are listed.

# COMMAND ----------

findings = found.findings if found else []
rows = [(each["kind"], each["count"], each["text"], json.dumps(each["examples"])) for each in findings]
display(spark.createDataFrame(rows, "kind string, count long, meaning string, places string"))

# COMMAND ----------

if failed:
    raise RuntimeError(f"exit status {failed.exit_status}: {failed}")
# 4: differences. A job stops here, before anything behind it publishes.
if found.exit_status:
    raise RuntimeError(f"exit status {found.exit_status}: {found.mend or 'see the differences above'}")
