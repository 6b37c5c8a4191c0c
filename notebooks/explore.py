# Databricks notebook source
# MAGIC %md
# MAGIC # Look into a RocketMQ store by SQL
# MAGIC Log, ConsumeQueues and IndexFiles of **STORE** as tables; docs/reference/sql.md has all columns. The store is only read.
# MAGIC The wheel `rocketmq-reindex` is installed on the cluster.

# COMMAND ----------

from rocketmq_reindex.udfs.sql import functions, sources

dbutils.widgets.text("store", "", "STORE")
dbutils.widgets.text("topic", "*", "Topics: globs, separated by commas")
sources.register(spark)
functions.register(spark)
store, topic = dbutils.widgets.get("store"), dbutils.widgets.get("topic")
# Only these columns are read from the log.
columns = "topic,queueId,consumeQueueOffset,commitLogOffset,msgSize,storeTime,uniqKey,storeHost,hasUnit,keyItems"
spark.read.format("rocketmq-commitlog").options(columns=columns, topic=topic).load(store).createOrReplaceTempView("log")
spark.read.format("rocketmq-consumequeue").options(topic=topic).load(store).createOrReplaceTempView("units")
spark.read.format("rocketmq-index").load(store).createOrReplaceTempView("items")

# COMMAND ----------

# MAGIC %md
# MAGIC ## What is in the log

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT topic, count(DISTINCT queueId) AS queues, count(*) AS messages, sum(msgSize) AS bytes,
# MAGIC        min(storeTime) AS first, max(storeTime) AS last
# MAGIC FROM log GROUP BY topic ORDER BY bytes DESC

# COMMAND ----------

# MAGIC %md
# MAGIC ## Messages that no consumer gets: their queue has no unit for them

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT topic, queueId, consumeQueueOffset, commitLogOffset
# MAGIC FROM log LEFT ANTI JOIN units USING (topic, queueId, commitLogOffset) WHERE hasUnit LIMIT 100

# COMMAND ----------

# MAGIC %md
# MAGIC ## Messages that no query by unique key finds: the index has no item for them

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT l.topic, l.uniqKey, message_id(l.storeHost, l.commitLogOffset) AS id
# MAGIC FROM log l LEFT ANTI JOIN items i
# MAGIC   ON index_hash(l.topic, l.uniqKey) = i.keyHash AND l.commitLogOffset = i.commitLogOffset
# MAGIC WHERE l.keyItems > 0 AND l.uniqKey IS NOT NULL LIMIT 100
