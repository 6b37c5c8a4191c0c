"""Names of RocksDB's files: with ``storeType=defaultRocksDB`` a broker keeps its ConsumeQueues in such files.

They lie directly in ``consumequeue/``. Topics are folders there, so a file of such a name is never a ConsumeQueue's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

SEPARATE: Final = "consumequeue_rocksdb"
"""The folder of the queues with ``useSeparateStorePathForRocksdbCQ`` (``StorePathConfigHelper``, 5.5.0)."""
_FILE: Final = re.compile(r"CURRENT|IDENTITY|(?:MANIFEST|OPTIONS)-[0-9]{6,20}|[0-9]{6,20}\.(?:sst|log|blob)")


def rocksdb_files(names: Iterable[str]) -> list[str]:
    """Return the names that only RocksDB gives, sorted; with none, the files are no RocksDB store.

    ``names`` are those of the files (not of the folders) directly in ``consumequeue/`` or ``consumequeue_rocksdb/``. Its lock
    and its log, ``LOCK`` and ``LOG``, do not count: alone they say nothing. Mirrors ``ConsumeQueueRocksDBStorage`` (5.5.0),
    whose files RocksDB names.
    """
    return sorted(name for name in names if _FILE.fullmatch(name))
