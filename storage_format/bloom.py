"""The broker's bloom filter over consumers (RocketMQ ``BloomFilter`` of the filter module, 4.9 and 5.3): the bits of a text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ERROR_RATE, CONSUMERS = 20, 32
"""``BrokerConfig.maxErrorRateOfBloomFilter`` (percent), ``expectConsumerNumUseFilter``"""


@dataclass(frozen=True)
class BloomShape:
    """A filter of ``bits`` bits (m), of which each text sets ``hashes`` (k)."""

    hashes: int
    bits: int


def bloom_shape(error_rate: int = ERROR_RATE, consumers: int = CONSUMERS) -> BloomShape:
    """The shape that ``BloomFilter.createByFn`` gives for an error rate in percent and a number of consumers.

    Raises ValueError where the rate is not 1 to 99, or there is no consumer.
    """
    if not 1 <= error_rate < 100 or consumers < 1:
        raise ValueError(f"a bloom filter has an error rate of 1 to 99 and consumers, not {error_rate} and {consumers}")
    # The same quotients of logarithms as in Java: another order of operations could round to another number of bits.
    rate = error_rate / 100.0
    hashes = math.ceil(math.log(rate) / math.log(0.5))
    bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
    return BloomShape(hashes, 8 * math.ceil(bits / 8.0))


def bloom_bits(hashed: npt.NDArray[np.uint64], shape: BloomShape) -> npt.NDArray[np.int32]:
    """The positions of the bits of texts: int32 (n, hashes). ``hashed``: uint64 (n,), the first half of ``murmur3_128``."""
    low = hashed.astype(np.uint32).view(np.int32)
    high = (hashed >> np.uint64(32)).astype(np.uint32).view(np.int32)
    with np.errstate(over="ignore"):
        combined = low[:, None] + np.arange(1, shape.hashes + 1, dtype=np.int32) * high[:, None]
    return np.asarray(np.where(combined < 0, ~combined, combined) % np.int32(shape.bits), np.int32)
