"""A server written in Java, on loopback in a process of its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

from tests.tools.faulty_processes import ROOT, java


@contextlib.contextmanager
def java_server(name: str, *words: str) -> Iterator[list[int]]:
    """The ports that ``tests/NAME/run`` prints on its first line. It ends with its stdin."""
    run = [str(ROOT / "tests" / name / "run"), *words]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | java()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith(("port ", "ports ")), f"no {name}: {line}"
            yield [int(port) for port in line.split()[1:]]
        finally:
            # Its end of the pipe is what it waits for.
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
            process.kill()
