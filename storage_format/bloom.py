"""The broker's bloom filter over consumers (RocketMQ ``BloomFilter`` of the filter module): where a text's bits lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ERROR_RATE, CONSUMERS = 20, 32
"""``BrokerConfig.maxErrorRateOfBloomFilter`` (percent), ``expectConsumerNumUseFilter``"""


@dataclass(frozen=True)
class BloomShape:
    """``bits`` in all (m), of which each text sets ``hashes`` (k)."""

    hashes: int
    bits: int


def bloom_shape(error_rate: int = ERROR_RATE, consumers: int = CONSUMERS) -> BloomShape:
    """What ``BloomFilter.createByFn`` makes of an error rate in percent and a number of consumers. Raises ValueError."""
    if not 1 <= error_rate < 100 or consumers < 1:
        raise ValueError(f"a bloom filter has an error rate of 1 to 99 and consumers, not {error_rate} and {consumers}")
    # The quotients of logarithms as Java forms them: another way of writing them could round to another number of bits.
    rate = error_rate / 100.0
    hashes = math.ceil(math.log(rate) / math.log(0.5))
    bits = math.ceil(consumers * (math.log(1 / rate) / math.log(2)) * (math.log(math.e) / math.log(2)))
    return BloomShape(hashes, 8 * math.ceil(bits / 8.0))


def bloom_bits(hashed: npt.NDArray[np.uint64], shape: BloomShape) -> npt.NDArray[np.int32]:
    """Positions of the bits of texts with these hashes (the first half of ``murmur3_128``): int32 (n, hashes)."""
    low = hashed.astype(np.uint32).view(np.int32)
    high = (hashed >> np.uint64(32)).astype(np.uint32).view(np.int32)
    with np.errstate(over="ignore"):
        combined = low[:, None] + np.arange(1, shape.hashes + 1, dtype=np.int32) * high[:, None]
    return np.asarray(np.where(combined < 0, ~combined, combined) % np.int32(shape.bits), np.int32)
