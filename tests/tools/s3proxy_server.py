"""s3proxy, an S3 server of other makers than AWS and moto, on loopback in a process of its own. Nothing is kept."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.tools.s3_server import bucket_at, environment

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def s3proxy_server() -> Iterator[str]:
    """``s3://BUCKET`` on a server of its own; the environment of this process leads to it meanwhile."""
    java = {"JAVA_HOME": (ROOT / ".java-home").read_text().strip()}
    known = environment(0)
    words = [str(ROOT / "tests/s3proxy/run"), known["AWS_ACCESS_KEY_ID"], known["AWS_SECRET_ACCESS_KEY"]]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | java) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("port "), f"no s3proxy: {line}"
            with bucket_at(int(line.split()[1])) as found:
                yield found
        finally:
            # Its end of the pipe is what it waits for.
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
