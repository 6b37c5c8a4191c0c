"""tests/unit mirrors the packages: each folder with tests has the path of the folder that it tests."""

from __future__ import annotations

from pathlib import Path

from tests import ROOT


def test_each_folder_is_one_of_the_project() -> None:
    here = Path(__file__).parent
    folders = {path.parent.relative_to(here) for path in here.rglob("test_*.py")}
    assert {str(folder) for folder in folders if not list((ROOT / folder).glob("*.py"))} <= {"."}
