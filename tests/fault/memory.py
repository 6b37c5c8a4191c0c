"""Peak memory of scans of one segment of 96 MiB whose lengths lie, in a process of its own.

Run as ``python -m tests.fault.memory``: prints, in KiB, the process's peak in a scan of the undamaged segment, its peak in the
scans of all the others, and by how much the most that these had allocated at once is above what the undamaged one had.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import tracemalloc
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rocketmq_reindex.storage_format.scan.range_scan import RangeScanner
from rocketmq_reindex.storage_format.scan.ranges import RangeSpec
from rocketmq_reindex.storage_format.scan.settings import ScanSettings
from tests.fault.layout import laid_records
from tests.fault.sizes import FIELDS, VALUES, lying
from tests.tools.encode import Message, encode

SEGMENT = 96 << 20
"""More than the scan may use beside what it needs anyway."""


class Sparse:
    """A segment of which only the first bytes and the last are not zero."""

    def __init__(self, data: bytes) -> None:
        self.data = np.frombuffer(data, np.uint8)

    def read(self, at: int, out: npt.NDArray[np.uint8]) -> None:
        assert at + len(out) <= SEGMENT, "read past the end of the file"
        part = self.data[at : at + len(out)]
        out[: len(part)] = part
        out[len(part) :] = 0


def scan(data: bytes, high: int = SEGMENT) -> tuple[int, list[list[int]]]:
    """(records, holes) of one scan up to ``high``."""
    scanner = RangeScanner(ScanSettings())
    # No chunk to digest begins in the range: the scan need not read on for one.
    for _ in scanner.scan(RangeSpec(0, "", -1, SEGMENT - 1, SEGMENT, 0, high, True), Sparse(data).read):
        pass
    return scanner.summary.records, scanner.summary.holes


def spoilt_logs() -> list[tuple[str, bytes, int]]:
    """(what, log, bytes to scan): three records of which the first one's length lies."""
    found = []
    for version, field, value in product((1, 2), FIELDS, VALUES):
        log = b""
        for number in range(3):
            body = b"x" * 100
            log += encode(Message(version=version, body=body, queue_offset=number, properties={"KEYS": "k"}), len(log))
        record = laid_records({"log": log})[0]
        at, length = record.fields[field]
        behind = SEGMENT - at if field == "TOTALSIZE" else SEGMENT - at - length
        bad = lying(value, length, behind)
        # Two bytes of length cannot ask for more than a MiB.
        high = SEGMENT if length == 4 else 1 << 20
        found.append((f"V{version} {field} {value}", log[:at] + bad + log[at + length :], high))
    return found


def forget_peak() -> None:
    """From here on the peak counts anew: what compiling the loops took is none of the scans'."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """The most memory of this process since, in KiB."""
    with contextlib.suppress(OSError):
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    whole = encode(Message(body=b"x" * 100), 0)
    assert scan(whole)[0] == 1
    forget_peak()
    scan(whole)
    before = peak()
    tracemalloc.start()
    scan(whole)
    plain = tracemalloc.get_traced_memory()[1]
    most = 0
    forget_peak()
    for name, log, high in spoilt_logs():
        tracemalloc.reset_peak()
        records, holes = scan(log, high)
        most = max(most, tracemalloc.get_traced_memory()[1] - plain)
        if (records, len(holes)) not in ((2, 1), (3, 0)):
            print(f"{name}: {records} records, holes {holes}")
            return 1
    print(before, peak(), most >> 10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
