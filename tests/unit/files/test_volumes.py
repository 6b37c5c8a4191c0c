"""Paths of Databricks' volumes: above a volume no folder can be made, whatever it is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketmq_reindex import files
from rocketmq_reindex.files import uris
from rocketmq_reindex.storage_format.errors import InputError

ABOVE = "is no folder of a volume: name /Volumes/CATALOG/SCHEMA/VOLUME or a folder in it"
ABSENT = "is no volume that this user sees: make it first, or name another"


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder in the place of /Volumes."""
    (tmp_path / "main" / "rocketmq" / "built" / "deep").mkdir(parents=True)
    monkeypatch.setattr(uris, "_TOP", str(tmp_path))
    return str(tmp_path)


@pytest.mark.parametrize("name", ["main/rocketmq/built", "main/rocketmq/built/", "main/rocketmq/built/a/b", "../elsewhere"])
def test_in_a_volume_and_elsewhere_folders_can_be_made(name: str, top: str) -> None:
    files.check_volume(f"{top}/{name}")


@pytest.mark.parametrize(
    ("name", "shown", "reason"),
    [
        ("", "", ABOVE),
        ("main", "/main", ABOVE),
        ("main/rocketmq/", "/main/rocketmq", ABOVE),
        ("main/rocketmq/built/..", "/main/rocketmq", ABOVE),
        ("main/rocketmq/bu\nilt/out", "/main/rocketmq/bu\\nilt", ABSENT),
        ("main/nowhere/built/out", "/main/nowhere/built", ABSENT),
    ],
)
def test_above_a_volume_one_line_says_so(name: str, shown: str, reason: str, top: str) -> None:
    with pytest.raises(InputError) as raised:
        files.check_volume(f"{top}/{name}")
    assert str(raised.value) == f"{top}{shown}: {reason}"


@pytest.mark.parametrize("place", ["/Volumes/main", "dbfs:/Volumes/main/rocketmq", "/Volumes"])
def test_the_real_ones(place: str) -> None:
    with pytest.raises(InputError, match=ABOVE):
        files.check_volume(place)


@pytest.mark.parametrize("place", ["/Volumesque/x", "s3://Volumes/main", "/dbfs/x", "dbfs:/x", "Volumes/main"])
def test_others_pass(place: str) -> None:
    files.check_volume(place)
