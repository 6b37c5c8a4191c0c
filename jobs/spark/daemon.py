"""A Python daemon for Spark that starts while the JVM does; see ``udfs.worker.daemon``.

By itself: it starts the daemon before anything slow is imported.
"""

import contextlib
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

from rocketmq_reindex.udfs.worker.daemon import FOLDER, VARIABLE


@contextlib.contextmanager
def name_daemon() -> Iterator[None]:
    """Set the name by which a JVM finds the daemon that ``daemon_ahead`` starts."""
    if sys.platform == "linux":
        os.environ[VARIABLE] = secrets.token_hex(16)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)


@contextlib.contextmanager
def daemon_ahead() -> Iterator[None]:
    """Start the daemon, where it has a name; it ends with this block at the latest, or with this process."""
    if VARIABLE not in os.environ:
        yield
        return
    command = [sys.executable, "-m", "rocketmq_reindex.udfs.worker.daemon", "ahead"]
    environment = os.environ | {"PYTHONSAFEPATH": "1"}
    daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=FOLDER, env=environment)
    try:
        yield
    finally:
        daemon.terminate()
        daemon.communicate()
