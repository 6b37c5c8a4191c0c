"""Real Spark runs whose driver, JVM or Python worker is killed: at a named point, or at a moment by chance."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any, Final

from tests.fault.disk import Scene, check_killed, tree
from tests.tools.faulty_processes import Running, command, fired, in_session, running, wait_until
from tests.tools.faulty_runs import SIZES

Point = tuple[str, str]
DRIVER_POINTS: Final[tuple[Point, ...]] = (
    ("os.rename", "/plans/ranges-1$"),
    ("os.rename", "/plans/index$"),
    ("os.rename", "/tree/index/"),
    ("os.rename", "/tree/reindex.json$"),
    ("os.rename", "/sealed$"),
    ("os.rename", "/out$"),
    ("os.rename", r"/\.out\.rmq-reindex-[0-9a-f]{12}$"),
    ("os.remove", "lock$"),
)
"""(audit event, path): the kill comes before that operation."""
WORKER_POINTS: Final[tuple[Point, ...]] = (
    ("open", "/commitlog/"),
    ("os.rename", "/blocks/"),
    ("os.rename", "/ranges/"),
    ("os.mkdir", "/tree/consumequeue"),
    ("os.rename", "/tree/consumequeue/"),
    ("os.rename", "/parts/"),
    ("open", "/plans/index$"),
    ("os.rename", "/made/"),
)
STAGES: Final = (WORKER_POINTS[:3], WORKER_POINTS[3:6], WORKER_POINTS[6:])
"""The points of the scan, of the ConsumeQueues and of the IndexFiles."""
LOCAL: Final = "local[2]"
RETRYING: Final = "local[2,4]"
"""A task may fail three times, as on a cluster: local[2] gives it no second chance."""


def fault(process: str, point: Point, action: str = "kill", times: int = 1) -> dict[str, Any]:
    return {"process": process, "event": point[0], "path": point[1], "action": action, "times": times}


def run(scene: Scene, folder: Path, faults: list[dict[str, Any]], master: str = LOCAL) -> Any:
    """A real command under faults; use as a context manager, which leaves no process."""
    words = command(scene.store, scene.out, *SIZES, *scene.words, "--master", master, name=scene.name)
    return running(words, folder, faults)


def check_killed_driver(scene: Scene, running: Running) -> None:
    """DIR is whole or as it was; the next run comes at once, while the orphaned JVM may still be at work."""
    assert running.ended() == -signal.SIGKILL
    check_killed(scene, "after a killed driver")
    wait_until(lambda: not any("java" in words for _, words in in_session(running.process.pid).values()))
    time.sleep(0.1)
    assert scene.beside() == [], "an orphan wrote on"


def check_ended(scene: Scene, running: Running, may_fail: bool) -> dict[str, Any]:
    """The run ends by itself: published whole, or refused with nothing left."""
    summary = running.summary()
    if summary["exit"] == scene.exit:
        assert tree(scene.out) == scene.truth
    else:
        assert may_fail, summary["error"]
        assert (summary["exit"], tree(scene.out)) == (1, scene.before), summary["error"]
        # Killed while it starts, the JVM has nothing to publish yet.
        assert any(words in summary["error"] for words in ("nothing was published", "Spark does not start")), summary["error"]
    assert scene.beside() == []
    scene.check_next("after a killed helper")
    return summary


def kill_somebody(scene: Scene, folder: Path, rng: random.Random) -> str:
    """One case by chance; what it was."""
    who = rng.choice(("driver", "jvm", "worker"))
    if rng.random() < 0.5:
        # Over an earlier build names are swapped, which Python tells no audit hook of.
        reached = [point for point in DRIVER_POINTS if not (scene.earlier and point[1] == "/out$")]
        point = rng.choice(reached if who == "driver" else WORKER_POINTS)
        process, action = ("driver", "kill") if who == "driver" else ("worker", "kill-jvm" if who == "jvm" else "kill")
        with run(scene, folder, [fault(process, point, action)], RETRYING if who == "worker" else LOCAL) as found:
            found.ended()
            assert fired(folder) == 1, f"{point} was never reached"
            if who == "driver":
                check_killed_driver(scene, found)
            else:
                check_ended(scene, found, who == "jvm")
        return f"{who} at {point[0]} {point[1]}"
    with run(scene, folder, [], RETRYING) as found:
        began = time.monotonic()
        wait_until(lambda: scene.beside() or found.process.poll() is not None)
        time.sleep(rng.random() * 8)
        hit = _kill(found, who)
        if hit and who == "driver":
            check_killed_driver(scene, found)
        else:
            check_ended(scene, found, bool(hit))
    return f"{who} after {time.monotonic() - began:.1f} s" + ("" if hit else " (had ended)")


def _kill(found: Running, who: str) -> bool:
    """Kill a process of the run; whether it was there."""
    left = in_session(found.process.pid)
    pids = {
        "driver": [found.process.pid],
        "jvm": [pid for pid, (_, words) in left.items() if "org.apache.spark" in words and "java" in words],
        "worker": [
            pid for pid, (_, words) in left.items() if {"pyspark.daemon", "rocketmq_reindex.udfs.worker.daemon"} & set(words)
        ],
    }[who]
    if found.process.poll() is not None or not pids:
        return False
    try:
        os.kill(max(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
