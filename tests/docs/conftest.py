"""The session of tests/spark: SQL over a store needs one."""

from tests.spark.conftest import spark as spark
