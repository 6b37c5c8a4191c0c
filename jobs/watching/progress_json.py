"""Stages for schedulers: one JSON object a line on stderr, when a stage begins, each few seconds, when it ends."""

from __future__ import annotations

import json
import sys

from rocketmq_reindex.jobs.watching.progress import Shown, Stage

LINE_INTERVAL = 5.0


class JsonLines(Shown):
    """``eta`` is null where nothing can be said yet; seconds are those of the stage."""

    def __init__(self) -> None:
        self._last: dict[Stage, tuple[float, int, int]] = {}

    def waits(self, text: str) -> None:
        _write({"state": "waiting", "text": text})

    def stage_started(self, stage: Stage) -> None:
        if stage.probe is not None:
            self._print(stage, "running", 0, 0)

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        if stage.seconds - self._last[stage][0] >= LINE_INTERVAL:
            self._print(stage, "running", things, size)
        else:
            self._last[stage] = (self._last[stage][0], things, size)

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        if stage.probe is None:
            return
        _, things, size = self._last.pop(stage)
        if failed:
            self._print(stage, "failed", things, size)
        else:
            self._print(stage, "done", stage.total, stage.total_bytes)
        del self._last[stage]

    def _print(self, stage: Stage, state: str, things: int, size: int) -> None:
        seconds, eta = stage.seconds, 0.0 if state == "done" else stage.pace.left
        self._last[stage] = (seconds, things, size)
        line: dict[str, object] = {
            "stage": stage.name, "state": state, "done": things, "total": stage.total, "things": stage.things, "bytes": size,
            "total_bytes": stage.total_bytes, "seconds": round(seconds, 1), "eta": eta if eta is None else round(eta, 1),
        }  # fmt: skip
        _write(line)


def _write(line: dict[str, object]) -> None:
    # One write: another stage's line must not come between this one and its end.
    sys.stderr.write(json.dumps(line) + "\n")
    sys.stderr.flush()
