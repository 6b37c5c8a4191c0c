"""What all tests share: golden stores unpacked once, one seed, how hypothesis runs, a folder for the real stores."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.golden.stores import GoldenStore, unpack

SEED = 20261121
"""of all random tests, unless REINDEX_SEED gives another: one commit, one verdict"""
_GIVEN = os.environ.get("REINDEX_SEED")
_JAVA_TMP = "REINDEX_JAVA_TMP"

# No deadline and no check of speed: the first call of a kernel compiles it, and others may have the machine. The same examples
# each time; a failure is told at once. With --hypothesis-profile=shrink, or with a seed, it is made small first, for minutes.
settings.register_profile(
    "shrink",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=_GIVEN is None,
    database=None,
    print_blob=True,
)
settings.register_profile("project", settings.get_profile("shrink"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("project" if _GIVEN is None else "shrink")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give hypothesis the seed, too; give the real stores' JVMs a folder for the libraries that they unpack."""
    if _GIVEN is not None and not config.option.hypothesis_seed:
        config.option.hypothesis_seed = _GIVEN
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell ignores it for what runs in the background, and so would each command that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Of several processes the first one makes it, and removes it when the others have ended.
    if _JAVA_TMP not in os.environ:
        os.environ[_JAVA_TMP] = tempfile.mkdtemp(prefix="rmq-reindex-java-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop(_JAVA_TMP), ignore_errors=True))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the random tests, which ``make test-random`` runs."""
    for item in items:
        if "seed" in getattr(item, "fixturenames", ()) or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("random")


@pytest.fixture(scope="session")
def golden_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="session")
def golden_store(golden_root: Path) -> Callable[[str], GoldenStore]:
    """golden_store(name): the unpacked store with its sizes and its truth. Read it, do not change it."""
    return lambda name: unpack(name, golden_root)


@pytest.fixture(scope="session")
def golden(golden_root: Path) -> Callable[[str], Path]:
    """golden(name): the folder of the unpacked store. Read it, do not change it."""
    return lambda name: unpack(name, golden_root).path


@pytest.fixture
def seed() -> int:
    """The seed of a random test, shown when it fails; REINDEX_SEED=N gives another."""
    chosen = SEED if _GIVEN is None else int(_GIVEN)
    print(f"REINDEX_SEED={chosen}")
    return chosen
