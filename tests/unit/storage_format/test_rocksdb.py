"""Which files in consumequeue/ are RocksDB's."""

from __future__ import annotations

import pytest

from rocketmq_reindex.storage_format.layouts import rocksdb_files

OF_A_BROKER = ["000004.log", "000010.sst", "CURRENT", "IDENTITY", "LOCK", "MANIFEST-000005", "OPTIONS-000007", "OPTIONS-000009"]
"""what RocketMQ 5.5.0 leaves with storeType=defaultRocksDB"""


def test_a_real_folder() -> None:
    assert rocksdb_files(OF_A_BROKER) == [name for name in OF_A_BROKER if name != "LOCK"]
    assert rocksdb_files(["12345678901234567890.blob", "1234567.sst"]) == ["1234567.sst", "12345678901234567890.blob"]


@pytest.mark.parametrize("name", OF_A_BROKER)
def test_one_file_is_enough_unless_it_is_the_lock(name: str) -> None:
    assert rocksdb_files([name]) == ([name] if name != "LOCK" else [])


@pytest.mark.parametrize(
    "name",
    ["", "LOG", "current", "CURRENT\n", "00000000000000000000", "topic.log", "1.sst", "٠٠٠٠٠٠.sst", "MANIFEST-", ".DS_Store"],
)
def test_other_names(name: str) -> None:
    assert rocksdb_files([name]) == []
