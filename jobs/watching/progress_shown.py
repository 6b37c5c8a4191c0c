"""Stages as people see them on stderr: a bar on a terminal, plain lines otherwise."""

import sys
from datetime import timedelta
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from rocketmq_reindex.jobs.watching.progress import Shown, Stage
from rocketmq_reindex.storage_format.showing import counted

LINE_INTERVAL = 5.0
"""seconds between two lines at least"""
SHARE: Final = 1 / 4
"""of the stage's time so far, between two lines at least: so a stage of a day has some 45 lines"""


def usual() -> Shown:
    """Return the display that suits stderr."""
    console = Console(stderr=True)
    return StageBars(console) if console.is_terminal else Lines()


class _Bytes(DownloadColumn):
    """Nothing, where a stage has no bytes."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["in_bytes"] else Text()


class _Speed(TransferSpeedColumn):
    """Nothing, where a stage has no bytes, and as long as nobody knows."""

    def render(self, task: Task) -> Text:
        known = task.fields["in_bytes"] and (task.finished_speed or task.speed)
        return Text(super().render(task).plain, style="cyan") if known else Text()


class StageBars(Shown):
    """A bar for each stage: of its bytes, or of its things where it has no bytes."""

    def __init__(self, console: Console) -> None:
        self._tasks: dict[Stage, TaskID] = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            # rich's own bar is red, as if something were wrong.
            BarColumn(complete_style="cyan", finished_style="green"),
            TextColumn("{task.fields[done]}"),
            _Bytes(binary_units=True),
            _Speed(),
            TextColumn("{task.fields[left]}"),
            console=console,
        )

    def open(self) -> None:
        self._bar.start()

    def close(self) -> None:
        self._bar.stop()

    def line(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def stage_started(self, stage: Stage) -> None:
        if stage.probe is not None:
            done = _count(stage, 0)
            in_bytes = stage.total_bytes > 0
            self._tasks[stage] = self._bar.add_task(stage.name, total=_whole(stage), done=done, in_bytes=in_bytes, left="")

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        completed, done = size if stage.total_bytes else stage.share * _whole(stage), _count(stage, things)
        seconds = stage.pace.left
        left_text = "" if seconds is None else f"{timedelta(seconds=round(seconds))} left"
        self._bar.update(self._tasks[stage], completed=completed, done=done, left=left_text)

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        if stage in self._tasks:
            done = "failed" if failed else _count(stage, stage.total)
            completed = None if failed else _whole(stage)
            self._bar.update(self._tasks.pop(stage), done=done, completed=completed, left="")


def _count(stage: Stage, things: int) -> str:
    return f"{things:,}/{stage.total:,} {stage.things}"


def _whole(stage: Stage) -> int:
    """Return how far a bar goes. One of nothing would never be full."""
    return stage.total_bytes or stage.total or 1


class Lines(Shown):
    """Plain lines: when a stage begins, when more of it is done, ever more seldom, and when it ends."""

    def __init__(self) -> None:
        self._last: dict[Stage, tuple[float, int, int]] = {}
        """of each stage's last line: (seconds, things, bytes)"""

    def line(self, text: str) -> None:
        # One write: a line of another thread must not come between this one and its end.
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def stage_started(self, stage: Stage) -> None:
        if stage.probe is not None:
            size = f", {counted(stage.total_bytes, 'byte')}" if stage.total_bytes else ""
            word, *more = stage.things.split(" ")
            singular = " ".join([word.removesuffix("s"), *more])
            self.line(f"{stage.name}: {counted(stage.total, singular, stage.things)}{size}")
            self._last[stage] = 0.0, 0, 0

    def stage_moved(self, stage: Stage, things: int, size: int) -> None:
        seconds, *printed = self._last[stage]
        if [things, size] != printed and stage.seconds - seconds >= max(LINE_INTERVAL, stage.seconds * SHARE):
            self._last[stage] = stage.seconds, things, size
            self.line(_plain(stage, things, size))

    def stage_ended(self, stage: Stage, failed: bool) -> None:
        if stage.probe is not None:
            self.line(f"{stage.name}: {'failed' if failed else 'done'} after {stage.seconds:.1f} s")


def _plain(stage: Stage, things: int, size: int) -> str:
    rate, seconds = stage.pace.rate, stage.pace.left
    read = f", {counted(size, 'byte')}" if stage.total_bytes else ""
    speed = f", {rate * stage.total_bytes / 1e6:.0f} MB/s" if rate and stage.total_bytes else ""
    left_text = f", {seconds:.0f} s left" if seconds is not None else ""
    return f"{stage.name}: {_count(stage, things)}{read}{speed}{left_text}"
