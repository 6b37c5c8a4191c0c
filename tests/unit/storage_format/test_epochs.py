"""The epochs of a controller group: files read and written as the broker's own classes do (tests/oracle/test_epochs.py)."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.checkpoints import Epoch, parted_at, read_epochs, same_up_to, write_epochs
from rocketmq_reindex.storage_format.layouts import INT64_MAX

EPOCHS = (Epoch(1, 0), Epoch(3, 4000), Epoch(7, 4001))
FILE = b"3\n1788544727\n1-0\n3-4000\n7-4001\n"
"""as ``EpochFileCache.appendEntry`` of 5.5.1 wrote it"""


def test_a_file_of_a_broker() -> None:
    read = read_epochs(FILE)
    assert (read.entries, read.findings, read.is_read, read.stops) == (EPOCHS, (), True, False)
    assert write_epochs(EPOCHS) == FILE


@pytest.mark.parametrize(
    ("data", "entries", "codes", "is_read", "stops"),
    [
        (b"", 0, ["epoch-number"], False, True),
        (b"1\n", 0, ["epoch-number"], False, True),
        (b"x\n0\n", 0, ["epoch-number"], False, True),
        (b"1\n0\n1-x\n", 0, ["epoch-number"], False, True),
        (b"1\n0\n99999999999-1\n", 0, ["epoch-number"], False, True),
        (FILE[:-7], 2, ["epoch-count"], False, False),
        (FILE.replace(b"4001", b"4002"), 3, ["epoch-crc"], False, False),
        (b"2\n0\n1-0\n3-4000\n", 2, [], True, False),
        (b"2\n0\n1-0\nwhat\n3-4000\n", 2, ["epoch-line"], True, False),
        (b"2\n0\n3-4000\n1-0\n", 2, ["epoch-order"], True, False),
        (b"\xff\xfe", 0, ["epoch-line"], False, False),
        (b"1" * 10_000, 0, ["epoch-number"], False, True),
    ],
)
def test_what_is_wrong(data: bytes, entries: int, codes: list[str], is_read: bool, stops: bool) -> None:
    read = read_epochs(data)
    assert (len(read.entries), [finding.code for finding in read.findings]) == (entries, codes)
    assert (read.is_read, read.stops) == (is_read, stops)


def test_up_to_where_two_logs_are_the_same() -> None:
    assert same_up_to(EPOCHS, 5000, EPOCHS, 4500) == 4500
    assert same_up_to(EPOCHS, 5000, EPOCHS[:2], 4800) == 4001, "the other master's time ended there"
    assert same_up_to(EPOCHS, 5000, (*EPOCHS[:2], Epoch(8, 4800)), 9000) == 4001
    assert same_up_to(EPOCHS, 5000, (Epoch(1, 0), Epoch(3, 4100)), 4800) == 4000
    assert same_up_to(EPOCHS, 5000, (Epoch(1, 10),), 4800) == -1
    assert same_up_to((), 5000, EPOCHS, 5000) == -1
    assert same_up_to(EPOCHS, 10, EPOCHS, 20) == INT64_MAX, "an epoch behind the log's end has none"


def test_from_where_on_two_files_say_other_masters() -> None:
    assert parted_at(EPOCHS, EPOCHS[::-1]) == INT64_MAX, "the order of the lines says nothing"
    assert parted_at(EPOCHS[:2], EPOCHS) == parted_at(EPOCHS, EPOCHS[:2]) == 4001
    assert parted_at(EPOCHS, (Epoch(1, 0), Epoch(3, 3900), Epoch(7, 4001))) == 3900
    assert parted_at((), EPOCHS) == 0
