"""The session of tests/spark."""

from tests.spark.conftest import spark as spark
