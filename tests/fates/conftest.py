"""One life of each version for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.fates.life import Fates, live


@pytest.fixture(scope="session", params=["5.5.1", pytest.param("5.3.3", marks=pytest.mark.slow)])
def fates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Fates:
    """The fates of messages on a broker of this version."""
    return live(request.param, tmp_path_factory.mktemp("fates"))
