"""What a test starts does not outlive it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tools.faulty_processes import PATIENCE, ROOT, in_session, wait_until

CALLER = """
import sys
import time
from pathlib import Path
from tests.tools.faulty_processes import running
with running(["sleep", "900"], Path(sys.argv[1]), is_tied=True) as found:
    print(found.process.pid, flush=True)
    time.sleep(900)
"""


def test_what_is_tied_dies_with_a_killed_caller(tmp_path: Path) -> None:
    """It has a session of its own, so that no signal of a terminal reaches it."""
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, tmp_path / "run"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout is not None
        session = int(caller.stdout.readline())
        assert [words for _, words in in_session(session).values()] == ["sleep 900 "]
        caller.kill()
        caller.wait(PATIENCE)
        wait_until(lambda: not in_session(session))
