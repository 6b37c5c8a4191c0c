"""The files that a real store leaves where its ConsumeQueues lie in RocksDB, and what a broker makes of them without it."""

from __future__ import annotations

import shutil
from pathlib import Path

from rocketmq_reindex.jobs.store.settings import rocksdb_queues
from tests.serving.programs import Program
from tests.serving.stores import build_into, keyed_log, options, queues_of


def test_real_files(seed: int, tmp_path: Path) -> None:
    """With rocksdbCQDoubleWriteEnable a store has both kinds; a start with storeType=default passes over RocksDB's files."""
    puts = keyed_log(tmp_path / "plain", 60, seed, topics=1, queues=1)
    (due,) = ([put.offset for put in of_queue] for of_queue in queues_of(puts).values())
    build_into(tmp_path / "plain")
    for name in ("both", "separate"):
        shutil.copytree(tmp_path / "plain", tmp_path / name)
    with Program("5.5.1", "Crash", tmp_path) as program:
        for name, more in (("plain", ""), ("both", ""), ("separate", ",useSeparateStorePathForRocksdbCQ=true")):
            double = f"rocksdbCQDoubleWriteEnable=true{more}" if name != "plain" else "storeType=default"
            program.step("open", name, tmp_path / name, *options(), "--set", double)
        program.step("close", "plain", "both", "separate")
        assert (tmp_path / "plain" / "rocksdbstore" / "CURRENT").exists()
        assert rocksdb_queues(str(tmp_path / "plain")) is None
        for name, folder in (("both", "consumequeue"), ("separate", "consumequeue_rocksdb")):
            found = rocksdb_queues(str(tmp_path / name))
            assert found is not None, name
            assert (found.folder, found.beside) == (str(tmp_path / name / folder), True)
            files = {path.name for path in (tmp_path / name / folder).iterdir() if path.is_file()}
            assert files - set(found.names) <= {"LOCK"}
            assert {"CURRENT", "IDENTITY"} <= set(found.names)
        program.step("open", "again", tmp_path / "both", *options())
        assert program.step("serve", "again", "orders-0", 0) == ",".join(map(str, due))
