"""Given to spark-submit: what arrived of its settings, which of them Spark knows, and the heap, as JSON on the last line."""

import json

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
jvm = spark._jvm
assert jvm is not None
arrived = dict(spark.sparkContext.getConf().getAll())
# Spark's Python settings are registered where they are first used.
spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
entry = jvm.org.apache.spark.internal.config.ConfigEntry
known = [name for name in arrived if entry.findEntry(name) is not None]
print(json.dumps({"arrived": arrived, "known": known, "heap": jvm.java.lang.Runtime.getRuntime().maxMemory()}))
