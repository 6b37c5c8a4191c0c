"""Python reads this at its start in every process that has this folder on PYTHONPATH: faults at named points of a run.

REINDEX_FAULTS is a JSON list of {"process": "driver" or "worker", "event": an audit event (open, os.rename, os.mkdir, ...),
"path": a pattern to be found in its last path, "action": ..., "marker": a path, "times": how often in all processes (1)}.
The action comes before the operation: "kill" this process, "kill-jvm" the JVM that runs this worker, "stop" (SIGSTOP),
"sleep SECONDS", or "meet": wait until it has come ``times`` times.

REINDEX_HIDDEN is a folder that workers shall not import from.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from typing import Any

_WORKER = any(
    word.startswith("pyspark.") or word in ("rocketmq_reindex.udfs.worker.daemon", "rocketmq_reindex.udfs.worker.pool")
    for word in sys.orig_argv
)
_PARENT = os.getppid()
"""The daemon of the workers imports this, and they are forked from it: it was started by the JVM, or ahead by the driver."""


def _name_and_session(process: int) -> tuple[str, int]:
    try:
        with open(f"/proc/{process}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
    except OSError:
        return "", -1
    return name, int(rest.split()[3])


def _jvm() -> int:
    """The JVM that runs this worker."""
    if _name_and_session(_PARENT)[0] == "java":
        return _PARENT
    wanted = "java", os.getsid(0)
    return next(int(name) for name in os.listdir("/proc") if name.isdigit() and _name_and_session(int(name)) == wanted)


def _fires(fault: dict[str, Any]) -> bool:
    """Whether this is among the first ``times``, over all processes."""
    for number in range(fault.get("times", 1)):
        try:
            os.close(os.open(f"{fault['marker']}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            continue
        return True
    return False


def _act(fault: dict[str, Any]) -> None:
    action = fault["action"]
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "kill-jvm":
        os.kill(_jvm(), signal.SIGKILL)
        time.sleep(60)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action.startswith("sleep "):
        time.sleep(float(action.removeprefix("sleep ")))
    elif action == "meet":
        while not os.path.exists(f"{fault['marker']}.{fault['times'] - 1}"):
            time.sleep(0.05)
    else:
        raise ValueError(action)


def _install() -> None:
    mine = "worker" if _WORKER else "driver"
    faults = [fault for fault in json.loads(os.environ.get("REINDEX_FAULTS", "[]")) if fault["process"] == mine]
    if not faults:
        return
    events = {fault["event"] for fault in faults}

    def hook(event: str, words: tuple[Any, ...]) -> None:
        if event not in events:
            return
        paths = [word for word in words if isinstance(word, str) and "/" in word]
        for fault in faults:
            if fault["event"] == event and paths and re.search(fault["path"], paths[-1]) and _fires(fault):
                _act(fault)

    sys.addaudithook(hook)


if _WORKER and "REINDEX_HIDDEN" in os.environ:
    sys.path[:] = [path for path in sys.path if path != os.environ["REINDEX_HIDDEN"]]
_install()
