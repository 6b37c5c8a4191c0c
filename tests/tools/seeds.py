"""The seed of random tests: a fixed one, one that is given, or with ``--seeds N`` many, one after the other in one process.

Most of a short test's time is the start of pytest, of Spark and of shared fixtures. All seeds of a test share them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, core, settings

SEED = 20261121
"""of all random tests, unless REINDEX_SEED gives another: one commit, one verdict"""
GIVEN = os.environ.get("REINDEX_SEED")
STEP = 1000
"""from one seed of a test to its next one: some tests draw from the few numbers behind their seed, too"""
PATIENCE = 1200
"""seconds after which one round is taken for hung"""
_PROPERTY = "seeds"
T = TypeVar("T")

_current = SEED if GIVEN is None else int(GIVEN)


def cases(fixed: T, other: T) -> T:
    """How many cases, or which, a random test has: ``fixed`` with the seed of ``make test``, ``other`` with any other seed.

    That seed runs alone and has each kind of case. Of others there are many, which differ more than the cases of one seed do.
    """
    return fixed if _current == SEED else other


# No deadline and no check of speed: the first call of a kernel compiles it, and others may have the machine. The same examples
# each time; a failure is told at once. With --hypothesis-profile=shrink, or with a seed, it is made small first, for minutes.
settings.register_profile(
    "shrink",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=GIVEN is None,
    max_examples=cases(100, 25),
    database=None,
    print_blob=True,
)
settings.register_profile("project", settings.get_profile("shrink"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("project" if GIVEN is None else "shrink")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--seeds`` and ``--seconds``."""
    group = parser.getgroup("random tests")
    group.addoption(
        "--seeds", type=int, default=1, metavar="N", help="run each random test with N seeds; they need REINDEX_SEED"
    )
    group.addoption(
        "--seconds", type=float, default=float("inf"), metavar="S", help="begin no seed of a test after S seconds of it"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give hypothesis the seed, too."""
    if config.option.seeds > 1 and GIVEN is None:
        raise pytest.UsageError("--seeds: set REINDEX_SEED to the first seed: make test-random does it")
    if GIVEN is not None and not config.option.hypothesis_seed:
        config.option.hypothesis_seed = GIVEN


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the random tests, which ``make test-random`` runs, and let many seeds take their time."""
    for item in items:
        if "seed" in getattr(item, "fixturenames", ()) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("random")
            if config.option.seeds > 1:
                limit = min(config.option.seconds, PATIENCE * config.option.seeds) + PATIENCE
                item.add_marker(pytest.mark.timeout(limit), append=False)


@pytest.fixture
def seed() -> int:
    """The seed of a random test, shown when it fails; REINDEX_SEED=N gives another."""
    print(f"REINDEX_SEED={_current}")
    return _current


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a random test with each of its seeds, up to the first that fails; what is reported is its last round."""
    if item.config.option.seeds == 1 or item.get_closest_marker("random") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    count = 0
    reports: list[pytest.TestReport] = []
    for count, chosen in enumerate(_drawn(item.config), 1):
        item._report_sections.clear()
        # The round's own fixtures end with it. What the tests of the file share stays, as if one of them came next.
        reports = runtestprotocol(item, log=False, nextitem=item.parent)  # type: ignore[arg-type]
        if other := [report for report in reports if not report.passed]:
            other[0].sections.append(("seed", f"REINDEX_SEED={chosen} repeats it, after {count - 1} seeds that passed"))
            break
    item.session._setupstate.teardown_exact(nextitem)
    for report in reports:
        report.user_properties.append((_PROPERTY, count))
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _drawn(config: pytest.Config) -> Iterator[int]:
    """Each seed of one test, made the current one of the fixture and of hypothesis, while there is time."""
    global _current
    ends = time.monotonic() + config.option.seconds
    first = int(GIVEN or SEED)
    for number in range(config.option.seeds):
        if number and time.monotonic() >= ends:
            return
        _current = first + number * STEP
        core.global_force_seed = _current  # type: ignore[assignment]
        os.environ["REINDEX_SEED"] = str(_current)  # of the processes that a test starts, too
        yield _current


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many seeds each test had."""
    if config.option.seeds == 1:
        return
    told = [report for kind in ("passed", "failed", "error") for report in terminalreporter.stats.get(kind, [])]
    counts = {report.nodeid: dict(report.user_properties).get(_PROPERTY, 0) for report in told}
    fewer = sorted((count, name) for name, count in counts.items() if count < config.option.seeds)
    terminalreporter.section("seeds")
    terminalreporter.write_line(f"{len(counts) - len(fewer)} of {len(counts)} tests had {config.option.seeds} seeds each")
    for count, name in fewer:
        terminalreporter.write_line(f"{count:>6} {name}")
