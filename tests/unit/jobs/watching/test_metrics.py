"""Seconds among the figures: no second counts twice, so a sum over the stages is no more than the run took."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rocketmq_reindex.jobs.api.running import make_build, watched_run
from rocketmq_reindex.jobs.building.options import BuildSettings
from rocketmq_reindex.jobs.verifying.options import VerifySettings
from rocketmq_reindex.jobs.verifying.run import Verify
from rocketmq_reindex.jobs.watching.progress import Reporter
from rocketmq_reindex.jobs.watching.watch import Watch
from tests.tools import spoil
from tests.tools.compare import SMALL, project_settings
from tests.tools.local_engine import InlineEngine, single
from tests.tools.make_log import FEATURES, random_log


def seconds_in(path: Path, name: str) -> dict[str, float]:
    """The samples of a metric by their stage."""
    return {
        sample.labels.get("stage", ""): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if sample.name == f"rmq_reindex_{name}"
    }


def check_words(path: Path) -> None:
    """Each metric says in words what it counts."""
    helps = [family.documentation for family in text_string_to_metric_families(path.read_text())]
    assert len(helps) > 5
    assert all(len(text.split()) > 1 and text.endswith(".") for text in helps)
    assert len(set(helps)) == len(helps)


def test_a_stage_has_not_what_stages_inside_it_take() -> None:
    begin = time.monotonic()
    with Reporter([]) as reporter:
        for number in (1, 2):
            with reporter.step("decide"):
                time.sleep(0.02)
                with reporter.step(f"scan again ({number})"):
                    time.sleep(0.1)
    seconds = reporter.seconds
    assert seconds.alone["scan again"] >= 0.2
    assert seconds.alone["decide"] >= 0.04
    assert sum(seconds.alone.values()) <= time.monotonic() - begin
    assert (dict(seconds.rounds), dict(seconds.beside)) == ({"decide": 2, "scan again": 2}, {})


def test_stages_of_other_threads_go_on_beside() -> None:
    with Reporter([]) as reporter, reporter.step("compare"):

        def compare() -> None:
            with reporter.step("compare index"):
                time.sleep(0.05)

        threads = [threading.Thread(target=compare) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = reporter.seconds
    assert set(seconds.alone) == {"compare"}
    assert seconds.beside["compare index"] >= 0.15
    assert seconds.rounds == {"compare": 1, "compare index": 3}


def watched(command: str, settings: Any, kind: Callable[..., Any]) -> Any:
    """The summary of a run of ``kind`` that is watched as the command line watches it."""
    watch = Watch(command)
    watch.start(watched_run(settings, ()))
    with watch.reporter() as reporter:
        job = kind(settings, reporter, single(InlineEngine()))
        job.run()
    watch.stop_clock(job.result)
    watch.end(job.result)
    return job.result


def test_a_build_and_a_verify_are_no_longer_than_they_were(tmp_path: Path) -> None:
    store, out, path = tmp_path / "store", tmp_path / "out", tmp_path / "m.prom"
    random_log(store / "commitlog", 11, records=300, features=FEATURES)
    spoil.garbage(store, 150, 1)
    more = project_settings({**SMALL, "on_damage": "stop"})
    settings = BuildSettings(str(store), str(out), metrics=str(path), **more)
    begin = time.monotonic()
    summary = watched("build", settings, make_build)
    assert summary.exit == 3
    check_words(path)
    stages = seconds_in(path, "stage_seconds")
    assert set(stages) == {"session", "scan", "decide", "write", "finish", "publish"}
    assert sum(stages.values()) <= seconds_in(path, "run_seconds")[""] <= time.monotonic() - begin
    assert seconds_in(path, "work_seconds")[""] == summary.seconds["build"] < seconds_in(path, "run_seconds")[""]
    assert seconds_in(path, "stage_rounds") == {name: 1 for name in stages if name != "session"}
    assert seconds_in(path, "beside_seconds") == {}

    wanted = VerifySettings(str(out), commitlogs=(str(store / "commitlog"),), metrics=str(path)).check()
    summary = watched("verify", wanted, Verify)
    check_words(path)
    stages = seconds_in(path, "stage_seconds")
    assert set(stages) >= {"session", "scan", "compare"}
    assert sum(stages.values()) <= seconds_in(path, "run_seconds")[""]
    assert seconds_in(path, "work_seconds")[""] == summary.seconds["verify"]
    assert set(seconds_in(path, "beside_seconds")) == {"compare index", "compare consumequeue"}
