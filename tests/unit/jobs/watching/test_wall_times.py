"""What a run says of its time is what a clock on the wall says, from the command's own start."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import pytest

from rocketmq_reindex.jobs.api.running import make_build
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.command import start
from rocketmq_reindex.jobs.engines.engine import Engine
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Verify
from rocketmq_reindex.jobs.watching.watch import Watch
from tests.golden.stores import GoldenStore
from tests.tools.local_engine import InlineEngine

Stores = Callable[[str], GoldenStore]
IMPORTS = 1000.0
"""seconds that went by before the command's first line"""


@contextlib.contextmanager
def slow_to_stop() -> Iterator[Engine]:
    yield InlineEngine()
    time.sleep(0.2)


@pytest.fixture
def watch() -> Watch:
    with start.command():
        start._marks[0] -= IMPORTS
        return Watch("build")


def test_a_build(watch: Watch, golden_store: Stores, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("place") / "out"
    golden = golden_store("trimmed-head")
    settings = BuildSettings(str(golden.path), str(out), **golden.sizes()).check()  # type: ignore[arg-type]
    job = make_build(settings, watch.reporter(), slow_to_stop)
    job.run()
    watch.stop_clock(job.result)
    seconds = job.result.seconds
    assert set(seconds) == {"session", "build", "total"}
    assert seconds["session"] >= IMPORTS
    assert 0 < seconds["build"] < IMPORTS
    assert seconds["session"] + seconds["build"] + 0.2 <= seconds["total"]
    assert f"took     {seconds['total']:.1f} s, start {seconds['session']:.1f} s" in job.result.to_text()


def test_a_verify(watch: Watch, golden_store: Stores) -> None:
    store = golden_store("trimmed-head").path
    settings = VerifySettings(str(store)).check()
    job = Verify(settings, watch.reporter(), slow_to_stop)
    job.run()
    watch.stop_clock(job.result)
    seconds, beside = job.result.seconds, job.result.beside
    assert seconds["session"] >= IMPORTS
    assert seconds["session"] + seconds["verify"] + 0.2 <= seconds["total"]
    # Stages come one after another; what runs beside others is told apart.
    assert seconds["scan"] + seconds["compare"] <= seconds["verify"]
    assert set(beside) == {"list", "check", "consumequeue", "index"}
    assert max(beside["list"], beside["check"]) <= seconds["scan"]
    assert max(beside["consumequeue"], beside["index"]) <= seconds["compare"]
    assert f"took     {seconds['total']:.1f} s" in job.result.to_text()


def test_a_command_that_is_called_begins_when_it_is_called() -> None:
    before = time.monotonic()
    assert before <= start.command_begin() <= time.monotonic()
