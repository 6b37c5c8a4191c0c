"""The wheel and the source distribution list the files of ``rocketmq_reindex/`` one by one: none may be missing."""

from __future__ import annotations

import re

import pytest

from tests import ROOT


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_every_file_of_the_package_is_distributed(target: str) -> None:
    table = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition(f"[tool.hatch.build.targets.{target}]\n")[2]
    listed = set(re.findall(r'"(rocketmq_reindex/[^"]+)"', table.partition("]\n")[0]))
    # The folders beside them are links in a checkout, and are listed by their own names.
    files = {path for path in (ROOT / "rocketmq_reindex").iterdir() if path.is_file()}
    assert listed == {path.relative_to(ROOT).as_posix() for path in files}
