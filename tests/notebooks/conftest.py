"""The session of tests/spark: a notebook works in one that is there already."""

from tests.spark.conftest import spark as spark
