"""Sizes that lie neither allocate nor read more than the bytes that are there justify."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pytest

from rocketmq_reindex.storage_format.errors import InputError
from rocketmq_reindex.storage_format.record import layout as r
from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.tools.encode import MAGIC_V1, MAGIC_V2, Message, encode

GIB = 1 << 30
CHUNK = 4096
HEAD = 1 << 14
"""Bytes of the range that is scanned; the segment says it has a GiB."""


class Sparse:
    """A segment of a GiB of which only the first bytes are not zero; remembers how much was asked for at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.most = self.total = 0

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        if at + len(out) > GIB:
            raise AssertionError("read past the end of the file")
        self.most, self.total = max(self.most, len(out)), self.total + len(out)
        part = self.data[at : at + len(out)]
        out[: len(part)] = np.frombuffer(part, np.uint8)
        out[len(part) :] = 0


def scan(data: bytes, high: int = HEAD, known: bool = True) -> tuple[RangeScanner, Sparse]:
    scanner, log = RangeScanner(ScanSettings(chunk=CHUNK)), Sparse(data)
    # The first chunk of 64 MiB begins before the range, so that no digest makes the scan read on.
    low = 0 if known else 8
    for _ in scanner.scan(RangeSpec(0, "", -1, GIB - 1, GIB, low, high, known), log.read):
        pass
    return scanner, log


def head(size: int, magic: int = MAGIC_V1, body: int = 5, sysflag: int = 0) -> bytes:
    raw = bytearray(encode(Message(), 0))
    raw[:8] = struct.pack(">iI", size, magic)
    raw[36:40] = struct.pack(">i", sysflag)
    raw[84:88] = struct.pack(">i", body)
    return bytes(raw)


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("sysflag", [0, 0x10, 0x30])
@pytest.mark.parametrize("size", [2**31 - 1, GIB, GIB - 1, GIB // 2, 20_000, -1, -(2**31), 8, 90])
@pytest.mark.parametrize("body", [5, -1, 2**31 - 1, GIB - 100, GIB // 2 - 100, -(2**31)])
def test_a_lying_size_is_damage(magic: int, sysflag: int, size: int, body: int) -> None:
    lying = head(size, magic, body, sysflag)
    good = encode(Message(), len(lying))
    scanner, log = scan(lying + good)
    summary = scanner.summary
    assert log.most <= CHUNK
    assert log.total <= HEAD + CHUNK
    # The good record behind it is found again.
    assert summary.holes[0][:2] == [0, len(lying)]
    assert summary.last_good == len(lying)
    assert (summary.records, summary.units) == (1, 1)


def test_many_lying_sizes_cost_little() -> None:
    """Each of them would be a whole record of half the segment, but for its far end."""
    data = b"".join(
        encode(Message(body=b"", queue_id=k), 8 + 91 * k)[4:].join((struct.pack(">i", GIB // 2), b"")) for k in range(100)
    )
    scanner, log = scan(bytes(8) + data, known=False)
    assert scanner.summary.records == 0
    assert log.most <= CHUNK
    assert log.total <= HEAD + 2 * CHUNK


def test_a_long_record_is_taken_when_its_ends_agree() -> None:
    raw = encode(Message(body=bytes(100_000), properties={"KEYS": "k"}), 0)
    scanner, log = scan(raw, high=len(raw) + 1000)
    assert scanner.summary.records == 1
    assert log.most <= len(raw)


def test_input_that_ends_early_is_told() -> None:
    def read(at: int, out: npt.NDArray[np.uint8]) -> None:
        raise InputError(f"ends before {at + len(out)}")

    scanner = RangeScanner(ScanSettings(chunk=CHUNK))
    with pytest.raises(InputError, match="ends before 4096"):
        list(scanner.scan(RangeSpec(0, "", 0, GIB, GIB, 0, GIB, True), read))


def test_reasons_are_in_words() -> None:
    codes = {value for name, value in vars(r).items() if name.isupper() and isinstance(value, int) and 20 <= value < 50}
    damage = {code for code in codes if code in r.REASONS}
    named = {getattr(r, name) for name in vars(r) if name.startswith("BAD_")}
    named |= {r.ZERO, r.NO_ROOM, r.NO_MESSAGE, r.STALE_ENTRY}
    assert named == set(r.REASONS)
    assert named - {r.ZERO} <= damage
