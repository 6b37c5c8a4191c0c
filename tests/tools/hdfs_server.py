"""A real HDFS on loopback (MiniDFSCluster), in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.tools.java_server import java_server


@contextlib.contextmanager
def hdfs_server(folder: Path) -> Iterator[tuple[str, str]]:
    """``webhdfs://root@HOST:PORT`` and ``hdfs://root@HOST:PORT``; what it keeps lies in ``folder``."""
    with java_server("hdfs", str(folder)) as (web, own):
        yield f"webhdfs://root@127.0.0.1:{web}", f"hdfs://root@127.0.0.1:{own}"
