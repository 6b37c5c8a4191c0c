"""A real HDFS on loopback (MiniDFSCluster), in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def hdfs_server(folder: Path) -> Iterator[tuple[str, str]]:
    """``webhdfs://root@HOST:PORT`` and ``hdfs://root@HOST:PORT``; what it keeps lies in ``folder``."""
    java = {"JAVA_HOME": (ROOT / ".java-home").read_text().strip()}
    with subprocess.Popen(
        [ROOT / "tests/hdfs/run", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | java
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("ports "), f"no HDFS: {line}"
            web, own = map(int, line.split()[1:])
            yield f"webhdfs://root@127.0.0.1:{web}", f"hdfs://root@127.0.0.1:{own}"
        finally:
            # Its end of the pipe is what it waits for.
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
