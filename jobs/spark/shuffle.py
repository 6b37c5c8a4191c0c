"""The partitions of a shuffle by Spark: how many the user asks for, and which keys lead to them."""

from __future__ import annotations

import struct
from typing import Final

import mmh3
from pyspark.sql import SparkSession

SHUFFLE_PARTITIONS_DEFAULT: Final = 200


def asked_partitions(spark: SparkSession) -> int:
    """Return the user's own number of shuffle partitions; 0 when there is none."""
    asked = int(spark.conf.get("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS_DEFAULT)) or 0)
    return 0 if asked == SHUFFLE_PARTITIONS_DEFAULT else asked


def bucket_keys(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return for each bucket a number that ``repartition(partitions, key)`` sends to partition ``bucket % partitions``.

    Spark's hash of an int is murmur3 (32 bits, seed 42), taken modulo the partitions.
    """
    found: dict[int, int] = {}
    number = 0
    while len(found) < min(buckets, partitions):
        target = mmh3.hash(struct.pack("<i", number), 42) % partitions
        if target < buckets:
            found.setdefault(target, number)
        number += 1
    return tuple(found[bucket % partitions] for bucket in range(buckets))
