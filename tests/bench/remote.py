"""A session in a process of its own, in which builds follow one another as its starter asks for them, a line each."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tests.bench.logs import ROOT
from tests.bench.sides import Run, Session


class Remote:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, store: Path | str, out: Path) -> Run:
        asks, tells = self._process.stdin, self._process.stdout
        assert asks is not None
        assert tells is not None
        print(json.dumps([str(store), str(out)]), file=asks, flush=True)
        # Spark may have something to say, too.
        for line in tells:
            if line.startswith("{"):
                return Run(**json.loads(line))
        raise SystemExit(f"the session ended with {self._process.wait()}")


@contextlib.contextmanager
def remote(master: str, environment: dict[str, str], cores: int = 0) -> Iterator[Remote]:
    """A session there is; it ends with the context. ``cores``: how many it may use, with all below it; 0 for all."""
    command = [sys.executable, "-m", "tests.bench.remote", "--master", master, "--cores", str(cores)]
    with subprocess.Popen(
        command, cwd=ROOT, env=os.environ | environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Remote(process)
        # Its end of input is closed by Popen's own end, and that is the word to stop.


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--master", required=True)
    parser.add_argument("--cores", type=int, default=0)
    given = parser.parse_args()
    if given.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    session = Session(given.master)
    for line in sys.stdin:
        store, out = json.loads(line)
        print(json.dumps(asdict(session.run(store, Path(out)))), flush=True)
    session.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
