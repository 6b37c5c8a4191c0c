# Databricks notebook source
# MAGIC %md
# MAGIC # Verify a RocketMQ store
# MAGIC Is the store what its commitlog says? ConsumeQueues, IndexFiles and checkpoint are compared with the log, both ways.
# MAGIC The store is only read.
# MAGIC
# MAGIC **STORE** is a broker's store, or what a build wrote, and then **LOG** the folder of segments it was built from.
# MAGIC **WORK** is a folder that the driver and all executors share. The wheel `rocketmq-reindex` is installed on the cluster.

# COMMAND ----------

import contextlib
import io
import json
import shlex

from rocketmq_reindex.jobs.verify import verify

dbutils.widgets.text("store", "", "STORE")
dbutils.widgets.text("commitlog", "", "LOG, if not STORE/commitlog")
dbutils.widgets.text("work", "", "WORK")
dbutils.widgets.text("sample", "1", "Share of the segments to read")
dbutils.widgets.text("more", "", "More options, as on the command line")

# COMMAND ----------

given = dbutils.widgets.get
arguments = [given("store"), "--sample", given("sample"), *shlex.split(given("more"))]
for option in ("commitlog", "work"):
    arguments += [f"--{option}", given(option)] if given(option) else []

printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    status = verify([*arguments, "--json"])
summary = json.loads(printed.getvalue().splitlines()[-1])

# COMMAND ----------

# MAGIC %md
# MAGIC ## Differences
# MAGIC Of each kind all are counted, and the first places told.

# COMMAND ----------

found = [(one["kind"], one["count"], one["text"], json.dumps(one["examples"])) for one in summary["findings"]]
display(spark.createDataFrame(found, "kind string, count long, meaning string, places string"))

# COMMAND ----------

# 4: differences. A job stops here, before anything behind it publishes.
if status:
    raise RuntimeError(f"exit status {status}: {summary['error'] or summary['mend'] or 'see the differences above'}")
